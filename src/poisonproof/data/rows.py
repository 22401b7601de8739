"""Rows of a data source: as read, and as encoded and checked one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import (
    ArrayColumn,
    CategoryColumn,
    Column,
    NumberColumn,
    Reasons,
    TextColumn,
    positions,
)
from poisonproof.data.schema import Schema, listed
from poisonproof.exceptions import InvalidInputError, InvalidRowsError

_DETAILS = re.compile(r"[:;] .*")
"""Details of a reason, beyond the kind of fault that a file has."""
_MOST_KINDS = 5

Missing = bool | Literal["cells"]
"""Whether members take missing values; "cells": what does not fit is missing, and keeps its row."""


@dataclass(frozen=True)
class RowProblem:
    """The place of a rejected row and the reason.

    Attributes
    ----------
    place : int or str
        Line of a text file, counted from 1; row of a binary file, counted from 0; path of an image.
    reason : str
        What is wrong, naming the column.
    label : bool
        Whether the label is all that is wrong, or may be.
    """

    place: int | str
    reason: str
    label: bool = False


@dataclass(frozen=True, eq=False)
class RawRows:
    """The rows that a reader found, before any value is judged.

    `X` has the columns of numbers (NaN if empty), or arrays and images; `texts` those read as text.
    `places` count lines, rows or files (`unit`). Rows that could not be read are `problems`;
    `reasons`, and `label_reasons` if nothing else is wrong, name by number others that do not fit,
    or have a cell that does not.
    """

    X: NDArray[Any]
    labels: Sequence[str | None] | None
    groups: Sequence[str | None] | None
    weights: NDArray[np.float64] | None
    names: tuple[str, ...] | None
    places: Sequence[int] | Sequence[str] | NDArray[np.int64]
    unit: str
    problems: list[RowProblem] = field(default_factory=list)
    texts: tuple[Sequence[str | None], ...] = ()
    reasons: Reasons = field(default_factory=Reasons)
    label_reasons: Mapping[int, str] = field(default_factory=dict)

    def cells(self, schema: Schema) -> dict[str, Any]:
        """Return the cells of every declared feature column by name."""
        if schema.kind != "table":
            return {schema.columns[0].name: self.X}
        texts, numbers = iter(self.texts), iter(self.X.T)
        found: dict[str, Any] = {}
        for column in schema.columns:
            if column.plain:
                found[column.name] = next(numbers)
                continue
            cells = present_texts(next(texts), column, schema)
            if isinstance(column, NumberColumn):
                found[column.name] = column.parse(cells, self.reasons)
            else:
                found[column.name] = cells
        return found

    def cut(self, start: int, stop: int) -> RawRows:
        """Return some of the rows; what could not be read at all goes with the first of them."""

        def _part(cells: Any) -> Any:
            return None if cells is None else cells[start:stop]

        def _among(reasons: Mapping[int, str]) -> dict[int, str]:
            return {row - start: why for row, why in reasons.items() if start <= row < stop}

        cells = self.reasons.cells.items()
        reasons = Reasons({(r - start, c): why for (r, c), why in cells if start <= r < stop})
        reasons.update(_among(self.reasons))
        return replace(
            self,
            X=self.X[start:stop],
            labels=_part(self.labels),
            groups=_part(self.groups),
            weights=_part(self.weights),
            places=self.places[start:stop],
            problems=self.problems if start == 0 else [],
            texts=tuple(map(_part, self.texts)),
            reasons=reasons,
            label_reasons=_among(self.label_reasons),
        )


def present_texts(
    cells: Sequence[str | None], column: Column, schema: Schema
) -> Sequence[str | None]:
    """Return cells as text, None for those whose text is declared to mean a missing value."""
    gone = set(schema.missing_texts)
    if isinstance(column, CategoryColumn):
        gone -= set(column.categories)
    return without_texts(cells, gone)


def without_texts(cells: Sequence[str | None], gone: set[str]) -> Sequence[str | None]:
    """Return cells as text, None for those that are one of the texts, without spaces around."""
    if not gone:
        return cells
    return [None if cell is not None and cell.strip() in gone else cell for cell in cells]


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """The rows of a file that fit the schema.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Samples, finite or (where allowed) missing.
    labels : ndarray of int, shape (n,), or None
        Indices into the classes of the schema.
    groups : ndarray of str objects, shape (n,), or None
        The contributor of each row, or what the schema's `partition` makes of it.
    weights : ndarray of float64, shape (n,), or None
    names : tuple of str or None
        Names of the features, if these are numbers of the file as they stand.
    problems : tuple of RowProblem
        The rejected rows, in file order.
    path : Path
        The file.
    unit : {"line", "row", "file"}
        What the places count.
    places : ndarray of shape (n,)
        Where each row stands in the file.
    cells : dict of str to ndarray of shape (n, ...), or None
        The cells in the file by feature column, if requested: a float (NaN if empty) for numbers,
        else a text or None; numbers of any shape for arrays and images.
    classes : tuple of str
        The classes of the schema.
    whole : bool
        Whether rows that the schema holds out of training may still be among them.
    """

    X: NDArray[Any]
    labels: NDArray[np.int64] | None
    groups: NDArray[Any] | None
    weights: NDArray[np.float64] | None
    names: tuple[str, ...] | None
    problems: tuple[RowProblem, ...]
    path: Path
    unit: str
    places: NDArray[Any]
    cells: dict[str, NDArray[Any]] | None = None
    classes: tuple[str, ...] = ()
    whole: bool = True

    def __len__(self) -> int:
        return len(self.X)

    @classmethod
    def joined(cls, parts: Sequence[CheckedRows]) -> CheckedRows:
        """Return the rows of the parts of one file, of which there is at least one."""
        first, columns = parts[0], ("X", "labels", "groups", "weights", "places")
        if len(parts) == 1:
            return first
        changes: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in columns
            if getattr(first, name) is not None
        }
        if first.cells is not None:
            changes["cells"] = {
                name: np.concatenate([(part.cells or {})[name] for part in parts])
                for name in first.cells
            }
        problems = chain.from_iterable(part.problems for part in parts)
        return replace(first, problems=tuple(problems), **changes)

    def only(self, which: NDArray[np.bool_]) -> CheckedRows:
        """Return some of the rows; `which` has shape (n,)."""
        return replace(
            self,
            X=self.X[which],
            labels=None if self.labels is None else self.labels[which],
            groups=None if self.groups is None else self.groups[which],
            weights=None if self.weights is None else self.weights[which],
            places=self.places[which],
            cells=_those(self.cells, which),
            whole=False,
        )

    def refuse_problems(self, advice: str = "Correct the row.") -> None:
        """Raise `InvalidRowsError` for the first rejected row, if there is one."""
        if self.problems:
            raise InvalidRowsError(f"{self.describe_problems()} {advice}")

    def describe_problems(self) -> str:
        """Return the first problem in words and the number of the others."""
        first, others = self.problems[0], len(self.problems) - 1
        text = f"{self.path}, {self.unit} {first.place}: {first.reason}"
        if others:
            text += f" ({others:,} more row{'s' * (others > 1)} rejected)"
        return f"{text}."


def refuse_half(path: object, n_kept: float, n_left_out: int, first: str) -> None:
    """Raise `InvalidRowsError` if more rows of a file were left out than kept."""
    if n_left_out > n_kept:
        raise InvalidRowsError(
            f"More than half of the rows of {path} do not fit: {n_left_out:,}; the first: {first} "
            "Correct the schema or the file; or train on the others all the same with "
            "--invalid-rows drop."
        )


def problem_kind(reason: str) -> str:
    """Return a reason without its details."""
    return _DETAILS.sub("", reason)


def list_kinds(kinds: Mapping[str, int]) -> str:
    """Return the most frequent faults of files in words."""
    counts = list(kinds.items())
    shown = [f"{count:,} x {what}" for what, count in counts[:_MOST_KINDS]]
    if rest := sum(count for _, count in counts[_MOST_KINDS:]):
        shown.append(f"{rest:,} x anything else")
    return "; ".join(shown)


def encode_rows(
    schema: Schema, cells: Mapping[str, Any], n_rows: int
) -> tuple[NDArray[Any], Reasons]:
    """Return the features of every row, shape (n, d), and which cells do not fit."""
    reasons = Reasons()
    parts = [column.encode(cells[column.name], reasons) for column in schema.columns]
    if len(parts) == 1:
        return parts[0], reasons
    texts = all(isinstance(column, TextColumn) for column in schema.columns)
    X = np.empty((n_rows, sum(part.shape[1] for part in parts)), np.float32 if texts else float)
    start = 0
    for part in parts:
        X[:, start : start + part.shape[1]] = part
        start += part.shape[1]
    return X, reasons


def check_rows(
    raw: RawRows,
    schema: Schema,
    path: Path,
    *,
    allow_missing: Missing = True,
    keep_cells: bool = False,
) -> CheckedRows:
    """Encode rows and reject every one that does not fit the schema, each by itself."""
    cells = raw.cells(schema) if keep_cells or not schema.keeps_numbers else None
    found, first = Reasons(), next(iter(schema.columns), None)
    if schema.keeps_numbers or cells is None:
        X = raw.X.reshape(len(raw.X), prod(raw.X.shape[1:]))
    elif allow_missing == "cells" and isinstance(first, ArrayColumn):
        X = first.numbers(raw.X)
    else:
        X, found = encode_rows(schema, cells, len(raw.places))
    if not X.shape[1]:
        raise InvalidInputError(f"{path} has no feature columns.")
    if found or found.cells:
        raw.reasons.add(found)
    if allow_missing == "cells":
        X, reasons = _without_cells(X, raw, schema), dict(raw.reasons)
    else:
        reasons = raw.reasons.by_row() if raw.reasons.cells else dict(raw.reasons)
        _check_features(X, raw, schema, allow_missing, reasons)
    groups = _check_groups(raw, schema, reasons)
    _check_weights(raw, schema, reasons)
    broken = frozenset(reasons)
    for row, reason in raw.label_reasons.items():
        reasons.setdefault(row, reason)
    codes = _check_labels(raw, schema, reasons)
    good = np.ones(len(X), dtype=bool)
    good[list(reasons)] = False
    places = np.asarray(raw.places)
    problems = [
        RowProblem(places[row].item(), reason, label=row not in broken)
        for row, reason in reasons.items()
    ]
    return CheckedRows(
        X=X if good.all() else X[good],
        labels=None if codes is None else codes[good],
        groups=None if groups is None else _text_array(groups)[good],
        weights=None if raw.weights is None else raw.weights[good],
        names=raw.names if schema.keeps_numbers else None,
        problems=tuple(sorted([*raw.problems, *problems], key=attrgetter("place"))),
        path=path,
        unit=raw.unit,
        places=places[good],
        cells=_those(cells, good) if keep_cells else None,
        classes=tuple(schema.classes),
    )


def _without_cells(X: NDArray[Any], raw: RawRows, schema: Schema) -> NDArray[Any]:
    """Return features that are missing wherever a cell does not fit or is infinite."""
    if X.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(X.sum(dtype=np.float64))
        if not finite:
            X = np.where(np.isinf(X), np.asarray(np.nan, dtype=X.dtype), X)
    if not raw.reasons.cells:
        return X
    X = X.astype(np.result_type(X.dtype, np.float32))  # which holds NaN
    names = raw.names or () if schema.keeps_numbers else [c.name for c in schema.columns]
    widths = [1] * len(names) if schema.keeps_numbers else [c.n_features for c in schema.columns]
    ends = np.cumsum(widths).tolist()
    spans = {name: slice(end - n, end) for name, n, end in zip(names, widths, ends, strict=True)}
    for row, name in raw.reasons.cells:
        X[row, spans[name]] = np.nan
    return X


def _those(
    cells: Mapping[str, Any] | None, which: NDArray[np.bool_]
) -> dict[str, NDArray[Any]] | None:
    if cells is None:
        return None
    return {
        name: (column if isinstance(column, np.ndarray) else _text_array(column))[which]
        for name, column in cells.items()
    }


def _check_features(
    X: NDArray[Any], raw: RawRows, schema: Schema, allow_missing: bool, reasons: dict[int, str]
) -> None:
    if X.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum(dtype=np.float64)):  # no infinity and no NaN, without a mask
            return
    names = raw.names
    if not schema.keeps_numbers:
        names = tuple(c.name for c in schema.columns for _ in range(c.n_features))
    bad = np.isinf(X) if allow_missing else ~np.isfinite(X)
    for row in np.flatnonzero(bad.any(axis=1)).tolist():
        column = int(bad[row].argmax())
        what = f"column {names[column]!r}" if names else f"feature {column}"
        if np.isinf(X[row, column]):
            reasons.setdefault(row, f"{what} is infinite or too large for a float64")
        else:
            reasons.setdefault(row, f"{what} is missing, which this kind of model cannot take")


def _check_labels(
    raw: RawRows, schema: Schema, reasons: dict[int, str]
) -> NDArray[np.int64] | None:
    if raw.labels is None:
        return None
    found = map(positions(schema.classes).get, raw.labels, repeat(-1))  # type: ignore[arg-type] # None is no label
    codes = np.fromiter(found, dtype=np.int64, count=len(raw.labels))
    for row in np.flatnonzero(codes < 0).tolist():
        text = raw.labels[row]
        reasons.setdefault(
            row,
            f"the label is missing (column {schema.label!r})"
            if text is None
            else f"the label {text[:80]!r} is not one of the declared classes "
            f"{listed(schema.classes)}",
        )
    return codes


def _check_groups(
    raw: RawRows, schema: Schema, reasons: dict[int, str]
) -> Sequence[str | None] | None:
    """Return what certificates count for each row: the contributor, entity, source or block."""
    if raw.groups is None:
        return None
    rule = schema.partition
    units = raw.groups if rule is None else rule.units(list(raw.groups))
    for row, (text, unit) in enumerate(zip(raw.groups, units, strict=True)):
        if not unit:
            why = "missing" if not text or rule is None else f"{text[:80]!r}, not {rule.allowed}"
            reasons.setdefault(row, f"the group is {why} (column {schema.groups!r})")
    return units


def _check_weights(raw: RawRows, schema: Schema, reasons: dict[int, str]) -> None:
    if raw.weights is None:
        return
    for row in np.flatnonzero(~(np.isfinite(raw.weights) & (raw.weights >= 0))).tolist():
        reasons.setdefault(
            row,
            f"the weight {raw.weights[row]} (column {schema.weights!r}) is not a finite number of "
            "at least 0",
        )


def _text_array(texts: Sequence[str | None]) -> NDArray[Any]:
    array = np.empty(len(texts), dtype=object)
    array[:] = list(texts)
    return array
