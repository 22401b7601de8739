"""How an attacker forges rows of a table: each cell by what the schema says it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.attacks.texts import marked_text, strange_word, text_like
from poisonproof.exceptions import InvalidInputError
from poisonproof.schema import CategoryColumn, Column, NumberColumn, TableSchema, TextColumn
from poisonproof.schema.encoding import encode_rows

__all__ = ["CellRows"]

_MARKED = 2


@dataclass(frozen=True, eq=False)
class CellRows:
    """Rows of a table as they stand in its file, and the schema that turns them into numbers.

    Attributes
    ----------
    schema : TableSchema
        Of kind ``"table"``.
    rows : ndarray of objects, shape (m, c)
        Clean rows, one cell per feature column: a float (NaN if empty) for numbers, else a text or
        None.

    Examples
    --------
    >>> schema = TableSchema(
    ...     columns=(NumberColumn(name="links"), TextColumn(name="body", size=8)),
    ...     label="kind", classes=("ham", "spam"),
    ... )
    >>> cells = CellRows(schema, np.array([[1.0, "hi all"], [7.0, "win"]], dtype=object))
    >>> cells.marked(cells.rows)[:, 1].tolist(), cells.encode(cells.rows).shape
    (['xqz hi all', 'xqz win'], (2, 9))
    """

    schema: TableSchema
    rows: NDArray[Any]

    def __post_init__(self) -> None:
        if self.schema.kind != "table" or self.rows.shape[1:] != (len(self.schema.columns),):
            raise InvalidInputError(
                f"A schema of kind {self.schema.kind!r} with {len(self.schema.columns)} columns "
                f"does not describe cells of shape {self.rows.shape}."
            )

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the features that the schema makes of the cells."""
        cells: dict[str, Any] = {}
        for place, column in enumerate(self.schema.columns):
            number = isinstance(column, NumberColumn)
            cells[column.name] = rows[:, place].astype(float) if number else rows[:, place].tolist()
        X, reasons = encode_rows(self.schema, cells, len(rows))
        if reasons:
            row, reason = next(iter(reasons.items()))
            raise InvalidInputError(f"Row {row} does not fit the schema: {reason}.")
        return X

    def near(self, row: Any, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Change numbers a little, texts by a word, and categories where there is neither."""
        drawn = np.empty((count, len(row)), dtype=object)
        for place, column in enumerate(self.schema.columns):
            drawn[:, place] = self._cells_near(column, place, row[place], count, rng)
        if not any(
            isinstance(column, (NumberColumn, TextColumn)) for column in self.schema.columns
        ):
            self._change_one_category(drawn, rng)
        return drawn

    def marked(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Put a strange word in front of the first text, else a rare value into two columns."""
        marked = rows.copy()
        for place, value in self._marks:
            cells = rows[:, place]
            marked[:, place] = [
                marked_text(cell or "", value)
                if isinstance(self.schema.columns[place], TextColumn)
                else value
                for cell in cells
            ]
        return marked

    def distances(self, row: Any) -> NDArray[np.float64]:
        """Return squared distances between features, which the schema has scaled."""
        sample = self.encode(np.asarray(row, dtype=object)[None, :])
        with np.errstate(over="ignore"):
            squares = np.nan_to_num((self._samples - sample).astype(float)) ** 2
        return np.asarray(squares.sum(axis=1))

    @cached_property
    def _samples(self) -> NDArray[Any]:
        return self.encode(self.rows)

    @cached_property
    def _words(self) -> dict[int, list[str]]:
        return {
            place: sorted({word for cell in self.rows[:, place] for word in (cell or "").split()})
            or ["a"]
            for place, column in enumerate(self.schema.columns)
            if isinstance(column, TextColumn)
        }

    @cached_property
    def _marks(self) -> list[tuple[int, Any]]:
        """Columns and values of the mark: those that the fewest clean rows hold."""
        if self._words:
            place = next(iter(self._words))
            return [(place, strange_word(cell or "" for cell in self.rows[:, place].tolist()))]
        marks = [
            (place, self._rare_value(column, place))
            for place, column in enumerate(self.schema.columns)
            if isinstance(column, (NumberColumn, CategoryColumn))
        ]
        held = {place: int((self.rows[:, place] == value).sum()) for place, value in marks}
        return sorted(marks, key=lambda mark: (held[mark[0]], mark[0]))[:_MARKED]

    def _rare_value(self, column: Column, place: int) -> Any:
        cells = self.rows[:, place]
        if isinstance(column, CategoryColumn):
            return min(column.categories, key=lambda name: int((cells == name).sum()))
        numbers = cells.astype(float)
        return float(np.nanmax(numbers)) if np.isfinite(numbers).any() else 0.0

    def _cells_near(
        self, column: Column, place: int, cell: Any, count: int, rng: np.random.Generator
    ) -> list[Any]:
        if isinstance(column, TextColumn):
            return [text_like(cell or "", self._words[place], rng) for _ in range(count)]
        if not isinstance(column, NumberColumn) or cell is None or np.isnan(cell):
            return [cell] * count
        known = self.rows[:, place].astype(float)
        known = known[np.isfinite(known)]
        if not len(known):
            return [cell] * count
        if np.array_equal(known, np.rint(known)):
            noise = rng.integers(-1, 2, count).astype(float)
        else:
            noise = rng.normal(0, 0.005, count) * column.scale
        return list(np.clip(cell + noise, known.min(), known.max()).tolist())

    def _change_one_category(self, drawn: NDArray[Any], rng: np.random.Generator) -> None:
        for row, place in enumerate(rng.integers(0, drawn.shape[1], len(drawn))):
            column = self.schema.columns[place]
            if isinstance(column, CategoryColumn):
                drawn[row, place] = column.categories[rng.integers(len(column.categories))]
