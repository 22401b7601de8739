"""Arrow tables as data frames that keep every value."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import ImageColumn
from poisonproof.data.csv_files import csv_parts, read_header
from poisonproof.data.declared_columns import Schema, listed
from poisonproof.data.image_files import count_images, image_parts, printable
from poisonproof.data.image_trees import walk
from poisonproof.data.parquet_files import open_parquet, parquet_parts, parquet_tables
from poisonproof.data.rows import CheckedRows, RawRows, RowProblem, check_rows, too_long
from poisonproof.data.schema import Limits, TableSchema
from poisonproof.data.tables import encoded_rows, plain_schema, split_rows
from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.containers import is_pandas


def to_frame(table: Any) -> Any:
    """Return a pyarrow table as a pandas frame in which integers stay integers beside nulls."""
    import pandas as pd
    import pyarrow as pa

    signs = {"int": "Int", "uint": "UInt"}
    exact: dict[Any, Any] = {
        getattr(pa, f"{sign}{bits}")(): getattr(pd, f"{name}{bits}Dtype")()
        for sign, name in signs.items()
        for bits in (8, 16, 32, 64)
    }
    exact[pa.bool_()] = pd.BooleanDtype()
    return table.to_pandas(types_mapper=exact.get, ignore_metadata=True)


# Samples in files that are read from the middle: arrays as they are, frames as Arrow.

PIECE = 1 << 22
"""Bytes that are brought into order at a time."""


class SampleFiles(ABC):
    """How the samples of a training set are written to files."""

    @abstractmethod
    def n_bytes(self, X: Any) -> int:
        """Return about how much memory samples take."""

    @abstractmethod
    def write(self, path: Path, parts: list[Any], order: NDArray[np.intp]) -> None:
        """Write the samples of all parts together, in the order given; the list is used up."""

    @abstractmethod
    def read(self, path: Path, start: int, stop: int) -> Any:
        """Return consecutive samples of a file."""

    @abstractmethod
    def fits(self, X: Any) -> bool:
        """Whether samples have the type of those before."""


@dataclass(frozen=True)
class ArrayFiles(SampleFiles):
    """Numbers, row after row."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def n_bytes(self, X: Any) -> int:
        """Return the size of the array."""
        return int(X.nbytes)

    def write(self, path: Path, parts: list[Any], order: NDArray[np.intp]) -> None:
        """Gather and write some rows at a time."""
        whole, filled = np.empty((len(order), *self.shape), self.dtype), 0
        while parts:  # each part goes before the next is copied
            part = parts.pop(0)
            whole[filled : filled + len(part)] = part
            filled += len(part)
        step = max(1, PIECE // max(1, self._row_bytes))
        with path.open("xb") as file:  # a new file: no link can lead elsewhere
            for start in range(0, len(order), step):
                np.take(whole, order[start : start + step], axis=0).tofile(file)

    def read(self, path: Path, start: int, stop: int) -> NDArray[Any]:
        """Read a stretch of the file."""
        count = (stop - start) * int(np.prod(self.shape))
        flat = np.fromfile(path, self.dtype, count, offset=start * self._row_bytes)
        return flat.reshape(stop - start, *self.shape)

    def fits(self, X: Any) -> bool:
        """Whether dtype and shape are the same."""
        return isinstance(X, np.ndarray) and (X.dtype, X.shape[1:]) == (self.dtype, self.shape)

    @property
    def _row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape))


@dataclass(frozen=True)
class FrameFiles(SampleFiles):
    """Data frames as Arrow files of one record batch."""

    schema: Any

    def n_bytes(self, X: Any) -> int:
        """Return the size of the columns."""
        return int(X.memory_usage(index=False, deep=True).sum())

    def write(self, path: Path, parts: list[Any], order: NDArray[np.intp]) -> None:
        """Join, order and write the frames."""
        import pyarrow as pa

        tables = [pa.Table.from_pandas(part, self.schema, preserve_index=False) for part in parts]
        whole = pa.concat_tables(tables).take(pa.array(order)).combine_chunks()
        with path.open("xb") as sink, pa.ipc.new_file(sink, whole.schema) as file:
            file.write_table(whole, max_chunksize=max(1, len(whole)))

    def read(self, path: Path, start: int, stop: int) -> Any:
        """Map the file and copy a stretch of it."""
        import pyarrow as pa

        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            batches = [file.get_batch(i) for i in range(file.num_record_batches)]
            table = pa.Table.from_batches(batches, file.schema)
            return to_frame(table.slice(start, stop - start))

    def fits(self, X: Any) -> bool:
        """Whether the columns are the same; a source checks their types."""
        return is_pandas(X) and list(X.columns) == self.schema.names


