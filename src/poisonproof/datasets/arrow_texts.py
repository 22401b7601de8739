"""Columns of pyarrow as text, every value by itself.

pyarrow's own way to Python values stops at the first one that Python cannot hold (a date beyond
the year 9999, text that is not UTF-8), so one row could make a file unreadable; and it gives
another type for nanoseconds than for other units. Times are therefore read as the integers that
they are stored as, and text as bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.value_text import NoTextError, TimeOfDay, label_text

__all__ = ["arrow_texts", "has_texts"]


def has_texts(kind: Any) -> bool:
    """Say whether values of a type of pyarrow have a text: nested ones and intervals do not."""
    from pyarrow import types

    kind = _stored(kind)
    return not (types.is_nested(kind) or types.is_interval(kind) or types.is_union(kind))


def arrow_texts(column: Any) -> tuple[list[str | None], dict[int, str]]:
    """Return the text of every value, as `label_text` writes it, and which have none.

    Parameters
    ----------
    column : ChunkedArray of length n
        Of a type for which `has_texts` holds.

    Returns
    -------
    texts : list of (str or None), length n
        None for a missing value, and for one without a text.
    reasons : dict of int to str
        Why values have no text, by position.
    """
    texts: list[str | None] = []
    reasons: dict[int, str] = {}
    for chunk in column.chunks:
        values, codes = _distinct(chunk)
        known: list[str | None] = []
        unknown: dict[int, str] = {}
        for code, value in enumerate(_plain_values(values)):
            try:
                known.append(label_text(value))
            except NoTextError as error:
                known.append(None)
                unknown[code] = str(error)
        for place in np.flatnonzero(np.isin(codes, list(unknown))).tolist() if unknown else ():
            reasons[len(texts) + place] = unknown[int(codes[place])]
        texts += np.array([*known, None], dtype=object)[codes].tolist()
    return texts, reasons


def _distinct(chunk: Any) -> tuple[Any, NDArray[np.int64]]:
    """Return the different values, and for every entry which one it is, the last for nulls."""
    import pyarrow as pa

    if isinstance(chunk, pa.ExtensionArray):
        chunk = chunk.storage
    if not pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_encode()
    values = chunk.dictionary
    codes = chunk.indices.cast(pa.int64()).fill_null(len(values))
    return values, codes.to_numpy(zero_copy_only=False)


def _stored(kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _plain_values(values: Any) -> list[Any]:
    """Return values as Python objects that hold every one of them."""
    import pyarrow as pa
    from pyarrow import types

    from poisonproof.partition.cells import ATTOSECONDS, PER_SECOND, Duration, Instant

    kind = values.type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return list(values.cast(pa.large_binary()).to_pylist())
    if types.is_date32(kind):
        days = values.cast(pa.int32()).to_pylist()
        return [None if day is None else Instant(day * 86_400, 0) for day in days]
    if not types.is_temporal(kind):
        return list(values.to_pylist())
    unit = "ms" if types.is_date64(kind) else kind.unit
    per_second = {"s": 1, **PER_SECOND}[unit]
    whole = values.cast(pa.int32() if types.is_time32(kind) else pa.int64()).to_pylist()
    made = TimeOfDay if types.is_time(kind) else Duration if types.is_duration(kind) else Instant
    return [
        None
        if count is None
        else made(count // per_second, count % per_second * (ATTOSECONDS // per_second))
        for count in whole
    ]
