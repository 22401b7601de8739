"""From cells to features, row by row: a cell that does not fit rejects its own row."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import (
    ArrayColumn,
    CategoryColumn,
    Column,
    DateColumn,
    ImageColumn,
    NumberColumn,
    TextColumn,
    days_of,
)
from poisonproof.data.declared_columns import Schema
from poisonproof.data.image_files import read_image_rows
from poisonproof.data.readers import check_file, read_raw
from poisonproof.data.rows import CheckedRows, RawRows, check_rows
from poisonproof.data.schema import TableSchema, held_out_rows
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import Progress

Cells = NDArray[Any] | Sequence[str | None]
Reasons = dict[int, str]
"""Why rows are rejected, by row number."""


def encode_rows(
    schema: TableSchema, cells: Mapping[str, Cells], n_rows: int
) -> tuple[NDArray[Any], Reasons]:
    """Return the features of every row, and which rows do not fit.

    Parameters
    ----------
    schema : TableSchema
    cells : mapping of str to cells
        For each feature column: float64 of shape (n,) for numbers (NaN if empty), text or None for
        categories, texts and dates, numbers of shape (n, ...) for arrays and images.
    n_rows : int

    Returns
    -------
    X : ndarray of shape (n, d)
        float32 for texts alone, uint8 for pixels, else float64: the schema decides, not the data.
    reasons : dict of int to str

    Guarantee
    ---------
    Row i of X is a function of row i of the cells and the schema.

    Examples
    --------
    >>> schema = TableSchema(
    ...     columns=(
    ...         NumberColumn(name="links", missing=0.0),
    ...         CategoryColumn(name="land", categories=("DE",), missing="reject"),
    ...     ),
    ...     label="kind", classes=("ham", "spam"),
    ... )
    >>> cells = {"links": np.array([2.0, np.nan, 1.0]), "land": ["DE", "XX", None]}
    >>> encode_rows(schema, cells, 3)
    (array([[2., 0., 1., 0.],
           [0., 1., 0., 1.],
           [1., 0., 0., 1.]]), {2: "column 'land' is missing"})
    """
    reasons: Reasons = {}
    parts = [_encode(column, cells[column.name], reasons) for column in schema.columns]
    if len(parts) == 1:
        return parts[0], reasons
    X = np.empty((n_rows, sum(part.shape[1] for part in parts)), dtype=_dtype(schema.columns))
    start = 0
    for part in parts:
        X[:, start : start + part.shape[1]] = part
        start += part.shape[1]
    return X, reasons


def _dtype(columns: Sequence[Column]) -> type:
    texts = all(isinstance(column, TextColumn) for column in columns)
    return np.float32 if texts else np.float64


def _encode(column: Column, cells: Any, reasons: Reasons) -> NDArray[Any]:
    if isinstance(column, NumberColumn):
        return _numbers(column, cells, reasons)
    if isinstance(column, CategoryColumn):
        return _categories(column, cells, reasons)
    if isinstance(column, TextColumn):
        return _texts(column, cells, reasons)
    if isinstance(column, DateColumn):
        return _dates(column, cells, reasons)
    if isinstance(column, ArrayColumn):
        return _arrays(column, cells, reasons)
    if isinstance(column, ImageColumn):
        return _images(column, cells)
    raise TypeError(f"no encoder for {type(column).__name__}")


def _numbers(
    column: NumberColumn, cells: NDArray[np.float64], reasons: Reasons
) -> NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore"):
        values = (cells - column.center) / column.scale
    for row in np.flatnonzero(np.isinf(values)).tolist():
        reasons.setdefault(row, f"column {column.name!r} is infinite or too large for a float64")
    missing = np.isnan(cells)
    if column.missing == "reject":
        for row in np.flatnonzero(missing).tolist():
            reasons.setdefault(row, f"column {column.name!r} is missing")
    if isinstance(column.missing, str):
        return values[:, np.newaxis]
    values[missing] = (column.missing - column.center) / column.scale
    return np.column_stack([values, missing])


def _categories(
    column: CategoryColumn, cells: Sequence[str | None], reasons: Reasons
) -> NDArray[np.float64]:
    index = {name: position for position, name in enumerate(column.categories)}
    other = len(index)
    hot = np.zeros((len(cells), other + 1))
    for row, cell in enumerate(cells):
        position = other if cell is None else index.get(cell, other)
        hot[row, position] = 1.0
        if cell is None and column.missing == "reject":
            reasons.setdefault(row, f"column {column.name!r} is missing")
        elif cell is not None and position == other and column.unknown == "reject":
            reasons.setdefault(
                row, f"column {column.name!r}: {cell[:40]!r} is none of the declared categories"
            )
    return hot if column.has_other else hot[:, :other]


def _texts(
    column: TextColumn, cells: Sequence[str | None], reasons: Reasons
) -> NDArray[np.float32]:
    if column.missing == "reject":
        for row, cell in enumerate(cells):
            if cell is None:
                reasons.setdefault(row, f"column {column.name!r} is missing")
    texts = np.empty(len(cells), dtype=object)
    texts[:] = [cell or "" for cell in cells]
    return np.asarray(column.feature_map().transform(texts), dtype=np.float32)


def _dates(
    column: DateColumn, cells: Sequence[str | None], reasons: Reasons
) -> NDArray[np.float64]:
    days = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if cell is None:
            if column.missing == "reject":
                reasons.setdefault(row, f"column {column.name!r} is missing")
            continue
        try:
            days[row] = days_of(cell)
        except ValueError:
            reasons.setdefault(
                row, f"column {column.name!r}: {cell[:40]!r} is no date such as 2020-01-31"
            )
    missing = np.array([cell is None for cell in cells], dtype=bool)
    if column.fills:
        days[missing] = days_of(column.missing)
    values = (days - days_of(column.origin)) / column.scale
    return np.column_stack([values, missing]) if column.fills else values[:, np.newaxis]


def _arrays(column: ArrayColumn, cells: NDArray[Any], reasons: Reasons) -> NDArray[Any]:
    flat = cells.reshape(len(cells), column.n_features)
    if column.values == "uint8":
        if flat.dtype == np.uint8:
            return flat
        with np.errstate(invalid="ignore"):
            good = (flat >= 0) & (flat <= 255) & (np.trunc(flat) == flat)
        for row in np.flatnonzero(~good.all(axis=1)).tolist():
            reasons.setdefault(
                row, f"array {column.name!r} holds something else than whole numbers from 0 to 255"
            )
        return np.where(good, flat, 0).astype(np.uint8)
    values = flat.astype(np.float64)
    bad = np.isinf(values) if column.missing == "nan" else ~np.isfinite(values)
    for row in np.flatnonzero(bad.any(axis=1)).tolist():
        reasons.setdefault(row, f"array {column.name!r} holds NaN or infinity")
    return values


def _images(column: ImageColumn, cells: NDArray[np.uint8]) -> NDArray[Any]:
    if column.encoder == "pixels":
        return cells.reshape(len(cells), column.n_features)
    last = cells if column.gray else np.moveaxis(cells, 1, -1)
    return np.asarray(column.feature_map().transform(last))


# From a source and its frozen schema to checked, encoded rows.

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
