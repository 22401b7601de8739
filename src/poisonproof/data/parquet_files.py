"""Rows of Parquet files: every value read by itself, and no page that is larger than allowed.

Hand-written around pyarrow, whose own conversion stops at the first value that Python cannot hold
(a date beyond the year 9999, text that is not UTF-8), so that one row could make a file unreadable,
and which decompresses pages of any size. Times are read as their integers, and text as bytes.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import NumberColumn, Reasons
from poisonproof.data.rows import RawRows, present_texts
from poisonproof.data.schema import Layout, Limits, Schema
from poisonproof.data.value_text import texts_of
from poisonproof.exceptions import InvalidInputError, needing


def has_texts(kind: Any) -> bool:
    """Say whether values of a type of pyarrow have a text: nested ones and durations do not."""
    from pyarrow import types

    kind = _stored(kind)
    moment = types.is_date(kind) or types.is_timestamp(kind)
    return moment or not (types.is_nested(kind) or types.is_temporal(kind) or types.is_union(kind))


def arrow_texts(column: Any, most: int = Limits().cell) -> tuple[list[str | None], dict[int, str]]:
    """Return the text of every value, as `label_text` writes it, and why some have none."""
    texts: list[str | None] = []
    reasons: dict[int, str] = {}
    for chunk in column.chunks:
        values, codes = _distinct(chunk)
        known, unknown = texts_of(list(_plain_values(values)), most)
        for place in np.flatnonzero(np.isin(codes, list(unknown))).tolist() if unknown else ():
            reasons[len(texts) + place] = unknown[int(codes[place])]
        texts += np.array([*known, None], dtype=object)[codes].tolist()
    return texts, reasons


def _distinct(chunk: Any) -> tuple[Any, NDArray[np.int64]]:
    """Return the different values that occur, and which one each entry is; one past them: null."""
    import pyarrow as pa

    if isinstance(chunk, pa.ExtensionArray):
        chunk = chunk.storage
    if not pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_encode()
    values = chunk.dictionary
    if _is_bytes(values.type):
        values = values.cast(pa.large_binary())
    n_values = len(values)
    codes = chunk.indices.cast(pa.int64()).fill_null(n_values).to_numpy(zero_copy_only=False)
    used, numbers = np.unique(np.append(codes, n_values), return_inverse=True)
    return values.take(pa.array(used[:-1])), numbers[:-1]


def _stored(kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _plain_values(values: Any) -> Iterator[Any]:
    """Yield values as Python objects that hold every one of them."""
    import pyarrow as pa
    from pyarrow import types

    from poisonproof.partition.cells import ATTOSECONDS, PER_SECOND, Instant

    if types.is_date32(values.type):
        values = values.cast(pa.date64())
    kind = values.type
    if not types.is_temporal(kind):
        yield from (value.as_py() for value in values)  # one at a time: each may be large
        return
    per_second = PER_SECOND["ms" if types.is_date64(kind) else kind.unit]
    for count in values.cast(pa.int64()).to_pylist():
        if count is None:
            yield None
        else:
            rest = count % per_second * (ATTOSECONDS // per_second)
            yield Instant(count // per_second, rest)


_BATCH_BYTES = 1 << 24


def parquet_parts(
    path: Path, schema: Schema, batch_bytes: int = _BATCH_BYTES
) -> Iterator[tuple[RawRows, int]]:
    """Read the rows of a file some at a time, with their number; the first part holds none."""
    with open_parquet(path) as file:
        layout = schema.locate([str(name) for name in file.schema_arrow.names], path)
        empty = file.schema_arrow.empty_table()
    yield table_rows(empty, layout, path, schema, 0), 0  # complains of columns of other kinds
    single = [i for i in (layout.label, layout.groups, layout.weights) if i is not None]
    wanted = sorted({*layout.features, *layout.texts, *single})
    first = 0
    for table in parquet_tables(path, [layout.header[index] for index in wanted], batch_bytes):
        yield table_rows(table, layout, path, schema, first), table.num_rows
        first += table.num_rows


def table_rows(table: Any, layout: Layout, path: Path, schema: Schema, first_row: int) -> RawRows:
    """Return the rows of a pyarrow table, the first of which is row `first_row` of the file."""
    reasons = Reasons()
    label_reasons: dict[int, str] = {}

    def _texts(index: int, problems: dict[int, str] | None = None) -> list[str | None]:
        name = layout.header[index]
        if not has_texts(kind := table.column(name).type):
            raise InvalidInputError(
                f"Column {name!r} of {path} holds {kind}; labels, groups and texts are text, "
                "numbers or dates."
            )
        texts, without = arrow_texts(table.column(name), schema.limits.cell)
        for row, reason in without.items():
            if problems is None:
                reasons.cells.setdefault((row, name), f"column {name!r}: {reason}")
            else:
                problems.setdefault(row, f"column {name!r}: {reason}")
        return texts

    def _numbers(index: int) -> NDArray[np.float64]:
        column, name = table.column(layout.header[index]), layout.header[index]
        # One cell that is no number turns a column into text; its name was declared as numbers.
        if (schema.columns or index == layout.weights) and is_text(column.type):
            cells = present_texts(_texts(index), column := NumberColumn(name=name), schema)
            return column.parse(cells, reasons)
        return column_numbers(column, name, path)

    def _weights(index: int) -> NDArray[np.float64]:
        numbers, name = _numbers(index), layout.header[index]
        for row in [row for row, column in reasons.cells if column == name]:
            reasons.setdefault(row, reasons.cells.pop((row, name)))
        return numbers

    for other in schema.columns:
        written = isinstance(other, NumberColumn) and other.point != "."
        if written and not is_text(kind := table.column(other.name).type):
            raise InvalidInputError(
                f"Column {other.name!r} of {path} holds {kind}, but the schema says that its "
                f"numbers are texts such as {other.to_json()['format']!r}. Give it as text."
            )
    X = np.empty((table.num_rows, len(layout.features)))
    for target, index in enumerate(layout.features):
        X[:, target] = _numbers(index)
    return RawRows(
        X=X,
        labels=None if layout.label is None else _texts(layout.label, label_reasons),
        groups=None if layout.groups is None else _texts(layout.groups, reasons),
        weights=None if layout.weights is None else _weights(layout.weights),
        names=layout.feature_names,
        places=range(first_row, first_row + table.num_rows),
        unit="row",
        texts=tuple(_texts(index) for index in layout.texts),
        reasons=reasons,
        label_reasons=label_reasons,
    )


@contextmanager
def open_parquet(path: Path, metadata: Any = None, encoded: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file; in the columns `encoded`, equal cells stay one cell in memory.

    A file that is not Parquet, or is damaged, is an `InvalidInputError` within the block.
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


def parquet_tables(path: Path, names: Sequence[str], batch_bytes: int) -> Iterator[Any]:
    """Yield the rows of some columns as tables of pyarrow whose cells take `batch_bytes` or so."""
    import pyarrow as pa

    with open_parquet(path) as file:
        metadata = file.metadata
        kinds = {name: file.schema_arrow.field(name).type for name in names}
    plain = {chunk.path_in_schema for chunk in _chunks(metadata) if not stays_encoded(chunk)}
    texts = [name for name, kind in kinds.items() if _is_bytes(kind) and name not in plain]
    most = max(1, batch_bytes // max(8, sum(map(_cell_bytes, kinds.values()))))
    with open_parquet(path, metadata, texts) as file:
        for group in range(metadata.num_row_groups):
            step = rows_per_batch(path, metadata, group, names, most, batch_bytes)
            for batch in file.iter_batches(step, row_groups=[group], columns=list(names)):
                yield pa.Table.from_batches([batch])


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of a file."""
    with open_parquet(path) as file:
        return [str(name) for name in file.schema_arrow.names]


