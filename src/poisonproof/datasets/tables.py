"""From a source and its frozen schema to checked, encoded rows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.image_rows import read_image_rows
from poisonproof.datasets.reading import check_file, read_raw
from poisonproof.datasets.rows import CheckedRows, RawRows, check_rows
from poisonproof.datasets.schema import Schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress
from poisonproof.schema import (
    ArrayColumn,
    ImageColumn,
    NumberColumn,
    TableSchema,
    held_out_rows,
)
from poisonproof.schema.encoding import encode_rows

__all__ = ["encoded_rows", "plain_schema", "read_table", "read_written", "split_rows"]

SUFFIXES = {"table": (".csv", ".tsv", ".parquet"), "arrays": (".npz", ".npy")}


def read_table(
    path: str | os.PathLike[str],
    schema: TableSchema,
    *,
    labelled: bool = True,
    grouped: bool = True,
    allow_missing: bool = True,
    progress: Progress | None = None,
) -> CheckedRows:
    """Read a file or folder as a frozen schema says.

    Parameters
    ----------
    path : path
        A .csv, .tsv, .parquet or .npz file, or a folder of images, as the schema's kind says.
    schema : TableSchema
        Frozen.
    labelled : bool
        Whether labels are read. Otherwise that column may be there or not.
    grouped : bool
        Whether groups and weights, where the schema has any, are read; likewise.
    allow_missing : bool
        Whether the members take missing values.
    progress : Progress, optional
        Told of every image of a folder.

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
    What a row becomes depends on its own cells and the schema. No other row has a say in its type,
    its values or whether it is kept.
    """
    schema.require_frozen()
    path = Path(path)
    plain = replace(
        plain_schema(schema, labelled=labelled, grouped=grouped), allow_missing=allow_missing
    )
    raw = _read(path, schema, plain, labelled, progress)
    return _checked(raw, schema, plain, path)


def read_written(
    path: str | os.PathLike[str],
    schema: TableSchema,
    *,
    allow_missing: bool = True,
    progress: Progress | None = None,
) -> tuple[CheckedRows, NDArray[Any]]:
    """Read labelled rows, and what stands in the file for each of those that fit.

    Returns
    -------
    rows : CheckedRows
        As `read_table` returns them.
    written : ndarray of shape (n, c) or (n, d)
        For tables objects, one cell per feature column: a float (NaN if empty) for numbers, else a
        text or None. For arrays and images their numbers in a row.
    """
    schema.require_frozen()
    path = Path(path)
    plain = replace(plain_schema(schema, labelled=True, grouped=True), allow_missing=allow_missing)
    raw = _read(path, schema, plain, True, progress)
    rows = _checked(raw, schema, plain, path)
    if schema.kind == "table":
        written = np.empty((len(raw.places), len(schema.columns)), dtype=object)
        for place, cells in enumerate(_cells(raw, schema).values()):
            written[:, place] = cells
    else:
        written = raw.X.reshape(len(raw.X), -1)
    return rows, written[np.isin(np.asarray(raw.places), rows.places)]


def _checked(raw: RawRows, schema: TableSchema, plain: Schema, path: Path) -> CheckedRows:
    return replace(check_rows(encoded_rows(raw, schema), plain, path), names=None)


def encoded_rows(raw: RawRows, schema: TableSchema) -> RawRows:
    """Return rows with the features that the schema makes of their cells."""
    cells = _cells(raw, schema)
    X, reasons = encode_rows(schema, cells, len(raw.places))
    names = tuple(column.name for column in schema.columns for _ in range(column.n_features))
    return replace(raw, X=X, names=names, reasons={**reasons, **raw.reasons})


def split_rows(
    rows: CheckedRows, schema: TableSchema, share: float | None = None
) -> NDArray[np.bool_]:
    """Return which rows are held out of training, shape (n,): by a hash of row or contributor."""
    held_out = schema.test_share if share is None else share
    return held_out_rows(rows.X, held_out, rows.groups if schema.groups is not None else None)


def plain_schema(schema: TableSchema, *, labelled: bool, grouped: bool) -> Schema:
    """Return what the readers of files need to know."""
    optional = list(schema.ignore)
    if not labelled:
        optional.append(schema.label)
    if not grouped:
        optional += [name for name in (schema.groups, schema.weights) if name is not None]
    numbers = [column.name for column in schema.columns if isinstance(column, NumberColumn)]
    texts = [column.name for column in schema.columns if not isinstance(column, NumberColumn)]
    arrays = schema.kind == "arrays"
    return Schema(
        classes=schema.classes,
        label=schema.label if labelled else None,
        groups=schema.groups if grouped else None,
        weights=schema.weights if grouped else None,
        features=None if arrays else numbers,
        optional=optional,
        others="raise",
        texts=() if arrays else texts,
        text_numbers=True,
        samples=schema.columns[0].name,
        limits=schema.limits,
    )


def _read(
    path: Path, schema: TableSchema, plain: Schema, labelled: bool, progress: Progress | None
) -> RawRows:
    first = schema.columns[0]
    if isinstance(first, ImageColumn):
        return read_image_rows(path, first, schema.limits, labelled=labelled, progress=progress)
    check_file(path, dict.fromkeys(SUFFIXES[schema.kind]))
    raw = read_raw(path, plain)
    if isinstance(first, ArrayColumn) and raw.X.shape[1:] != first.shape:
        raise InvalidInputError(
            f"Array {first.name!r} of {path} has samples of shape {raw.X.shape[1:]}, but the "
            f"schema declares {first.shape}."
        )
    return raw


def _cells(raw: RawRows, schema: TableSchema) -> dict[str, Any]:
    """Return the cells of every feature column by name."""
    if schema.kind != "table":
        return {schema.columns[0].name: raw.X}
    texts = iter(raw.texts)
    numbers = iter(range(raw.X.shape[1]))
    return {
        column.name: raw.X[:, next(numbers)] if isinstance(column, NumberColumn) else next(texts)
        for column in schema.columns
    }
