"""Rows of a file or folder by its schema: all at once or piece by piece."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import ImageColumn, TextColumn
from poisonproof.data.csv_files import csv_parts, format_of, open_lines, read_header
from poisonproof.data.image_files import (
    find_images,
    hidden_by_class,
    image_parts,
    printable,
    walk,
)
from poisonproof.data.npz_files import read_npz_rows
from poisonproof.data.parquet_files import column_names, count_rows, parquet_parts
from poisonproof.data.rows import CheckedRows, Missing, RawRows, RowProblem, check_rows
from poisonproof.data.schema import Limits, Schema, held_out_rows, listed
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.partition.contributors import GroupHash
from poisonproof.progress import Progress

TABLES = (".csv", ".tsv", ".parquet")
ARRAYS = (".npz", ".npy")

BLOCK_BYTES = 1 << 24
"""Bytes of a table that are parsed together, in memory."""

LEAST_BLOCK = 1 << 20
"""Bytes of a CSV file that are read together at least: fewer take longer."""


def read_table(
    path: Any,
    schema: Schema,
    *,
    labelled: bool = True,
    grouped: bool = True,
    allow_missing: Missing = True,
    keep_cells: bool = False,
    progress: Progress | None = None,
) -> CheckedRows:
    """Read a file, a folder or a frame as a schema says.

    Parameters
    ----------
    path : path, or rows in memory
        A .csv, .tsv, .parquet, .npz or .npy file, or a folder of images, as the schema's kind says;
        a .csv or .tsv file may be compressed: .csv.gz, .csv.zst. Or a frame of pandas or Polars, an
        Arrow table, or a list of dicts.
    schema : Schema
        Frozen, if it lists columns.
    labelled : bool
        Whether labels are read. Otherwise that column may be there or not.
    grouped : bool
        Whether groups and weights, where the schema has any, are read; likewise.
    allow_missing : bool or "cells"
        Whether the members take missing values. With ``"cells"`` a cell that does not fit is
        missing, too, and its row is kept.
    keep_cells : bool
        Whether the result has the cells of the file, beside the features.
    progress : Progress, optional
        Advances with every image of a folder.

    Returns
    -------
    CheckedRows
        Encoded samples of the rows that fit, and why the others were rejected.

    Raises
    ------
    GuaranteeError
        If the schema is a proposal that nobody has frozen.
    InvalidInputError
        If the source cannot be read, or a declared column is not there.

    Guarantee
    ---------
    What a row becomes depends on its own cells, the column names and the schema. No other row has a
    say in its type, its values or whether it is kept.
    """
    schema.require_frozen()
    schema = schema.reading(labelled=labelled, grouped=grouped)
    options: Any = {"allow_missing": allow_missing, "keep_cells": keep_cells}
    if not isinstance(path, (str, os.PathLike)):
        from poisonproof.data.frames import NAME, frame_rows, named_columns

        schema = named_columns(schema, path)
        return check_rows(frame_rows(path, schema), schema, NAME, **options)
    path = Path(path)
    if schema.kind == "images":
        files, left_out = find_images(path)
        parts = image_parts(path, files, left_out, schema, progress=progress)
    else:
        allowed = ARRAYS if schema.kind == "arrays" else TABLES
        check_file(path, allowed if schema.columns else (*TABLES, *ARRAYS))
        parts = _file_parts(path, schema, BLOCK_BYTES)
    rows = CheckedRows.joined([check_rows(raw, schema, path, **options) for raw, _ in parts])
    if not len(rows) and rows.problems:
        told = f"{path} has no usable row. {rows.describe_problems()}"
        if "is not a number" in told:
            told += " Give columns of text a type in a schema (poisonproof schema) or ignore them."
        raise InvalidRowsError(told)
    if not len(rows):
        raise InvalidInputError(f"{path} holds no rows.")
    return rows


def read_texts(path: Path, names: Sequence[str], limits: Limits) -> dict[int, list[str]]:
    """Return the cells of some columns of a table by line or row; a broken line has none."""
    check_file(path, TABLES)
    columns = [TextColumn(name=name, size=1) for name in names]
    found: dict[int, list[str]] = {}
    schema = Schema(columns=columns, others="ignore", limits=limits)
    for raw, _ in _file_parts(path, schema, BLOCK_BYTES):
        rows = zip(*raw.texts, strict=True)
        for place, cells in zip(np.asarray(raw.places).tolist(), rows, strict=True):
            found[place] = [cell or "" for cell in cells]
    return found


def split_rows(rows: CheckedRows, schema: Schema) -> NDArray[np.bool_]:
    """Return which rows a schema holds out of training.

    Parameters
    ----------
    rows : CheckedRows
        n rows, read by the schema.
    schema : Schema
        Declares the share, and whether contributors are held out as a whole. Sources are not:
        they are few, and a source that is held out would leave its member without rows.

    Returns
    -------
    ndarray of bool, shape (n,)
        As `held_out_rows` decides.
    """
    groups = None if schema.unit in ("row", "source") else rows.groups
    return held_out_rows(rows.X, schema.test_share, groups)


def refuse_labels(rows: CheckedRows) -> None:
    """Raise `GuaranteeError` if a row was left out because of its label, or may have been."""
    labels = [problem for problem in rows.problems if problem.label]
    if rows.unit == "file":
        reason = "lies in a class whose name begins with a dot, which hides the file"
        labels += [RowProblem(file, reason) for file in hidden_by_class(rows.path)]
    if labels:
        raise GuaranteeError(
            f"{rows.path}, {rows.unit} {labels[0].place}: {labels[0].reason}. Where only "
            "labels are attacked such a row cannot be left out: one flipped label would move "
            "samples to other members. Correct it, or use DPAClassifier (--method dpa)."
        )


def check_file(path: Path, suffixes: Sequence[str]) -> None:
    """Raise unless a path is an existing, non-empty file whose name ends in one of the suffixes."""
    if path.suffix.lower() not in suffixes and format_of(path) not in suffixes:
        packed = " A .csv or .tsv file may be compressed: .csv.gz, .csv.zst."
        raise InvalidInputError(
            f"{path} must end in one of {', '.join(suffixes)}, which tells its format."
            f"{packed if '.csv' in suffixes else ''}"
        )
    if not path.exists():
        raise InvalidInputError(f"There is no file {path}.")
    if not path.is_file():
        raise InvalidInputError(f"{path} is not a file.")
    if path.stat().st_size == 0:
        raise InvalidInputError(f"{path} is empty.")


def read_entities(path: Path) -> GroupHash:
    """Return the partitioner by entity that a CSV file of accounts and their owners declares."""
    check_file(path, [".csv"])
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return GroupHash(entities=[line for line in csv.reader(file, strict=True) if line][1:])
    except (OSError, ValueError, csv.Error) as error:
        columns = "needs a header and two columns, account and entity"
        raise InvalidInputError(f"{path} {columns}: {error}") from error


def header_of(path: Path, schema: Schema) -> list[str]:
    """Return the names of the columns of a table."""
    if format_of(path) == ".parquet":
        return column_names(path)
    with open_lines(path) as (file, _):
        return read_header(path, file, schema)


def _file_parts(path: Path, schema: Schema, block_bytes: int) -> Iterator[tuple[RawRows, int]]:
    """Yield pieces of a file, and how far each brings the reader: rows, or bytes of a CSV file."""
    suffix = path.suffix.lower()  # of a compressed file, which is CSV, that of the compression
    try:
        if suffix == ".parquet":
            yield from parquet_parts(path, schema, block_bytes)
        elif suffix in ARRAYS:
            rows = read_npz_rows(path, schema)
            yield rows, len(rows.places)
        else:
            yield from csv_parts(path, schema, block_bytes)
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror or error}.") from error


# Piece by piece, for training on more rows than memory holds.


@dataclass(frozen=True)
class DataSource:
    """Labelled rows that are read piece by piece, any number of times.

    Parameters
    ----------
    path : path
        A Parquet or CSV file, a folder of files of one of these formats, or a folder of images.
    schema : Schema
        Frozen, if it lists columns; it also says what is held out of training.

    Guarantee
    ---------
    What a row becomes depends on its own cells or image file and the schema: not on other rows, nor
    on the files, row groups or pieces in which it comes.

    Examples
    --------
    >>> from poisonproof.data import Schema
    >>> source = DataSource("clicks", Schema(label="spam", classes=("yes", "no")))
    """

    path: str | os.PathLike[str]
    schema: Schema
    _part: tuple[Sequence[Any], Sequence[RowProblem]] | None = field(default=None, repr=False)
    _names: tuple[str, ...] | None = field(default=None, repr=False)

    @cached_property
    def _found(self) -> tuple[Sequence[Any], Sequence[RowProblem]]:
        """The files that are read, by path or, of images, by name, and what else there is."""
        if self._part is not None:
            return self._part
        self.schema.require_frozen()
        if self.schema.kind == "arrays":
            raise InvalidInputError("npz files cannot be streamed.")
        images = self.schema.kind == "images"
        return find_images(Path(self.path)) if images else find_files(Path(self.path))

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The columns of numbers that become features, in the order in which they are read."""
        return self._names or self._names_in(self._found[0][0])

    def _names_in(self, file: Path) -> tuple[str, ...]:
        return self.schema.locate(header_of(file, self.schema), file).feature_names

    def split(self, n_parts: int) -> list[DataSource]:
        """Return at most `n_parts` sources that hold these rows together, for worker processes."""
        files, left_out = self._found
        names = None if self.schema.kind == "images" else self.feature_names
        parts = np.array_split(np.arange(len(files)), max(1, min(n_parts, len(files))))
        some = [[files[index] for index in part] for part in parts]
        return [
            replace(self, _part=(part, [] if number else left_out), _names=names)
            for number, part in enumerate(some)
        ]

    @property
    def total(self) -> int:
        """The sum of the amounts of all pieces: rows of Parquet, bytes of CSV, or image files."""
        files = self._found[0]
        if self.schema.kind == "images":
            return len(files)
        if format_of(files[0]) == ".parquet":
            return sum(map(count_rows, files))
        return sum(file.stat().st_size for file in files)

    def pieces(
        self, piece_bytes: int, *, allow_missing: bool = True, invalid_rows: str = "drop"
    ) -> Iterator[tuple[CheckedRows, int]]:
        """Yield all rows that are not held out once, and how far each piece brings the reader.

        Parameters
        ----------
        piece_bytes : int
            About how much memory the samples of a piece may take.
        allow_missing : bool
            Whether members take missing values.
        invalid_rows : {"raise", "drop"}
            What to do with a row that does not fit.
        """
        for path, raw, amount in self._raw(piece_bytes):
            n_features = self.schema.n_features or raw.X.shape[1]
            step = _rows_within(piece_bytes, 8 * n_features)
            for start in range(0, max(1, len(raw.places)), step):
                part = raw if len(raw.places) <= step else raw.cut(start, start + step)
                rows = check_rows(part, self.schema, path, allow_missing=allow_missing)
                if invalid_rows == "raise":
                    rows.refuse_problems(
                        "Correct the row, or leave such rows out: invalid_rows='drop'."
                    )
                if self.schema.test_share and len(rows):
                    rows = rows.only(~split_rows(rows, self.schema))
                yield rows, amount if start == 0 else 0

    def _raw(self, piece_bytes: int) -> Iterator[tuple[Path, RawRows, int]]:
        """Yield what the readers find, file by file."""
        path, schema, (files, left_out) = Path(self.path), self.schema, self._found
        if isinstance(column := next(iter(schema.columns), None), ImageColumn):
            pixels = int(np.prod(column.shape))
            step = _rows_within(piece_bytes, max(pixels, 8 * column.n_features))
            for raw, amount in image_parts(path, files, left_out, schema, step):
                yield path, raw, amount
            return
        for file in files:
            if (names := self._names_in(file)) != self.feature_names:
                raise InvalidInputError(
                    f"{file} has the features {listed(names)}, but the first file has "
                    f"{listed(self.feature_names)}. Files of one training set have the same "
                    "columns; where their order differs, list the features."
                )
            parquet = format_of(file) == ".parquet"
            size = piece_bytes if parquet else max(LEAST_BLOCK, 2 * piece_bytes)
            for raw, amount in _file_parts(file, schema, size):
                if left_out:
                    yield path, replace(raw.cut(0, 0), unit="file", problems=[*left_out]), 0
                    left_out = []
                yield file, raw, amount


