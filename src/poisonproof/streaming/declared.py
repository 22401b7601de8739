"""Files whose columns a schema declares."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from poisonproof.datasets import Schema
from poisonproof.datasets.csv_rows import csv_parts, read_header
from poisonproof.datasets.parquet_rows import open_parquet, parquet_parts
from poisonproof.datasets.rows import RawRows
from poisonproof.datasets.schema import listed
from poisonproof.datasets.tables import plain_schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.schema import TableSchema
from poisonproof.streaming.chunks import Chunk, RowSource, rejection
from poisonproof.streaming.encoding import encoded_chunks
from poisonproof.streaming.files import Found, find_files, split_files

__all__ = ["DeclaredRows"]

LEAST_BLOCK = 1 << 20
"""Bytes of a CSV file that are read together at least: fewer take longer."""


@dataclass(frozen=True)
class DeclaredRows(RowSource):
    """Rows of Parquet or CSV files, read as a schema says.

    Parameters
    ----------
    path : path
        A file, or a folder of files of one format.
    schema : TableSchema or poisonproof.datasets.Schema
        A frozen schema, which also says what is held out of training; or a plain declaration of
        columns, whose features are numbers.

    Guarantee
    ---------
    What a row becomes depends on its own cells and the schema: not on other rows, nor on the files,
    row groups or chunks in which it comes.

    Examples
    --------
    >>> from poisonproof.datasets import Schema
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
