"""What rows are made of, and how an attacker forges more of them: numbers and images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

__all__ = ["Material", "NumberRows", "make_material"]


class Material(Protocol):
    """The clean rows, and how to write rows that pass for them."""

    @property
    def rows(self) -> NDArray[Any]:
        """The clean rows as an attacker writes them, shape (m, ...)."""

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what the model is trained on; the rows themselves if nothing stands between."""

    def near(self, row: Any, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw `count` rows that are hard to tell from `row`."""

    def marked(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return copies of the rows with the mark of a backdoor."""

    def distances(self, row: Any) -> NDArray[np.float64]:
        """Return how far each clean row is from `row`, shape (m,)."""


@dataclass(frozen=True, eq=False)
class NumberRows:
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
    >>> material = NumberRows(np.zeros((3, 16)), image_shape=(4, 4))
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
                f"str; or cells with a schema (CellRows). Got shape {rows.shape} of dtype "
                f"{rows.dtype}."
            )
        object.__setattr__(self, "rows", rows)

    @cached_property
    def whole(self) -> bool:
        """Whether all values are whole numbers, as pixels are."""
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


def make_material(X: Any) -> Material:
    """Return the material of plain rows: texts, or numbers of shape (m, d)."""
    from poisonproof.attacks.texts import TextRows

    rows = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=_dtype(X))
    if rows.ndim == 1 and len(rows) and all(isinstance(cell, str) for cell in rows):
        return TextRows(rows)
    return NumberRows(rows)


def _dtype(X: Any) -> Any:
    return object if isinstance(X, (list, tuple)) and X and isinstance(X[0], str) else None