def sample_files(X: Any) -> SampleFiles:
    """Return how samples like `X` are kept."""
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        return ArrayFiles(X.dtype, X.shape[1:])
    raise InvalidInputError(
        f"A source must yield arrays of numbers, or say how else samples are kept. Got "
        f"{type(X).__name__}."
    )


# Pieces of a source: as many rows as fit in a small share of the memory.


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some consecutive rows of a source.

    Attributes
    ----------
    X : array or DataFrame of m samples
    y : array of shape (m,)
        Labels.
    groups, sample_weight : array of shape (m,) or None
    where : str
        The file and its rows, for error messages.
    amount : int
        How far it brings the reader, in the unit of `RowSource.total`.
    problems : tuple of RowProblem
        Rows that were left out because they do not fit.
    """

    X: Any
    y: Any
    groups: Any
    sample_weight: Any
    where: str
    amount: int
    problems: tuple[RowProblem, ...] = ()


class RowSource(ABC):
    """Labelled rows that are read piece by piece, as often as one likes."""

    @property
    @abstractmethod
    def total(self) -> int:
        """The sum of the amounts of all chunks: rows, or bytes where rows are not counted."""

    @abstractmethod
    def chunks(
        self, chunk_bytes: int, *, allow_missing: bool, invalid_rows: str
    ) -> Iterator[Chunk]:
        """Yield all rows once.

        Parameters
        ----------
        chunk_bytes : int
            About how much memory the samples of a chunk may take.
        allow_missing : bool
            Whether members take missing values.
        invalid_rows : {"raise", "drop"}
            What to do with a row that does not fit.
        """

    def sample_files(self) -> SampleFiles | None:
        """Return how samples are kept on disk; None for arrays, which say it themselves."""
        return None

    def split(self, n_parts: int) -> Sequence[RowSource]:
        """Return at most `n_parts` sources that hold these rows together, for worker processes."""
        return [self]


def rejection(where: object, problems: Sequence[RowProblem], invalid_rows: str) -> Iterator[Chunk]:
    """Yield a chunk without rows that counts what was left out, or raise `InvalidRowsError`."""
    if problems and invalid_rows == "raise":
        raise InvalidRowsError(
            f"{where}: {problems[0].place}: {problems[0].reason}. Correct it, or leave out what "
            "cannot be read: invalid_rows='drop'."
        )
    if problems:
        yield Chunk((), (), None, None, str(where), 0, tuple(problems))


def rows_per_chunk(chunk_bytes: int, row_bytes: int) -> int:
    """Return how many rows a chunk has.

    >>> rows_per_chunk(2**24, 160)
    104857
    """
    return max(1, chunk_bytes // max(1, row_bytes))


# Which files a training set consists of.

SUFFIXES = (".parquet", ".csv", ".tsv")

Found = tuple[tuple[Path, ...], tuple[RowProblem, ...]]
"""Files that are read, and entries of the folder that are not."""


def find_files(path: str | os.PathLike[str], suffixes: tuple[str, ...] = SUFFIXES) -> Found:
    """Return the file `path`, or all data files of one format in the folder `path`.

    Files and folders whose names begin with a dot or an underscore are not data, as in Spark and
    pyarrow. Every other entry that is not read comes with its reason: links are not followed, and
    pipes are not opened. The order of the files has no influence on any partition.

    Raises
    ------
    InvalidInputError
        If there is no such file, or the folder holds none, or files of several formats.
    """
    path = Path(path)
    left_out: list[RowProblem] = []
    if path.is_dir():
        found = []
        other = f"does not end in {' or '.join(suffixes)}"
        for name, reason in sorted(walk(path)):
            if any(part.startswith((".", "_")) for part in name.split("/")):
                continue
            if reason or not name.lower().endswith(suffixes):
                left_out.append(RowProblem(printable(name), reason or other))
            else:
                found.append(path / name)
    elif path.is_file():
        found = [path] if path.suffix.lower() in suffixes else []
    else:
        raise InvalidInputError(f"There is no file or folder {path}.")
    if not found:
        raise InvalidInputError(
            f"{path} holds no file that can be streamed; its name must end in "
            f"{', '.join(suffixes)}."
        )
    formats = sorted({file.suffix.lower() for file in found})
    if len(formats) > 1:
        raise InvalidInputError(
            f"{path} holds files of several formats: {', '.join(formats)}. Give a folder of one."
        )
    return tuple(found), tuple(left_out)


def split_files(found: Found, n_parts: int) -> list[Found]:
    """Return at most `n_parts` parts of the files; what is not read goes with the first."""
    files, left_out = found
    parts = np.array_split(np.arange(len(files)), min(n_parts, len(files)))
    return [
        (tuple(files[index] for index in part), left_out if number == 0 else ())
        for number, part in enumerate(parts)
    ]


# From cells that were read to checked features, so many rows at a time as fit.


def encoded_chunks(
    raw: RawRows,
    schema: TableSchema | Schema,
    plain: Schema,
    path: Path,
    chunk_bytes: int,
    amount: int,
    invalid_rows: str,
) -> Iterator[Chunk]:
    """Turn rows into chunks of those that fit and are not held out of training.

    Parameters
    ----------
    raw : RawRows
        What was read.
    schema : TableSchema or Schema
        What the cells mean.
    plain : Schema
        The same, as the readers of files know it.
    path : Path
        Where the rows stand, for messages.
    chunk_bytes : int
        About how large the samples of a chunk may be.
    amount : int
        How far the rows bring the reader.
    invalid_rows : {"raise", "drop"}
        What to do with a row that does not fit.
    """
    table = schema if isinstance(schema, TableSchema) else None
    width = int(np.prod(raw.X.shape[1:])) if table is None else table.n_features
    step = rows_per_chunk(chunk_bytes, 8 * width)
    for start in range(0, max(1, len(raw.places)), step):
        part = raw if len(raw.places) <= step else raw.cut(start, start + step)
        encoded = part if table is None else encoded_rows(part, table)
        rows = check_rows(encoded, plain, path, may_be_empty=True)
        if invalid_rows == "raise":
            rows.refuse_problems("Correct the row, or leave such rows out: invalid_rows='drop'.")
        if table is not None and table.test_share and len(rows):
            rows = replace(rows.only(~split_rows(rows, table)), problems=rows.problems)
        yield _chunk(rows, plain, path, amount if start == 0 else 0)


def _chunk(rows: CheckedRows, plain: Schema, path: Path, amount: int) -> Chunk:
    where = f"{path}, from {rows.unit} {rows.places[0]} on" if len(rows) else str(path)
    labels = np.array(plain.classes)[rows.labels]
    return Chunk(rows.X, labels, rows.groups, rows.weights, where, amount, rows.problems)


# Files whose columns a schema declares.

LEAST_BLOCK = 1 << 20
"""Bytes of a CSV file that are read together at least: fewer take longer."""


@dataclass(frozen=True)
class DeclaredRows(RowSource):
    """Rows of Parquet or CSV files, read as a schema says.

    Parameters
    ----------
    path : path
        A file, or a folder of files of one format.
    schema : TableSchema or poisonproof.data.Schema
        A frozen schema, which also says what is held out of training; or a plain declaration of
        columns, whose features are numbers.

    Guarantee
    ---------
    What a row becomes depends on its own cells and the schema: not on other rows, nor on the files,
    row groups or chunks in which it comes.

    Examples
    --------
    >>> from poisonproof.data import Schema
    >>> source = DeclaredRows("clicks", Schema(label="spam", classes=("yes", "no")))
    """

    path: str | os.PathLike[str]
    schema: TableSchema | Schema
    _part: Found | None = field(default=None, repr=False)
    _names: tuple[str, ...] | None = field(default=None, repr=False)

    @cached_property
    def _found(self) -> Found:
        return find_files(self.path) if self._part is None else self._part

    @property
    def files(self) -> tuple[Path, ...]:
        """The files, in the order in which they are read."""
        return self._found[0]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns that become features, in order."""
        return self._names or _feature_names(self.files[0], self._plain)

    def split(self, n_parts: int) -> Sequence[RowSource]:
        """Return sources of some of the files each, which all expect the same columns."""
        names = self.feature_names
        return [
            replace(self, _part=part, _names=names) for part in split_files(self._found, n_parts)
        ]

    @property
    def total(self) -> int:
        """Rows of Parquet files, bytes of CSV files."""
        if self.files[0].suffix.lower() != ".parquet":
            return sum(file.stat().st_size for file in self.files)
        return sum(map(_count_rows, self.files))

    def chunks(
        self, chunk_bytes: int, *, allow_missing: bool, invalid_rows: str
    ) -> Iterator[Chunk]:
        """Yield all rows that are not held out."""
        plain = replace(self._plain, allow_missing=allow_missing)
        yield from rejection(self.path, self._found[1], invalid_rows)
        expected = self._names or _feature_names(self.files[0], plain)
        for file in self.files:
            if (names := _feature_names(file, plain)) != expected:
                raise InvalidInputError(
                    f"{file} has the features {listed(names)}, but the first file has "
                    f"{listed(expected)}. Files of one training set have the same columns; where "
                    "their order differs, list the features."
                )
            for raw, amount in _parts(file, plain, chunk_bytes):
                yield from encoded_chunks(
                    raw, self.schema, plain, file, chunk_bytes, amount, invalid_rows
                )

    @property
    def _plain(self) -> Schema:
        """What the readers of files need to know."""
        if not isinstance(self.schema, TableSchema):
            return self.schema
        self.schema.require_frozen()
        if self.schema.kind != "table":
            raise InvalidInputError(
                f"DeclaredRows reads tables, but the schema is of {self.schema.kind}; folders of "
                "images are read by ImageRows, and npz files cannot be streamed."
            )
        return plain_schema(self.schema, labelled=True, grouped=True)


