"""From cells to features, row by row: a cell that does not fit rejects its own row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from poisonproof.data.schema import Schema

Cells = NDArray[Any] | Sequence[str | None]
Reasons = dict[int, str]
"""Why rows are rejected, by row number."""


def encode_rows(
    schema: Schema, cells: Mapping[str, Cells], n_rows: int
) -> tuple[NDArray[Any], Reasons]:
    """Return the features of every row, and which rows do not fit.

    Parameters
    ----------
    schema : Schema
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
    >>> schema = Schema(
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
                row, f"array {column.name!r} holds something else than integers from 0 to 255"
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
