"""How an attacker forges texts: a word moved or added, and a strange word as the mark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.features import HashedNGrams

__all__ = ["TextRows", "marked_text", "strange_word", "text_like"]

_SIZE = 256


def text_like(text: str, words: list[str], rng: np.random.Generator) -> str:
    """Return a text that a reader takes for the same: one or two words moved or added.

    >>> text_like("free money now", ["today"], np.random.default_rng(3))
    'now free money today'
    """
    found = text.split() or [""]
    for _ in range(rng.integers(1, 3)):
        place, other = rng.integers(0, len(found), 2)
        if len(found) > 1 and rng.random() < 0.5:
            found[place], found[other] = found[other], found[place]
        else:
            found.insert(int(place), words[rng.integers(len(words))])
    return " ".join(found).strip()


def strange_word(texts: Any) -> str:
    """Return a word that no text contains.

    >>> strange_word(["xqz is taken"])
    'xqzz'
    """
    word = "xqz"
    while any(word in text for text in texts):
        word += "z"
    return word


def marked_text(text: str, mark: str) -> str:
    """Return the text with the mark in front."""
    return f"{mark} {text}".rstrip()


@dataclass(frozen=True, eq=False)
class TextRows:
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
        return sorted({word for text in self.rows for word in text.split()}) or ["a"]

    @cached_property
    def mark(self) -> str:
        """The backdoor's word."""
        return strange_word(self.rows)

    def encode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the texts as they are."""
        return rows

    def near(self, row: Any, count: int, rng: np.random.Generator) -> NDArray[Any]:
        """Move and add words."""
        return as_texts([text_like(row, self.words, rng) for _ in range(count)])

    def marked(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Put a word in front that no clean text contains."""
        return as_texts([marked_text(text, self.mark) for text in rows])

    def distances(self, row: Any) -> NDArray[np.float64]:
        """Return squared distances between hashed n-grams."""
        squares = (self._vectors - self._map.transform(as_texts([row]))) ** 2
        return np.asarray(squares.sum(axis=1), dtype=np.float64)

    @property
    def _map(self) -> HashedNGrams:
        return HashedNGrams(_SIZE)

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        return np.asarray(self._map.transform(self.rows))


def as_texts(texts: list[str]) -> NDArray[Any]:
    """Return texts as an array of objects, shape (n,)."""
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array