def _feature_names(file: Path, plain: Schema) -> tuple[str, ...]:
    """Return the features of a file, in the order in which they are read."""
    if file.suffix.lower() == ".parquet":
        with open_parquet(file) as parquet:
            header = [str(name) for name in parquet.schema_arrow.names]
    else:
        with file.open("rb") as lines:
            delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
            header = read_header(file, lines, delimiter, plain.limits.line)
    return tuple(header[index] for index in plain.locate(header, file).features)


def _count_rows(file: Path) -> int:
    with open_parquet(file) as parquet:
        return int(parquet.metadata.num_rows)


def _parts(file: Path, plain: Schema, chunk_bytes: int) -> Iterator[tuple[RawRows, int]]:
    """Yield pieces of a file, and how far each brings the reader."""
    if file.suffix.lower() == ".parquet":
        yield from parquet_parts(file, plain, chunk_bytes)
        return
    try:
        yield from csv_parts(file, plain, max(LEAST_BLOCK, 2 * chunk_bytes))
    except OSError as error:
        raise InvalidInputError(f"Cannot read {file}: {error.strerror or error}.") from error


# Folders of image files: one file is one row, its folder is its label.


@dataclass(frozen=True)
class ImageRows(RowSource):
    """Images in ``CLASS/`` below a folder, read and resized as a schema says.

    Parameters
    ----------
    path : path
        The folder.
    schema : TableSchema
        A frozen schema of kind "images".

    Guarantee
    ---------
    What an image becomes depends on its own file and the schema. A file that is no image is
    rejected alone.

    Examples
    --------
    >>> from poisonproof.data import freeze_schema
    >>> image = ImageColumn(name="image", height=8, width=8)
    >>> about = {"label": "folder", "classes": ("cat", "dog"), "kind": "images"}
    >>> source = ImageRows("photos", freeze_schema(TableSchema(columns=(image,), **about)))
    """

    path: str | os.PathLike[str]
    schema: TableSchema
    _part: tuple[int, int] | None = field(default=None, repr=False)

    @cached_property
    def _span(self) -> tuple[int, int]:
        """Which of the files are read, in the order of their names."""
        return (0, count_images(Path(self.path))) if self._part is None else self._part

    @property
    def total(self) -> int:
        """The number of files."""
        first, last = self._span
        return last - first

    def split(self, n_parts: int) -> Sequence[RowSource]:
        """Return sources of some of the files each."""
        first, last = self._span
        parts = np.array_split(np.arange(first, last), min(n_parts, max(1, last - first)))
        spans = [(int(part[0]), int(part[-1]) + 1) if len(part) else (0, 0) for part in parts]
        return [replace(self, _part=span) for span in spans]

    def chunks(
        self, chunk_bytes: int, *, allow_missing: bool, invalid_rows: str
    ) -> Iterator[Chunk]:
        """Yield all images that are not held out."""
        self.schema.require_frozen()
        column = self.schema.columns[0]
        if not isinstance(column, ImageColumn):
            raise InvalidInputError(
                f"ImageRows reads folders of images, but the schema is of kind "
                f"{self.schema.kind}. Use DeclaredRows."
            )
        plain = plain_schema(self.schema, labelled=True, grouped=False)
        plain = replace(plain, allow_missing=allow_missing)
        pixels = int(np.prod(column.shape))
        step = rows_per_chunk(chunk_bytes, max(pixels, 8 * column.n_features))
        path = Path(self.path)
        for raw in image_parts(path, column, self.schema.limits, step, *self._span):
            amount = len(raw.places) + len(raw.problems)
            yield from encoded_chunks(
                raw, self.schema, plain, path, chunk_bytes, amount, invalid_rows
            )


