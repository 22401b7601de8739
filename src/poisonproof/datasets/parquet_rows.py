"""Rows of a Parquet file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.arrow_texts import arrow_texts, has_texts
from poisonproof.datasets.csv_lines import cell_number
from poisonproof.datasets.parquet_pages import rows_per_batch, stays_encoded
from poisonproof.datasets.rows import RawRows, join_rows
from poisonproof.datasets.schema import Columns, Schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.extras import needing
from poisonproof.schema import Limits

__all__ = [
    "column_numbers",
    "open_parquet",
    "parquet_parts",
    "parquet_tables",
    "parquet_texts",
    "read_parquet_rows",
]

_BATCH_BYTES = 1 << 24


def read_parquet_rows(path: Path, schema: Schema) -> RawRows:
    """Read a Parquet file; features may be stored as any kind of number, nulls are missing values.

    Labels and groups become text by `label_text`, whatever type they are stored in.
    """
    return join_rows([part for part, _ in parquet_parts(path, schema)])


def parquet_parts(
    path: Path, schema: Schema, batch_bytes: int = _BATCH_BYTES
) -> Iterator[tuple[RawRows, int]]:
    """Read the same rows some at a time, with their number; the first part holds none."""
    with open_parquet(path) as file:
        header = [str(name) for name in file.schema_arrow.names]
        found = schema.locate(header, path)
        empty = file.schema_arrow.empty_table()
    yield _rows(empty, header, found, path, schema, 0), 0  # complains of columns of other kinds
    single = [index for index in (found.label, found.groups, found.weights) if index is not None]
    wanted = sorted({*found.features, *found.texts, *single})
    first = 0
    for table in parquet_tables(path, [header[index] for index in wanted], batch_bytes):
        place = {index: position for position, index in enumerate(wanted)}
        columns = Columns(
            features=tuple(place[index] for index in found.features),
            label=None if found.label is None else place[found.label],
            groups=None if found.groups is None else place[found.groups],
            weights=None if found.weights is None else place[found.weights],
            texts=tuple(place[index] for index in found.texts),
        )
        names = [header[index] for index in wanted]
        yield _rows(table, names, columns, path, schema, first), table.num_rows
        first += table.num_rows


def _rows(
    table: Any, header: Sequence[str], columns: Columns, path: Path, schema: Schema, first_row: int
) -> RawRows:
    """Return the rows of a pyarrow table, the first of which is row `first_row` of the file."""
    reasons: dict[int, str] = {}
    label_reasons: dict[int, str] = {}
    most = schema.limits.cell

    def _texts(index: int | None, problems: dict[int, str] = reasons) -> Any:
        if index is None:
            return None
        texts, without = arrow_texts(table.column(index), most)
        for row, reason in without.items():
            problems.setdefault(row, f"column {header[index]!r}: {reason}")
        return texts

    def _numbers(index: int) -> Any:
        column, name = table.column(index), header[index]
        if schema.text_numbers and _is_text(column.type):
            return _parsed(_texts(index), name, reasons)
        return column_numbers(column, name, path)

    _check_texts(table, header, columns, path)
    X = np.empty((table.num_rows, len(columns.features)))
    for target, index in enumerate(columns.features):
        X[:, target] = _numbers(index)
    return RawRows(
        X=X,
        labels=_texts(columns.label, label_reasons),
        groups=_texts(columns.groups),
        weights=None
        if columns.weights is None
        else column_numbers(table.column(columns.weights), header[columns.weights], path),
        names=tuple(header[index] for index in columns.features),
        places=range(first_row, first_row + table.num_rows),
        unit="row",
        texts=tuple(_texts(index) for index in columns.texts),
        reasons=reasons,
        label_reasons=label_reasons,
    )


@contextmanager
def open_parquet(path: Path, metadata: Any = None, encoded: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file whose row groups are read as they are asked for.

    Parameters
    ----------
    path : Path
        The file.
    metadata : pyarrow.parquet.FileMetaData, optional
        Its footer, where that has been read.
    encoded : sequence of str
        Columns whose equal cells stay one cell: a file may hold a large one once and name it in
        many rows.

    Raises
    ------
    InvalidInputError
        If the file is not Parquet, or turns out to be damaged within the block.
    """
    with needing("pyarrow", "data"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    try:
        # A buffer per column instead of whole row groups: these may be as large as the file.
        with pq.ParquetFile(
            path,
            metadata=metadata,
            read_dictionary=list(encoded),
            buffer_size=1 << 20,
            pre_buffer=False,
        ) as file:
            yield file
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} has a column whose name is not UTF-8 ({error.object!r}). Write the file with "
            "another name."
        ) from error
    except (pa.ArrowException, OSError) as error:
        first = str(error).strip().splitlines()[0]
        raise InvalidInputError(f"{path} is not a readable Parquet file: {first}") from error


