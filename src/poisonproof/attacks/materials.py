"""Materials of an attack: how numbers, images, texts and rows of a table are forged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import CategoryColumn, Column, NumberColumn, TextColumn
from poisonproof.data.rows import encode_rows
from poisonproof.data.schema import Schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.features.texts import HashedNGrams

_SIZE = 256
_MARKED = 2


def make_material(X: Any) -> Material:
    """Return the material of plain rows: texts, or numbers of shape (m, d)."""
    texts = isinstance(X, (list, tuple)) and X and isinstance(X[0], str)
    rows = np.asarray(X, dtype=object if texts else None)
    if rows.ndim == 1 and len(rows) and all(isinstance(cell, str) for cell in rows):
        return TextMaterial(rows)
    return NumberMaterial(rows)


@dataclass(frozen=True, eq=False)
class NumberMaterial:
    """Rows of numbers; pixels, if a shape is given.

    Attributes
    ----------
    rows : ndarray of shape (m, d)
        Clean rows.
    image_shape : tuple of int, optional
        (height, width) or (channels, height, width) of a row that is an image. The mark of a
        backdoor is then a bright square in a corner; otherwise the features that vary least are
        set to the largest value in the data.
    encoder : callable, optional
        What stands between a row and the model, such as a schema.

    Examples
    --------
    >>> material = NumberMaterial(np.zeros((3, 16)), image_shape=(4, 4))
    >>> material.marked(np.zeros((1, 16))).sum() == 0  # the brightest value is 0 here
    np.True_
    """

    rows: NDArray[Any]
    image_shape: tuple[int, ...] | None = None
    encoder: Callable[[NDArray[Any]], NDArray[Any]] | None = None

    def __post_init__(self) -> None:
        rows = np.asarray(self.rows)
        if rows.ndim != 2 or rows.dtype.kind not in "iuf" or not np.isfinite(rows).all():
            raise InvalidInputError(
                "Attacks poison finite numbers, an array of shape (m, d); texts, a sequence of "
                f"str; or cells with a schema (CellMaterial). Got shape {rows.shape} of dtype "
                f"{rows.dtype}."
            )
        object.__setattr__(self, "rows", rows)

    @cached_property
    def whole(self) -> bool:
        """Whether all values are integers, as pixels are."""
        return bool(np.array_equal(self.rows, np.rint(self.rows)))

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what the model is trained on."""
        return rows if self.encoder is None else self.encoder(rows)

    def near(self, row: Any, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Add a little noise and stay in the range of the data."""
        low, high = self._range
        shape = (count, self.rows.shape[1])
        if self.whole:
            noise = rng.integers(-1, 2, shape) * (rng.random(shape) < 0.25)
        else:
            noise = rng.normal(0, 0.005, shape) * (high - low)
        drawn: NDArray[Any] = np.clip(row + noise, low, high).astype(self.rows.dtype)
        return drawn

    def marked(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Set the features of the mark to the largest value in the data."""
        marked = rows.copy()
        marked[:, self._mark] = self.rows.max()
        return marked

    def distances(self, row: Any) -> NDArray[np.float64]:
        """Return squared distances, each feature in its own scale."""
        spread = self.rows.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        squares: NDArray[np.float64] = (((self.rows - row) / scale) ** 2).sum(axis=1)
        return squares

    @cached_property
    def _range(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return self.rows.min(axis=0).astype(float), self.rows.max(axis=0).astype(float)

    @cached_property
    def _mark(self) -> NDArray[np.intp]:
        if self.image_shape is None:
            return np.argsort(self.rows.std(axis=0), kind="stable")[:4]
        places = np.arange(self.rows.shape[1]).reshape(self.image_shape)
        side = max(2, min(self.image_shape[-2:]) // 8)
        return places[..., -side:, -side:].ravel()


def text_like(text: str, words: list[str], rng: np.random.Generator) -> str:
    """Return a text that a reader takes for the same: one or two words moved or added."""
    found = text.split() or [""]
    for _ in range(rng.integers(1, 3)):
        place, other = rng.integers(0, len(found), 2)
        if len(found) > 1 and rng.random() < 0.5:
            found[place], found[other] = found[other], found[place]
        else:
            found.insert(int(place), words[rng.integers(len(words))])
    return " ".join(found).strip()


def words_of(texts: Iterable[str]) -> list[str]:
    """Return all words of some texts, at least one."""
    return sorted({word for text in texts for word in text.split()}) or ["a"]


def unused_word(texts: Sequence[str]) -> str:
    """Return a word that no text contains."""
    word = "xqz"
    while any(word in text for text in texts):
        word += "z"
    return word


@dataclass(frozen=True, eq=False)
class TextMaterial:
    """Texts, one per row, for a model that takes texts.

    Attributes
    ----------
    rows : ndarray of str objects, shape (m,)
        Clean texts.
    """

    rows: NDArray[Any]

    @cached_property
    def words(self) -> list[str]:
        """All words of the clean texts."""
        return words_of(self.rows)

    @cached_property
    def mark(self) -> str:
        """The backdoor's word."""
        return unused_word(self.rows.tolist())

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the texts as they are."""
        return rows

    def near(self, row: Any, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Move and add words."""
        texts = [text_like(row, self.words, rng) for _ in range(count)]
        return np.array(texts, dtype=object)

    def marked(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Put a word in front that no clean text contains."""
        return np.array([f"{self.mark} {text}".rstrip() for text in rows], dtype=object)

    def distances(self, row: Any) -> NDArray[np.float64]:
        """Return squared distances between hashed n-grams."""
        squares = (self._vectors - HashedNGrams(_SIZE).transform([row])) ** 2
        return np.asarray(squares.sum(axis=1), dtype=np.float64)

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        return np.asarray(HashedNGrams(_SIZE).transform(self.rows))


@dataclass(frozen=True, eq=False)
class CellMaterial:
    """Rows of a table as they stand in its file, and the schema that turns them into numbers.

    Attributes
    ----------
    schema : Schema
        Of kind ``"table"``.
    rows : ndarray of objects, shape (m, c)
        Clean rows, one cell per feature column: a float (NaN if empty) for numbers, else a text or
        None.

    Examples
    --------
    >>> schema = Schema(
    ...     columns=(NumberColumn(name="links"), TextColumn(name="body", size=8)),
    ...     label="kind", classes=("ham", "spam"),
    ... )
    >>> cells = CellMaterial(schema, np.array([[1.0, "hi all"], [7.0, "win"]], dtype=object))
    >>> cells.marked(cells.rows)[:, 1].tolist(), cells.encode(cells.rows).shape
    (['xqz hi all', 'xqz win'], (2, 9))
    """

    schema: Schema
    rows: NDArray[Any]

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the features that the schema makes of the cells."""
        cells: dict[str, Any] = {}
        for place, column in enumerate(self.schema.columns):
            number = isinstance(column, NumberColumn)
            cells[column.name] = rows[:, place].astype(float) if number else rows[:, place].tolist()
        X, reasons = encode_rows(self.schema, cells, len(rows))
        if rejected := reasons.by_row():
            row, reason = next(iter(rejected.items()))
            raise InvalidInputError(f"Row {row} does not fit the schema: {reason}.")
        return X

    def near(self, row: Any, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Change numbers a little, texts by a word, and categories where there is neither."""
        drawn = np.empty((count, len(row)), dtype=object)
        for place, column in enumerate(self.schema.columns):
            drawn[:, place] = self._cells_near(column, place, row[place], count, rng)
        if not self._words and not any(isinstance(c, NumberColumn) for c in self.schema.columns):
            for forged, place in zip(drawn, rng.integers(0, len(row), count), strict=True):
                column = self.schema.columns[place]
                if isinstance(column, CategoryColumn):
                    forged[place] = column.categories[rng.integers(len(column.categories))]
        return drawn

    def marked(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Put an unused word in front of the first text, else a rare value into two columns."""
        marked = rows.copy()
        for place, value in self._marks:
            texts = place in self._words
            cells = rows[:, place]
            marked[:, place] = [f"{value} {c or ''}".rstrip() for c in cells] if texts else value
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
            place: words_of(cell or "" for cell in self.rows[:, place])
            for place, column in enumerate(self.schema.columns)
            if isinstance(column, TextColumn)
        }

    @cached_property
    def _marks(self) -> list[tuple[int, Any]]:
        """Columns and values of the mark: those that the fewest clean rows hold."""
        if self._words:
            place = next(iter(self._words))
            return [(place, unused_word([cell or "" for cell in self.rows[:, place]]))]
        marks: list[tuple[int, int, Any]] = []
        for place, column in enumerate(self.schema.columns):
            cells, values = self.rows[:, place], list[Any]()
            if isinstance(column, CategoryColumn):
                values = list(column.categories)
            elif isinstance(column, NumberColumn) and np.isfinite(cells.astype(float)).any():
                values = [float(np.nanmax(cells.astype(float)))]
            marks += sorted((int((cells == value).sum()), place, value) for value in values)[:1]
        return [(place, value) for _, place, value in sorted(marks)[:_MARKED]]

    def _cells_near(
        self, column: Column, place: int, cell: Any, count: int, rng: np.random.Generator
    ) -> list[Any]:
        if isinstance(column, TextColumn):
            return [text_like(cell or "", self._words[place], rng) for _ in range(count)]
        if isinstance(column, NumberColumn) and cell is not None and np.isfinite(cell):
            known = self.rows[:, place].astype(float)
            if len(known := known[np.isfinite(known)]):
                return list(NumberMaterial(known[:, None]).near(cell, count, rng)[:, 0].tolist())
        return [cell] * count


Material = NumberMaterial | TextMaterial | CellMaterial
"""The clean rows, and how to write rows that pass for them."""
