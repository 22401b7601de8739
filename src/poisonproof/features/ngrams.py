"""Hashed n-grams of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer

__all__ = ["HashedNGrams"]


_TOGETHER = 2**18
"""About how many letters are hashed together."""


class HashedNGrams(FrozenTransformer):
    """Count the n-grams of a text in columns chosen by a hash.

    There is no vocabulary, hence nothing to learn and nothing an attacker could add to. Wraps
    `sklearn.feature_extraction.text.HashingVectorizer`; rows have length one.

    Parameters
    ----------
    n_features : int, default=1024
        Columns of the result, which is dense.
    analyzer : {"char_wb", "char", "word"}, default="char_wb"
        Letters within words, letters, or words.
    ngram_range : tuple of two int, default=(3, 5)
        Shortest and longest n-gram.
    lowercase : bool, default=True
        Whether case is ignored.

    Guarantee
    ---------
    The result for a text is a function of that text alone, bit for bit.

    Examples
    --------
    >>> HashedNGrams(n_features=64).transform(["free money", "meeting at ten"]).shape
    (2, 64)
    """

    def __init__(
        self,
        n_features: int = 1024,
        *,
        analyzer: str = "char_wb",
        ngram_range: tuple[int, int] = (3, 5),
        lowercase: bool = True,
    ) -> None:
        self.n_features = n_features
        self.analyzer = analyzer
        self.ngram_range = ngram_range
        self.lowercase = lowercase

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        return tags

    def _check_parameters(self) -> None:
        if self.analyzer not in {"char_wb", "char", "word"}:
            raise InvalidInputError(
                f"analyzer must be 'char_wb', 'char' or 'word', but is {self.analyzer!r}."
            )
        shortest, longest = self.ngram_range
        if not 1 <= shortest <= longest:
            raise InvalidInputError(
                "ngram_range must be (shortest, longest) with 1 <= shortest <= longest, but is "
                f"{self.ngram_range!r}."
            )
        if self.n_features < 1:
            raise InvalidInputError(f"n_features must be at least 1, but is {self.n_features!r}.")

    def _check_rows(self, X: Any) -> NDArray[Any]:
        rows = np.asarray(X, dtype=object)
        if rows.ndim == 2 and rows.shape[1] == 1:
            rows = rows[:, 0]
        if rows.ndim != 1 or not all(isinstance(text, str) for text in rows):
            raise InvalidRowsError(
                "HashedNGrams takes texts, one str per row, as a list or one column; "
                f"X has shape {rows.shape} and holds other things."
            )
        return rows

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        hashing = HashingVectorizer(
            n_features=self.n_features,
            analyzer=self.analyzer,
            ngram_range=self.ngram_range,
            lowercase=self.lowercase,
            norm="l2",
            dtype=np.float64,
        )
        # Rows that only fill up the chunk are zeros, not texts; half a surrogate pair is no letter.
        texts = [
            text.encode("utf-8", "replace").decode("utf-8") if isinstance(text, str) else ""
            for text in rows
        ]
        dense = np.empty((len(texts), self.n_features), dtype=np.float32)
        ends = np.cumsum([len(text) for text in texts]) // _TOGETHER
        # All n-grams of texts that are hashed together are in memory at once.
        for part in np.split(np.arange(len(texts)), np.flatnonzero(np.diff(ends)) + 1):
            dense[part] = hashing.transform([texts[row] for row in part]).toarray()
        return dense