def parquet_tables(
    path: Path, names: Sequence[str], batch_bytes: int, most: int | None = None
) -> Iterator[Any]:
    """Yield the rows of some columns as tables of pyarrow whose cells take `batch_bytes` or so.

    No table has more than `most` rows. Columns of text come encoded, as different values and
    numbers of them.
    """
    import pyarrow as pa

    with open_parquet(path) as file:
        metadata = file.metadata
        kinds = {name: file.schema_arrow.field(name).type for name in names}
    plain = {chunk.path_in_schema for chunk in _chunks(metadata) if not stays_encoded(chunk)}
    texts = [name for name, kind in kinds.items() if _is_bytes(kind) and name not in plain]
    most = most or max(1, batch_bytes // max(8, sum(map(_cell_bytes, kinds.values()))))
    with open_parquet(path, metadata, texts) as file:
        for group in range(metadata.num_row_groups):
            step = rows_per_batch(path, metadata, group, names, most, batch_bytes)
            for batch in file.iter_batches(step, row_groups=[group], columns=list(names)):
                yield pa.Table.from_batches([batch])


def parquet_texts(path: Path, most: int, limits: Limits) -> dict[str, list[str | None]]:
    """Return the first rows of a Parquet file as text by column name, as `label_text` writes it.

    Nested columns, and values without a text or beyond the limit, come as if they were empty.
    """
    with open_parquet(path) as file:
        names = [str(name) for name in file.schema_arrow.names]
        plain = [name for name in names if has_texts(file.schema_arrow.field(name).type)]
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInputError(f"{path} has more than one column named {name[:80]!r}.")
    columns: dict[str, list[str | None]] = {name: [] for name in plain}
    n_rows = 0
    for table in parquet_tables(path, plain, _BATCH_BYTES, most):
        for name in plain:
            columns[name] += arrow_texts(table.column(name), limits.cell)[0]
        n_rows += table.num_rows
        if n_rows >= most:
            break
    return {name: columns.get(name, [None] * n_rows)[:most] for name in names}


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


def _chunks(metadata: Any) -> Iterator[Any]:
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, range(group.num_columns))


def _is_bytes(kind: Any) -> bool:
    """Say whether pyarrow can leave a column encoded."""
    from pyarrow import types

    binary = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return _is_text(kind) or any(is_kind(kind) for is_kind in binary)


def _cell_bytes(kind: Any) -> int:
    """Return the size of a cell, of a column that stays encoded the size of its number."""
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    return 2**22 if isinstance(kind, pa.BaseExtensionType) else 8  # these do not stay encoded


def _parsed(texts: Sequence[str | None], name: str, reasons: dict[int, str]) -> NDArray[np.float64]:
    """Read numbers that are stored as text, each cell as a cell of a CSV file."""
    numbers = np.full(len(texts), np.nan)
    for row, cell in enumerate(texts):
        try:
            numbers[row] = cell_number(cell or "")
        except ValueError as error:
            reasons.setdefault(row, f"column {name!r}: {error}")
    return numbers


def _check_texts(table: Any, header: Sequence[str], columns: Columns, path: Path) -> None:
    for index in (columns.label, columns.groups, *columns.texts):
        if index is not None and not has_texts(kind := table.column(index).type):
            raise InvalidInputError(
                f"Column {header[index]!r} of {path} holds {kind}; labels, groups and texts are "
                "text, numbers or dates."
            )
