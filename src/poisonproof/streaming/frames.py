"""Parquet files as data frames, each column in its declared type."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets import RowProblem
from poisonproof.datasets.parquet_rows import open_parquet, parquet_tables
from poisonproof.datasets.rows import too_long
from poisonproof.exceptions import InvalidInputError
from poisonproof.schema import Limits
from poisonproof.streaming.arrow_frames import to_frame
from poisonproof.streaming.chunks import Chunk, RowSource, rejection
from poisonproof.streaming.files import Found, find_files, split_files
from poisonproof.streaming.samples import FrameFiles, SampleFiles

__all__ = ["FrameRows"]

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
