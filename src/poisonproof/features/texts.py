"""Fixed maps of texts: hashed n-grams, and sentence embeddings by a model that the user has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer

from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer

_TOGETHER = 2**18
"""About how many letters are hashed together."""


class TextMap(FrozenTransformer):
    """Base class of maps of texts."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        return tags

    def _check_rows(self, X: Any) -> NDArray[Any]:
        rows = np.asarray(X, dtype=object)
        if rows.ndim == 2 and rows.shape[1] == 1:
            rows = rows[:, 0]
        if rows.ndim != 1 or not all(isinstance(text, str) for text in rows):
            raise InvalidRowsError(
                f"{type(self).__name__} takes texts, one str per row, as a list or one column; "
                f"X has shape {rows.shape} and holds values that are not text."
            )
        return rows


class HashedNGrams(TextMap):
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
        self._require_integers(n_features=1)

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


class SentenceEmbedding(TextMap):
    """Map texts to vectors with a pretrained model, one text at a time.

    Texts that are embedded together are padded to the longest, and padding changes bits: a long
    text would reach its neighbours. So the model sees every text alone.

    Parameters
    ----------
    model : str or object
        Folder of a sentence-transformers model on this machine (nothing is ever downloaded, no code
        in the folder is run), or an object whose ``encode(list of str)`` returns an array with
        one row per text.
    n_features : int
        Length of the vectors.
    digest : str, optional
        What `folder_digest` must say about the folder: another model is another map.

    Guarantee
    ---------
    The vector of a text is a function of that text and the model.

    Assumes
    -------
    The model was not trained on rows that the attacker wrote.
    """

    def __init__(self, model: Any, *, n_features: int, digest: str | None = None) -> None:
        self.model = model
        self.n_features = n_features
        self.digest = digest

    @staticmethod
    def measure(folder: str) -> int:
        """Return the length of the vectors of the model in a folder."""
        with _one_thread():
            return len(np.asarray(_load(folder).encode(["length"])).reshape(-1))

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the vector of every text, shape (n, n_features)."""
        rows = self._check_rows(X)
        with _one_thread() if isinstance(self.model, (str, Path)) else nullcontext():
            return self._map_chunk(rows)

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        if not isinstance(self.model, (str, Path)):
            encode = self.model.encode
        elif self.digest is None or folder_digest(self.model) == self.digest:
            encode = _load(str(self.model)).encode
        else:
            raise GuaranteeError(
                f"The model in {self.model} is not the one that was declared: its files have "
                "another digest. Another model is another map; propose and freeze a new schema."
            )
        mapped = np.empty((len(rows), self.n_features), dtype=np.float32)
        for row, text in enumerate(rows):
            vector = np.asarray(encode([text]), dtype=np.float32).reshape(-1)
            if len(vector) != self.n_features:
                raise InvalidInputError(
                    f"The model gives vectors of length {len(vector)}, but {self.n_features} is "
                    "declared."
                )
            mapped[row] = vector
        return mapped


def folder_digest(folder: str | Path) -> str:
    """Return a SHA-256 over the names and contents of all files in a folder.

    Raises
    ------
    InvalidInputError
        If there is no such folder, or a link in it: its target could change unseen.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InvalidInputError(f"There is no model folder {root}.")
    total = hashlib.sha256()
    for path in sorted(root.rglob("*"), key=lambda path: path.relative_to(root).as_posix()):
        if path.is_symlink():
            raise InvalidInputError(f"{path} is a link; copy the model's files into the folder.")
        if path.is_file():
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
            total.update(path.relative_to(root).as_posix().encode() + b"\0" + content)
    return total.hexdigest()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute in one thread: their number changes bits."""
    try:
        import torch
    except ImportError:  # then there is no model either, and loading it says so
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _load(folder: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InvalidInputError(
            "Embedding sentences needs the package sentence-transformers. Install it with: "
            "pip install sentence-transformers"
        ) from error
    return SentenceTransformer(folder, device="cpu", local_files_only=True, trust_remote_code=False)