def _rows_within(n_bytes: int, row_bytes: int) -> int:
    return max(1, n_bytes // max(1, row_bytes))


def find_files(path: Path) -> tuple[list[Path], list[RowProblem]]:
    """Return the file `path`, or all data files of one format in the folder `path`.

    Names that begin with a dot or an underscore are not data, as in Spark and pyarrow. Every other
    entry that is not read, such as a link, comes with its reason.
    """
    found, left_out = [], []
    if path.is_dir():
        for name, reason in sorted(walk(path)):
            if any(part.startswith((".", "_")) for part in name.split("/")):
                continue
            if reason or format_of(Path(name)) not in TABLES:
                other = f"does not end in {' or '.join(TABLES)}"
                left_out.append(RowProblem(printable(name), reason or other))
            else:
                found.append(path / name)
    elif not path.is_file():
        raise InvalidInputError(f"There is no file or folder {path}.")
    elif format_of(path) in TABLES:
        found = [path]
    if not found:
        raise InvalidInputError(
            f"{path} holds no file that can be streamed; its name must end in {', '.join(TABLES)}."
        )
    formats = sorted({format_of(file) for file in found})
    if len(formats) > 1:
        raise InvalidInputError(
            f"{path} holds files of several formats: {', '.join(formats)}. Give a folder of one."
        )
    return found, left_out
