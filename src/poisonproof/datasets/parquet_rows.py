"""Rows of a Parquet file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.rows import RawRows
from poisonproof.datasets.schema import Schema, label_text
from poisonproof.exceptions import InvalidInputError, MissingExtraError

__all__ = ["column_numbers", "open_parquet", "read_parquet_rows"]


def read_parquet_rows(path: Path, schema: Schema) -> RawRows:
    """Read a Parquet file; features may be stored as any kind of number, nulls are missing values.

    Labels and groups become text by `label_text`, whatever type they are stored in.
    """
    table = open_parquet(path)
    header = [str(name) for name in table.column_names]
    columns = schema.locate(header, path)

    def _read(convert: Callable[[Any, str, Path], Any], index: int | None) -> Any:
        return None if index is None else convert(table.column(index), header[index], path)

    X = np.empty((table.num_rows, len(columns.features)))
    for target, index in enumerate(columns.features):
        X[:, target] = _read(column_numbers, index)
    return RawRows(
        X=X,
        labels=_read(_texts, columns.label),
        groups=_read(_texts, columns.groups),
        weights=_read(column_numbers, columns.weights),
        names=tuple(header[index] for index in columns.features),
        places=range(table.num_rows),
        unit="row",
    )


def open_parquet(path: Path) -> Any:
    """Return the pyarrow table in a file, or raise InvalidInputError if there is none."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data") from error
    try:
        with path.open("rb") as file:
            return pq.ParquetFile(file).read()
    except (pa.ArrowException, OSError) as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidInputError(f"{path} is not a readable Parquet file: {first}") from error


def column_numbers(column: Any, name: str, path: Path) -> NDArray[np.float64]:
    """Return a column of numbers as float64, NaN for nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not any(is_kind(kind) for is_kind in _numeric_kinds()):
        raise InvalidInputError(
            f"Column {name!r} of {path} holds {kind}, but features and weights are numbers. Encode "
            f"it as numbers, or ignore it (on the command line: --ignore {name})."
        )
    values = pc.cast(column, pa.float64(), safe=False).combine_chunks()
    numbers: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float64, copy=False)


def _numeric_kinds() -> tuple[Any, ...]:
    from pyarrow import types

    # A column that holds nothing but nulls may have no type of its own.
    return types.is_integer, types.is_floating, types.is_decimal, types.is_null


def _texts(column: Any, name: str, path: Path) -> list[str | None]:
    from pyarrow import types

    if types.is_nested(column.type):
        raise InvalidInputError(
            f"Column {name!r} of {path} holds {column.type}; labels and groups are text or numbers."
        )
    known: dict[Any, str | None] = {}
    texts: list[str | None] = []
    for value in column.to_pylist():
        if value not in known:
            known[value] = label_text(value)
        texts.append(known[value])
    return texts
