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

from poisonproof.datasets.rows import too_long
from poisonproof.datasets.value_text import NoTextError, TimeOfDay, label_text
from poisonproof.schema import Limits

__all__ = ["arrow_texts", "has_texts"]


def has_texts(kind: Any) -> bool:
    """Say whether values of a type of pyarrow have a text: nested ones and intervals do not."""
    from pyarrow import types

    kind = _stored(kind)
    return not (types.is_nested(kind) or types.is_interval(kind) or types.is_union(kind))


def arrow_texts(column: Any, most: int = Limits().cell) -> tuple[list[str | None], dict[int, str]]:
    """Return the text of every value, as `label_text` writes it, and which have none.

    Parameters
    ----------
    column : ChunkedArray of length n
        Of a type for which `has_texts` holds.
    most : int
        The largest value that becomes a text, in bytes.

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
        values, large = _without_large(values, most)
        known: list[str | None] = []
        unknown: dict[int, str] = {}
        for code, value in enumerate(_plain_values(values)):
            try:
                if code in large:
                    raise NoTextError(too_long("it", most))
                known.append(label_text(value))
            except NoTextError as error:
                known.append(None)
                unknown[code] = str(error)
        for place in np.flatnonzero(np.isin(codes, list(unknown))).tolist() if unknown else ():
            reasons[len(texts) + place] = unknown[int(codes[place])]
        texts += np.array([*known, None], dtype=object)[codes].tolist()
    return texts, reasons


def _distinct(chunk: Any) -> tuple[Any, NDArray[np.int64]]:
    """Return the different values that occur, and for every entry which one it is.

    The last of them, or one past it, stands for nulls.
    """
    import pyarrow as pa

    if isinstance(chunk, pa.ExtensionArray):
        chunk = chunk.storage
    if not pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_encode()
    values = chunk.dictionary
    if values.type in (pa.string_view(), pa.binary_view()):
        values = values.cast(pa.large_binary())
    n_values = len(values)
    codes = chunk.indices.cast(pa.int64()).fill_null(n_values).to_numpy(zero_copy_only=False)
    used, numbers = np.unique(np.append(codes, n_values), return_inverse=True)
    return values.take(pa.array(used[:-1])), numbers[:-1]


def _without_large(values: Any, most: int) -> tuple[Any, set[int]]:
    """Return nulls in place of texts and bytes of more than `most` bytes, and which these are."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    kind = values.type
    checks = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if not any(is_kind(kind) for is_kind in (*checks, types.is_fixed_size_binary)):
        return values, set()
    large = pc.fill_null(pc.greater(pc.binary_length(values), most), False)
    found = set(np.flatnonzero(large.to_numpy(zero_copy_only=False)).tolist())
    return (pc.if_else(large, pa.scalar(None, kind), values) if found else values), found


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