def count_rows(path: Path) -> int:
    """Return the number of rows of a file."""
    with open_parquet(path) as file:
        return int(file.metadata.num_rows)


def parquet_texts(path: Path, most: int, limits: Limits) -> dict[str, list[str | None]]:
    """Return rows from all over a Parquet file as text by column name, as `label_text` writes it.

    Which ones depends on their numbers alone.
    """
    with open_parquet(path) as file:
        kinds = {str(field.name): field.type for field in file.schema_arrow}
        n_rows = int(file.metadata.num_rows)
    plain = [name for name, kind in kinds.items() if has_texts(kind)]
    columns: dict[str, list[str | None]] = {name: [] for name in plain}
    chosen = np.arange(n_rows)
    if n_rows > most:
        chosen = np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))
    first = 0
    for table in parquet_tables(path, plain, _BATCH_BYTES):
        start, stop = np.searchsorted(chosen, [first, first + table.num_rows])
        some = table.take(chosen[start:stop] - first)
        for name in plain:
            columns[name] += arrow_texts(some.column(name), limits.cell)[0]
        first += table.num_rows
    return {name: columns.get(name, [None] * len(chosen)) for name in kinds}


def column_numbers(column: Any, name: str, path: Path) -> NDArray[np.float64]:
    """Return a column of numbers as float64, NaN for nulls."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind, types = column.type, pa.types
    # A column that holds nothing but nulls may have no type of its own.
    known = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not any(is_kind(kind) for is_kind in known):
        raise InvalidInputError(
            f"Column {name!r} of {path} holds {kind}, but features and weights are numbers. Encode "
            f"it as numbers, or ignore it (on the command line: --ignore {name})."
        )
    if types.is_decimal(kind):
        # By value: pyarrow's own conversion rounds by the scale that all rows share.
        cells = (np.nan if cell is None else float(cell) for cell in column.to_pylist())
        return np.fromiter(cells, dtype=np.float64, count=len(column))
    values = pc.cast(column, pa.float64(), safe=False).combine_chunks()
    numbers: NDArray[np.float64] = values.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float64, copy=False)


def is_text(kind: Any) -> bool:
    """Say whether values of a type of pyarrow are texts."""
    import pyarrow as pa

    return _stored(kind) in (pa.string(), pa.large_string(), pa.string_view())


def _chunks(metadata: Any) -> Iterator[Any]:
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, range(group.num_columns))


def _is_bytes(kind: Any) -> bool:
    """Say whether pyarrow can leave a column encoded."""
    import pyarrow as pa

    return is_text(kind) or kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def _cell_bytes(kind: Any) -> int:
    """Return the size of a cell, of a column that stays encoded the size of its number."""
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    return 2**22 if isinstance(kind, pa.BaseExtensionType) else 8  # these do not stay encoded


# How large the pages of a file become, read from their headers before any is decompressed. pyarrow
# decompresses a page as a whole (two gigabytes may take a few kilobytes in the file) and shows
# neither pages nor their sizes; the sizes of whole column chunks that it does show are those of
# honest files, and too coarse for a batch. Hence this reader of a few fields (Thrift, compact
# protocol).

LARGEST_PAGE = 2**26
"""A file with a page that becomes larger is refused. Writers aim at one megabyte, but some look at
the size after a thousand cells only."""

_USUAL_PAGE = 2**22
"""Larger pages are counted by themselves: one of them must not make all batches small."""

_DEEPEST = 8
_DICTIONARY = (2, 8)
"""Encodings of pages that hold numbers of cells in another page."""
_DELTA_BYTE_ARRAY = 7
"""The encoding in which a cell may begin as the one before does, without being stored again."""

_Numbers = NDArray[Any]


def rows_per_batch(
    path: Path, metadata: Any, group: int, names: Sequence[str], most: int, batch_bytes: int
) -> int:
    """Return how many rows of a row group, at most `most`, take about `batch_bytes` together."""
    wanted, columns = set(names), metadata.row_group(group)
    chunks = map(columns.column, range(columns.num_columns))
    found = [_pages(path, chunk) for chunk in chunks if chunk.path_in_schema in wanted]
    step = max(1, most)
    for usual, allowed in ((True, batch_bytes), (False, LARGEST_PAGE)):
        counted = [
            (rows, np.where((sizes <= _USUAL_PAGE) == usual, sizes, 0)) for rows, sizes in found
        ]
        while step > 1 and _heaviest(counted, step) > allowed:
            step //= 2
    return step


def stays_encoded(chunk: Any) -> bool:
    """Say whether pyarrow can hand out a column of texts as different values and their numbers."""
    return not any(name.startswith("DELTA") for name in chunk.encodings)


def _heaviest(columns: Sequence[tuple[_Numbers, _Numbers]], step: int) -> float:
    """Return the most bytes that `step` consecutive rows take, all columns together."""
    ends = [np.concatenate([[0], np.cumsum(rows)]) for rows, _ in columns]
    sums = [np.concatenate([[0], np.cumsum(sizes)]) for _, sizes in columns]
    # The sum over a window changes its slope where a page ends; so one of these is the largest.
    edges = np.unique(np.concatenate([[0], *ends]))
    starts = np.concatenate([edges, np.maximum(edges - step, 0)])
    pairs = list(zip(ends, sums, strict=True))
    total = sum(
        np.interp(starts + step, end, size) - np.interp(starts, end, size) for end, size in pairs
    )
    return float(np.max(total)) if pairs else 0.0


def _pages(path: Path, chunk: Any) -> tuple[_Numbers, _Numbers]:
    """Return rows and bytes of the data pages of a column chunk, each of shape (n,)."""
    start, seen, dictionary = int(chunk.data_page_offset), 0, 0
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = int(chunk.dictionary_page_offset)
    rows, sizes = [], []
    encoded = chunk.physical_type != "BYTE_ARRAY" or stays_encoded(chunk)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            while seen < chunk.num_values:
                header, start = _read_struct(view, start, _DEEPEST)
                size, stored = header[2], header[3]
                if size > LARGEST_PAGE:
                    raise InvalidInputError(
                        f"Column {chunk.path_in_schema!r} of {path} has a page of {size:,} bytes; "
                        f"pages of at most {LARGEST_PAGE:,} bytes are read. Write the file with "
                        "smaller pages and without cells of that size."
                    )
                data = header.get(5) or header.get(8)  # version 1 or 2; a dictionary has neither
                n_rows = data[1] if data else 0
                if min(size, stored, n_rows) < 0 or start + stored > len(view):
                    raise ValueError
                start, seen = start + stored, seen + n_rows
                if not data:
                    dictionary = size
                    continue
                rows.append(n_rows)
                encoding = data[2] if 5 in header else data[4]
                if encoding == _DELTA_BYTE_ARRAY:
                    size *= n_rows
                elif encoding in _DICTIONARY and not encoded:
                    size += dictionary * n_rows
                sizes.append(size)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            f"{path} is not a readable Parquet file: its pages are damaged."
        ) from error
    return np.array(rows, dtype=np.int64), np.array(sizes, dtype=np.float64)


def _read_struct(view: mmap.mmap, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the numbers and structures of a Thrift structure by field, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    if depth == 0:
        raise ValueError
    while kind := view[at]:
        at += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, at = _read_integer(view, at)
        fields[number], at = _read_value(view, at, kind & 15, depth)
    return fields, at + 1


def _read_value(view: mmap.mmap, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true, false
        return kind == 1, at
    if kind == 3:  # a byte
        return view[at], at + 1
    if kind in (4, 5, 6):  # integers
        return _read_integer(view, at)
    if kind == 7:  # a double
        return None, at + 8
    if kind == 8:  # bytes
        length, at = _read_varint(view, at)
        return None, at + length
    if kind == 12:
        return _read_struct(view, at, depth - 1)
    raise ValueError  # no header of a page holds a list or a map


def _read_integer(view: mmap.mmap, at: int) -> tuple[int, int]:
    value, at = _read_varint(view, at)
    return (value >> 1) ^ -(value & 1), at


def _read_varint(view: mmap.mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError
