"""Rows in memory: frames, lists of dicts and rows of cells, each cell read by itself.

A frame becomes what the file with the same cells becomes: `RawRows`, which `check_rows` encodes.
The type of a column in a frame is never asked what its cells are, because one row may have decided
it; only `typed_schema` reads types, and what it returns is an assumption that certificates carry.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
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
    Reasons,
    TextColumn,
    cell_number,
    number_columns,
)
from poisonproof.data.npz_files import array_texts
from poisonproof.data.parquet_files import arrow_texts, has_texts, is_text, table_rows
from poisonproof.data.rows import CheckedRows, RawRows
from poisonproof.data.schema import Limits, Schema, freeze_schema, listed
from poisonproof.data.value_text import label_text, texts_of, too_long
from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.cells import NoCanonicalFormError, canonical_cell, nearest_float, shown
from poisonproof.partition.containers import (
    enum_categories,
    frame_columns,
    is_pandas,
    is_polars,
    is_sparse,
    row_array,
)

NAME = Path("X")
"""What errors call rows in memory."""

HASHED = 256
"""Features of a column of texts whose type is all that is known of it."""


def is_arrow(X: Any) -> bool:
    """Return whether `X` is a table of Arrow."""
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(X, arrow.Table)


def is_frame(X: Any) -> bool:
    """Return whether `X` is a frame of pandas or Polars, or a table of Arrow."""
    return is_arrow(X) or ((is_pandas(X) or is_polars(X)) and hasattr(X, "columns"))


def named_columns(schema: Schema, X: Any) -> Schema:
    """Return the schema with columns: without any, all others of a frame are numbers."""
    if schema.columns or schema.kind != "table":
        return schema
    if isinstance(X, CheckedRows) and X.names is not None:
        return freeze_schema(replace(schema, columns=number_columns(X.names)))
    if not is_frame(X):
        raise InvalidInputError(
            f"The schema lists no columns, and a {type(X).__name__} has no names for them. Give a "
            "frame, or list the columns: columns=number_columns([...])."
        )
    names = schema.locate(_header(X), NAME).feature_names
    return freeze_schema(replace(schema, columns=number_columns(names)))


def frame_rows(X: Any, schema: Schema) -> RawRows:
    """Return rows in memory as a reader of files would.

    Parameters
    ----------
    X : frame, Arrow table, list of dicts or of rows, array or series
        Frames and dicts have their cells by name. Rows of cells hold the features alone, in the
        order of the schema; without a list around it, a cell is a row of one.
    schema : Schema
        With columns.

    Returns
    -------
    RawRows
        Whose places are row numbers, from 0.
    """
    if schema.kind != "table":
        return _sample_rows(X, schema)
    if is_polars(X) and is_frame(X):
        X = X.to_arrow()
    if is_arrow(X):
        return table_rows(X, schema.locate(_header(X), NAME), NAME, schema, 0)
    reasons = Reasons()
    label_reasons: dict[int, str] = {}
    if is_frame(X):
        layout = schema.locate(_header(X), NAME)
        cells = dict(zip(layout.header, frame_columns(X), strict=True))
    else:
        cells = _columns_of(X, schema, reasons)

    def _texts(
        name: str, problems: dict[int, str] | None = None, point: str = "."
    ) -> list[str | None]:
        texts, without = cell_texts(cells[name], schema.limits.cell)
        for row, reason in without.items():
            if problems is None:
                reasons.cells.setdefault((row, name), f"column {name!r}: {reason}")
            else:
                problems.setdefault(row, f"column {name!r}: {reason}")
        if point == ".":
            return texts
        return [  # only a text is written with the point that the column declares
            text if text is None or isinstance(cell, (str, bytes)) else text.replace(".", point)
            for text, cell in zip(texts, cells[name], strict=True)
        ]

    def _numbers(name: str) -> NDArray[np.float64]:
        values, without = _cell_numbers(cells[name], name, schema)
        for row, reason in without.items():
            if name == schema.weights:
                reasons.setdefault(row, reason)
            else:
                reasons.cells.setdefault((row, name), reason)
        return values

    numbers = [column.name for column in schema.columns if column.plain]
    n_rows = len(next(iter(cells.values())))
    return RawRows(
        X=np.array([_numbers(name) for name in numbers]).T.reshape(n_rows, len(numbers)),
        labels=None if schema.label is None else _texts(schema.label, label_reasons),
        groups=None if schema.groups is None else _texts(schema.groups, reasons),
        weights=None if schema.weights is None else _numbers(schema.weights),
        names=tuple(numbers),
        places=range(n_rows),
        unit="row",
        texts=tuple(
            _texts(column.name, point=column.point if isinstance(column, NumberColumn) else ".")
            for column in schema.columns
            if not column.plain
        ),
        reasons=reasons,
        label_reasons=label_reasons,
    )


def _header(X: Any) -> list[str]:
    return [str(name) for name in (X.column_names if is_arrow(X) else X.columns)]


def _sample_rows(X: Any, schema: Schema) -> RawRows:
    """Return arrays and decoded images, whose labels come apart from them."""
    column = schema.columns[0]
    assert isinstance(column, (ArrayColumn, ImageColumn))
    samples = np.asarray(X)
    kinds = "u" if isinstance(column, ImageColumn) else "biuf"
    if samples.dtype.kind not in kinds or samples.shape[1:] != column.shape or schema.label:
        what = "uint8 pixels" if kinds == "u" else "numbers"
        raise InvalidInputError(
            f"The schema is one of {schema.kind}: in memory, give samples as an array of {what} of "
            f"shape (n, {', '.join(map(str, column.shape))}), and labels as y. Got "
            f"{samples.dtype} of shape {samples.shape}."
        )
    return RawRows(samples, None, None, None, None, range(len(samples)), "row")


def _columns_of(X: Any, schema: Schema, reasons: Reasons) -> dict[str, NDArray[Any]]:
    """Return the cells of dicts and of rows by column; a row without the right ones is named."""
    features = [column.name for column in schema.columns]
    roles = [name for name in (schema.label, schema.groups, schema.weights) if name is not None]
    if is_sparse(X) or not hasattr(X, "__len__") or isinstance(X, (str, bytes, Mapping)):
        raise InvalidInputError(
            f"X is a {type(X).__name__}. A schema reads frames of pandas and Polars, tables of "
            "Arrow, lists of dicts, and rows of cells in the order of its columns."
        )
    if isinstance(X, np.ndarray) and X.ndim == 2 and not roles and X.shape[1] == len(features):
        return dict(zip(features, X.T, strict=True))
    cells = {name: np.full(len(X), None, dtype=object) for name in (*features, *roles)}
    known = {*cells, *schema.ignore}
    for row, sample in enumerate(X):
        if isinstance(sample, Mapping):
            unknown = [str(name) for name in sample if name not in known]
            if unknown and schema.others == "raise":
                reasons[row] = f"it has {listed(unknown)}, which the schema does not name"
            for name, column in cells.items():
                column[row] = sample.get(name)
            continue
        try:
            values = row_array(sample, row)
        except InvalidRowsError as error:
            reasons[row] = str(error)
            continue
        if len(values) != len(features):
            reasons[row] = f"it has {len(values)} cells where the schema has {len(features)}"
            continue
        for name, cell in zip(features, values, strict=True):
            cells[name][row] = cell
    return cells


def cell_texts(
    cells: NDArray[Any], most: int = Limits().cell
) -> tuple[list[str | None], dict[int, str]]:
    """Return the text of every cell, as `label_text` writes it, and why some have none."""
    if cells.dtype.kind in "biuf" and cells.ndim == 1:
        return array_texts(cells, "X", NAME, most)
    return texts_of(cells, most)


def _cell_numbers(
    cells: NDArray[Any], name: str, schema: Schema
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Return cells as float64, NaN for those that are missing or none, and why they are none."""
    reasons: dict[int, str] = {}
    if cells.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            return cells.astype(np.float64), reasons
    numbers = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        try:
            numbers[row] = _number(cell, schema)
        except ValueError as error:
            reasons[row] = f"column {name!r}: {error}"
    return numbers, reasons


def _number(cell: Any, schema: Schema) -> float:
    if isinstance(cell, Decimal):
        return float(cell)
    try:
        plain = canonical_cell(cell)
    except NoCanonicalFormError as error:
        raise ValueError(str(error)) from None
    if isinstance(plain, str):
        if len(plain) > schema.limits.cell:
            raise ValueError(too_long("it", schema.limits.cell))
        return math.nan if plain.strip() in schema.missing_texts else cell_number(plain)
    if isinstance(plain, (int, float)):
        return nearest_float(plain)
    raise ValueError(f"{shown(cell)[:40]} is not a number")


def frame_texts(X: Any, most: int) -> dict[str, list[str | None]]:
    """Return rows from all over a frame as texts by column, for somebody to look at."""
    if not is_frame(X):
        raise InvalidInputError(
            f"A schema is proposed for a frame of pandas or Polars, an Arrow table, or a file "
            f"(poisonproof schema FILE). Got {type(X).__name__}."
        )
    rows = np.unique(np.linspace(0, max(0, len(X) - 1), min(most, len(X))).astype(np.intp))
    if is_polars(X):
        X = X[rows].to_arrow()
    elif is_arrow(X):
        X = X.take(rows)
    else:
        columns = frame_columns(X.iloc[rows])
        return {name: cell_texts(c)[0] for name, c in zip(_header(X), columns, strict=True)}
    return {
        name: arrow_texts(X.column(name))[0] if has_texts(X.column(name).type) else [None] * len(X)
        for name in _header(X)
    }


# The schema that the types of a frame amount to.


def typed_schema(X: Any) -> Schema | None:
    """Return how to read a frame by the types of its columns; None for numbers alone.

    Numbers and truth values stay as they are, declared categories are one feature each, dates
    count days, and texts are hashed. The type "object" of pandas says nothing, so cells of such a
    column are numbers or missing, or the row does not fit: that a row holds a text cannot turn a
    column of numbers into another one.

    No cell is looked at. The result is not frozen: nobody has declared it.
    """
    if is_pandas(X):
        columns = [_pandas_column(str(name), X.dtypes.iloc[i]) for i, name in enumerate(X.columns)]
    else:
        fields = X.head(0).to_arrow().schema if is_polars(X) else X.schema
        lists = enum_categories(X)
        columns = [_arrow_column(field.name, field.type, lists.get(field.name)) for field in fields]
    if all(isinstance(column, NumberColumn) for column in columns) and not is_arrow(X):
        return None
    return Schema(columns=columns, invalid_rows="raise")


def _pandas_column(name: str, kind: Any) -> Column:
    import pandas as pd

    types = pd.api.types
    if isinstance(kind, pd.CategoricalDtype):
        return _category(name, kind.categories.astype(object))
    if types.is_datetime64_any_dtype(kind):
        return DateColumn(name=name, missing="nan")
    if kind == np.dtype(object) or types.is_bool_dtype(kind) or types.is_numeric_dtype(kind):
        return NumberColumn(name=name, missing="nan")
    if isinstance(kind, pd.ArrowDtype):
        return _arrow_column(name, kind.pyarrow_dtype, None)
    if types.is_string_dtype(kind):
        return TextColumn(name=name, size=HASHED)
    raise _without_type(name, kind)


def _arrow_column(name: str, kind: Any, categories: Sequence[str] | None) -> Column:
    from pyarrow import types

    if categories is not None:
        return _category(name, categories)
    if is_text(kind):  # those of a dictionary, too, which rows hold and nobody has declared
        return TextColumn(name=name, size=HASHED)
    if types.is_timestamp(kind) or types.is_date(kind):
        return DateColumn(name=name, missing="nan")
    numbers = types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null
    if any(is_number(kind) for is_number in numbers):
        return NumberColumn(name=name, missing="nan")
    raise _without_type(name, kind)


def _category(name: str, values: Any) -> CategoryColumn:
    return CategoryColumn(name=name, categories=tuple(str(label_text(v) or "") for v in values))


def _without_type(name: str, kind: Any) -> InvalidInputError:
    return InvalidInputError(
        f"Column {name!r} of X has the type {kind}. Members of numbers take numbers, truth values, "
        "declared categories, dates and texts: convert the column, or declare a schema."
    )
