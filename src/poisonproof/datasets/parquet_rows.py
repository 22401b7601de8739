"""Rows of a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.arrow_texts import arrow_texts, has_texts
from poisonproof.datasets.csv_lines import cell_number
from poisonproof.datasets.rows import RawRows
from poisonproof.datasets.schema import Columns, Schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.extras import needing

__all__ = [
    "column_numbers",
    "open_parquet",
    "parquet_rows",
    "parquet_texts",
    "read_parquet_rows",
]


def read_parquet_rows(path: Path, schema: Schema) -> RawRows:
    """Read a Parquet file; features may be stored as any kind of number, nulls are missing values.

    Labels and groups become text by `label_text`, whatever type they are stored in.
    """
    return parquet_rows(open_parquet(path), path, schema)


def parquet_rows(table: Any, path: Path, schema: Schema, first_row: int = 0) -> RawRows:
    """Return the rows of a pyarrow table, the first of which is row `first_row` of the file."""
    header = [str(name) for name in table.column_names]
    columns = schema.locate(header, path)

    reasons: dict[int, str] = {}

    def _texts(index: int | None) -> Any:
        return None if index is None else _read_texts(table.column(index), header[index], reasons)

    def _numbers(index: int) -> Any:
        column, name = table.column(index), header[index]
        if schema.text_numbers and _is_text(column.type):
            return _parsed(column, name, reasons)
        return column_numbers(column, name, path)

    _check_texts(table, header, columns, path)
    X = np.empty((table.num_rows, len(columns.features)))
    for target, index in enumerate(columns.features):
        X[:, target] = _numbers(index)
    return RawRows(
        X=X,
        labels=_texts(columns.label),
        groups=_texts(columns.groups),
        weights=None
        if columns.weights is None
        else column_numbers(table.column(columns.weights), header[columns.weights], path),
        names=tuple(header[index] for index in columns.features),
        places=range(first_row, first_row + table.num_rows),
        unit="row",
        texts=tuple(_texts(index) for index in columns.texts),
        reasons=reasons,
    )


def open_parquet(path: Path, most: int | None = None) -> Any:
    """Return the pyarrow table in a file, or about its first `most` rows.

    Raises
    ------
    InvalidInputError
        If the file is not Parquet.
    """
    with needing("pyarrow", "data"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    try:
        with path.open("rb") as file:
            if most is None:
                return pq.ParquetFile(file).read()
            whole = pq.ParquetFile(file)
            first = next(whole.iter_batches(batch_size=most), None)
            batches = [] if first is None else [first]
            return pa.Table.from_batches(batches, schema=whole.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidInputError(f"{path} is not a readable Parquet file: {first}") from error


def parquet_texts(path: Path, most: int) -> dict[str, list[str | None]]:
    """Return the first rows of a Parquet file as text by column name, as `label_text` writes it.

    Nested columns, and values without a text, come as if they were empty.
    """
    table = open_parquet(path, most)
    columns: dict[str, list[str | None]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if str(name) in columns:
            raise InvalidInputError(f"{path} has more than one column named {str(name)[:80]!r}.")
        columns[str(name)] = (
            arrow_texts(column)[0] if has_texts(column.type) else [None] * len(column)
        )
    return columns


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
    if pa.types.is_decimal(kind):
        # By value: pyarrow's own conversion rounds by the scale that all rows share.
        cells = (np.nan if cell is None else float(cell) for cell in column.to_pylist())
        return np.fromiter(cells, dtype=np.float64, count=len(column))
    values = pc.cast(column, pa.float64(), safe=False).combine_chunks()
    numbers: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float64, copy=False)


def _numeric_kinds() -> tuple[Any, ...]:
    from pyarrow import types

    # A column that holds nothing but nulls may have no type of its own.
    return types.is_integer, types.is_floating, types.is_decimal, types.is_null


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _parsed(column: Any, name: str, reasons: dict[int, str]) -> NDArray[np.float64]:
    """Read numbers that are stored as text, each cell as a cell of a CSV file."""
    numbers = np.full(len(column), np.nan)
    for row, cell in enumerate(arrow_texts(column)[0]):
        try:
            numbers[row] = cell_number(cell or "")
        except ValueError as error:
            reasons.setdefault(row, f"column {name!r}: {error}")
    return numbers


def _read_texts(column: Any, name: str, reasons: dict[int, str]) -> list[str | None]:
    texts, without = arrow_texts(column)
    for row, reason in without.items():
        reasons.setdefault(row, f"column {name!r}: {reason}")
    return texts


def _check_texts(table: Any, header: list[str], columns: Columns, path: Path) -> None:
    for index in (columns.label, columns.groups, *columns.texts):
        if index is not None and not has_texts(kind := table.column(index).type):
            raise InvalidInputError(
                f"Column {header[index]!r} of {path} holds {kind}; labels, groups and texts are "
                "text, numbers or dates."
            )