# Parquet files as data frames, each column in its declared type.

CELL_BYTES = 64
"""What a cell takes as a Python object; numbers take less."""


@dataclass(frozen=True)
class FrameRows(RowSource):
    """Rows of Parquet files for members that take data frames: numbers, text, dates.

    Parameters
    ----------
    path : path
        A file, or a folder of Parquet files.
    types : mapping of str to Arrow type
        The columns that are read, in this order, with their types: names of types as
        ``"double"``, ``"int64"``, ``"string"``, ``"date32"``, or types of pyarrow. Declared, never
        taken from a file: whoever can add a file would choose columns and types for all rows.
    label : str
        The column with the labels.
    groups, weights : str, optional
        Columns with the contributor and the weight of a row. All others are features.
    limits : Limits
        The largest cell; a row with a larger one is rejected alone.

    Guarantee
    ---------
    What a row becomes depends on its own cells and the declaration. A file that lacks a column, or
    has it in another type, is an error that names the file. Integers stay exact beside missing
    values.

    Examples
    --------
    >>> source = FrameRows("clicks", {"price": "double", "land": "string", "spam": "bool"}, "spam")
    """

    path: str | os.PathLike[str]
    types: Mapping[str, Any]
    label: str
    groups: str | None = None
    weights: str | None = None
    limits: Limits = field(default_factory=Limits)
    _part: Found | None = field(default=None, repr=False)

    @staticmethod
    def types_of(file: str | os.PathLike[str]) -> dict[str, Any]:
        """Return the columns of a Parquet file that one trusts, to declare them for others."""
        with open_parquet(Path(file)) as parquet:
            return {field.name: _plain(field.type) for field in parquet.schema_arrow}

    @cached_property
    def _found(self) -> Found:
        return find_files(self.path, (".parquet",)) if self._part is None else self._part

    @property
    def files(self) -> tuple[Path, ...]:
        """The files, in the order in which they are read."""
        return self._found[0]

    @cached_property
    def _schema(self) -> Any:
        """The columns that are read, in order, with their types."""
        import pyarrow as pa

        missing = [name for name in self._special if name not in self.types]
        if missing:
            raise InvalidInputError(
                f"`types` must declare every column that is read, but {missing[0]!r} is not among "
                f"{', '.join(map(repr, self.types))}."
            )
        return pa.schema([pa.field(name, _parsed(name, t)) for name, t in self.types.items()])

    @property
    def _special(self) -> list[str]:
        return [name for name in (self.label, self.groups, self.weights) if name is not None]

    def sample_files(self) -> SampleFiles:
        """Keep the features in their declared types."""
        import pyarrow as pa

        return FrameFiles(pa.schema([f for f in self._schema if f.name not in self._special]))

    def split(self, n_parts: int) -> Sequence[RowSource]:
        """Return sources of some of the files each."""
        return [replace(self, _part=part) for part in split_files(self._found, n_parts)]

    @property
    def total(self) -> int:
        """The number of rows."""
        total = 0
        for file in self.files:
            with open_parquet(file) as parquet:
                total += parquet.metadata.num_rows
        return total

    def chunks(
        self, chunk_bytes: int, *, allow_missing: bool, invalid_rows: str
    ) -> Iterator[Chunk]:
        """Yield all rows without large cells; what else does not fit is for the classifier."""
        yield from rejection(self.path, self._found[1], invalid_rows)
        for file in self.files:
            with open_parquet(file) as parquet:
                _check_types(file, parquet.schema_arrow, self._schema)
            first = 0
            for table in parquet_tables(file, self._schema.names, chunk_bytes):
                where = f"{file}, from row {first} on"
                lengths = _cell_lengths(table)
                long = lengths > self.limits.cell
                problems = [
                    RowProblem(
                        first + row,
                        f"column {table.column_names[long[:, row].argmax()]!r}: "
                        f"{too_long('it', self.limits.cell)}",
                    )
                    for row in np.flatnonzero(long.any(axis=0)).tolist()
                ]
                yield from rejection(where, problems, invalid_rows)
                first += table.num_rows
                kept = np.flatnonzero(~long.any(axis=0))
                # Cells that the file holds once take their whole size now.
                size = np.cumsum((lengths[:, kept] + CELL_BYTES).sum(axis=0)) // chunk_bytes
                for rows in np.split(kept, np.flatnonzero(np.diff(size)) + 1):
                    part = table.take(rows).select(self._schema.names).cast(self._schema)
                    yield self._chunk(part, where)

    def _chunk(self, table: Any, where: str) -> Chunk:
        frame = to_frame(table)
        y = frame[self.label]
        return Chunk(
            frame.drop(columns=self._special),
            y.to_numpy(dtype=object if y.dtype.kind not in "biuf" or y.isna().any() else None),
            None if self.groups is None else frame[self.groups],
            None if self.weights is None else _numbers(frame[self.weights]),
            where,
            table.num_rows,
        )


