"""Parquet files as data frames, each column in the type that the file declares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.streaming.chunks import Chunk, RowSource, open_file, rows_per_chunk
from poisonproof.streaming.files import find_files

__all__ = ["FrameRows", "to_frame"]

CELL_BYTES = 64
"""What a cell takes as a Python object; numbers take less."""


@dataclass(frozen=True)
class FrameRows(RowSource):
    """Rows of Parquet files for members that take data frames: numbers, text, dates.

    Parameters
    ----------
    path : path
        A file, or a folder of Parquet files with the same columns and types.
    label : str
        The column with the labels.
    groups, weights : str, optional
        Columns with the contributor and the weight of a row.
    columns : sequence of str, optional
        The features. By default all other columns, in the order of the first file.

    Guarantee
    ---------
    A cell keeps its value whatever else is in its column: integers stay exact beside missing
    values.

    Assumes
    -------
    The types of the columns are those that whoever wrote the files declared. If the attacker can
    choose them, use `DeclaredRows` with a frozen schema.

    Examples
    --------
    >>> source = FrameRows("clicks", label="spam")
    """

    path: str | os.PathLike[str]
    label: str
    groups: str | None = None
    weights: str | None = None
    columns: tuple[str, ...] | None = None

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files, in the order in which they are read."""
        return find_files(self.path, (".parquet",))

    @cached_property
    def _schema(self) -> Any:
        """The columns that are read, in order, with their types: those of the first file."""
        import pyarrow as pa

        with open_file(self.files[0]) as parquet:
            there = parquet.schema_arrow
        special = [n for n in (self.label, self.groups, self.weights) if n is not None]
        features = self.columns or [name for name in there.names if name not in special]
        missing = [name for name in (*features, *special) if name not in there.names]
        if missing:
            raise InvalidInputError(
                f"{self.files[0]} has no column {missing[0]!r}. Its columns are "
                f"{', '.join(map(repr, there.names[:12]))}."
            )
        return pa.schema([_plain(there.field(name)) for name in (*features, *special)])

    @property
    def total(self) -> int:
        """The number of rows."""
        total = 0
        for file in self.files:
            with open_file(file) as parquet:
                total += parquet.metadata.num_rows
        return total

    def chunks(
        self, chunk_bytes: int, *, allow_missing: bool, invalid_rows: str
    ) -> Iterator[Chunk]:
        """Yield all rows; which of them do not fit is for the classifier to say."""
        import pyarrow as pa

        schema = self._schema
        step = rows_per_chunk(chunk_bytes, CELL_BYTES * len(schema.names))
        for file in self.files:
            with open_file(file) as parquet:
                _check_types(file, parquet.schema_arrow, schema, self.files[0])
                first = 0
                for batch in parquet.iter_batches(batch_size=step, columns=schema.names):
                    table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                    yield self._chunk(table, f"{file}, from row {first} on")
                    first += batch.num_rows

    def _chunk(self, table: Any, where: str) -> Chunk:
        frame = to_frame(table)
        special = [n for n in (self.label, self.groups, self.weights) if n is not None]
        y = frame[self.label]
        return Chunk(
            frame.drop(columns=special),
            y.to_numpy(dtype=object if y.dtype.kind not in "biuf" or y.isna().any() else None),
            None if self.groups is None else frame[self.groups],
            None if self.weights is None else frame[self.weights].to_numpy(dtype=float),
            where,
            table.num_rows,
        )


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


def _plain(field: Any) -> Any:
    """Return a field whose values stand for themselves: no dictionary, which belongs to a chunk."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_nested(kind):
        raise InvalidInputError(
            f"Column {field.name!r} holds {kind}; a cell must be one value. Leave it out of "
            "`columns`."
        )
    return pa.field(field.name, kind)


def _check_types(file: Path, there: Any, schema: Any, first: Path) -> None:
    for field in schema:
        if field.name not in there.names:
            raise InvalidInputError(f"{file} has no column {field.name!r}, but {first} has.")
        found = _plain(there.field(field.name)).type
        if found != field.type:
            raise InvalidInputError(
                f"Column {field.name!r} of {file} holds {found}, but in {first} it holds "
                f"{field.type}. Write all files with the same types, or declare them in a schema."
            )