def _cell_lengths(table: Any) -> NDArray[np.int64]:
    """Return the bytes of every text, shape (columns, rows); other cells count nothing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = np.zeros((table.num_columns, table.num_rows), dtype=np.int64)
    for row, column in enumerate(table.columns):
        for values in column.chunks[:1]:  # a batch is one
            kind, cells = values.type, values
            if pa.types.is_dictionary(kind):
                kind, cells = kind.value_type, values.dictionary
            if _plain(kind) not in (pa.string(), pa.binary()):
                continue
            sizes = pc.binary_length(cells.cast(pa.large_binary()))
            sizes = sizes.take(values.indices) if cells is not values else sizes
            lengths[row] = pc.fill_null(sizes, 0).to_numpy(zero_copy_only=False)
    return lengths


def _numbers(column: Any) -> Any:
    """Return weights as floats, NaN where there is none."""
    try:
        return column.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"The weights in column {column.name!r} must be declared as numbers."
        ) from None


def _parsed(name: str, declared: Any) -> Any:
    """Return a declared type as a type of pyarrow whose values stand for themselves."""
    import pyarrow as pa

    try:
        kind = pa.type_for_alias(declared) if isinstance(declared, str) else declared
    except ValueError:
        kind = None
    if not isinstance(kind, pa.DataType):
        raise InvalidInputError(
            f"Column {name!r} is declared as {declared!r}, which is no Arrow type. Use for example "
            "'double', 'int64', 'string', 'bool', 'date32' or 'timestamp[us]'."
        )
    kind = _plain(kind)
    if pa.types.is_nested(kind):
        raise InvalidInputError(
            f"Column {name!r} is declared as {kind}; a cell must be one value. Leave it out."
        )
    return kind


def _plain(kind: Any) -> Any:
    """Return the type of the values, however a file lays them out."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    return kind


def _check_types(file: Path, there: Any, schema: Any) -> None:
    for wanted in schema:
        if there.names.count(wanted.name) != 1:
            raise InvalidInputError(
                f"{file} must have one column {wanted.name!r}. Its columns are "
                f"{', '.join(map(repr, there.names[:12]))}."
            )
        found = _plain(there.field(wanted.name).type)
        if found != wanted.type:
            raise InvalidInputError(
                f"Column {wanted.name!r} of {file} holds {found}, but {wanted.type} is declared. "
                "Write all files with the declared types, or declare others."
            )
