"""Columns of a table: what a cell may hold, what a missing one means, how it becomes numbers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from poisonproof.exceptions import InvalidInputError

if TYPE_CHECKING:
    from poisonproof.features import FrozenTransformer

__all__ = ["CategoryColumn", "Column", "NumberColumn", "TextColumn"]

MAX_FEATURES = 2**20
"""The largest number of features that one column may become."""


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """A column of the source, by name.

    Attributes
    ----------
    type : str
        What the schema file calls this kind of column.
    n_features : int
        How many numbers a cell becomes.
    """

    name: str

    type: ClassVar[str]

    @property
    @abstractmethod
    def n_features(self) -> int:
        """How many numbers a cell becomes."""

    def to_json(self) -> dict[str, Any]:
        """Return the column as it stands in a schema file."""
        values = asdict(self)
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}
        return {"name": plain.pop("name"), "type": self.type, **plain}

    def _refuse(self, message: str) -> InvalidInputError:
        return InvalidInputError(f"Column {self.name!r} of the schema: {message}")

    def _check_choice(self, key: str, value: object, allowed: tuple[str, ...]) -> None:
        if value not in allowed:
            raise self._refuse(f"{key} is one of {', '.join(allowed)}. Got {value!r}.")

    def _check_count(self, key: str, value: object, largest: int) -> None:
        if type(value) is not int or not 1 <= value <= largest:
            raise self._refuse(f"{key} is a whole number from 1 to {largest:,}. Got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class NumberColumn(Column):
    """A number: ``(cell - center) / scale``, both declared.

    Parameters
    ----------
    name : str
    missing : {"reject", "nan"} or float
        An empty cell rejects its row, stays missing (for members that take missing values), or
        becomes this number, with a second feature that says so.
    center, scale : float
        Constants. Computed from the untrusted rows they would tie all members together.

    Examples
    --------
    >>> NumberColumn(name="length", missing=0.0).n_features
    2
    """

    type: ClassVar[str] = "number"

    missing: str | float = "reject"
    center: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.missing, str):
            self._check_choice("missing", self.missing, ("reject", "nan"))
        for key in ("missing", "center", "scale"):
            value = getattr(self, key)
            if isinstance(value, str) and key == "missing":
                continue
            if type(value) not in (int, float) or not math.isfinite(value):
                raise self._refuse(f"{key} must be a finite number. Got {value!r}.")
            object.__setattr__(self, key, float(value))
        if self.scale <= 0:
            raise self._refuse(f"scale must be above 0. Got {self.scale!r}.")

    @property
    def n_features(self) -> int:
        """One, and another one where missing cells are filled."""
        return 1 if isinstance(self.missing, str) else 2


@dataclass(frozen=True, kw_only=True)
class CategoryColumn(Column):
    """One of a declared list of texts: one feature each, 1 for the one that the cell holds.

    Parameters
    ----------
    name : str
    categories : tuple of str
        The declared texts, compared exactly.
    unknown, missing : {"other", "reject"}
        What another text, and an empty cell, does: it becomes the category "other", one more
        feature, or rejects its row.

    Examples
    --------
    >>> CategoryColumn(name="country", categories=("DE", "FR")).n_features
    3
    """

    type: ClassVar[str] = "category"

    categories: tuple[str, ...]
    unknown: str = "other"
    missing: str = "other"

    def __post_init__(self) -> None:
        names = tuple(self.categories) if isinstance(self.categories, (list, tuple)) else ()
        if not names or not all(isinstance(name, str) and name for name in names):
            raise self._refuse(f"categories is a list of texts. Got {self.categories!r}.")
        if len(set(names)) < len(names):
            raise self._refuse("a category is listed twice.")
        object.__setattr__(self, "categories", names)
        self._check_choice("unknown", self.unknown, ("other", "reject"))
        self._check_choice("missing", self.missing, ("other", "reject"))

    @property
    def has_other(self) -> bool:
        """Whether there is a feature for everything that is not listed."""
        return "other" in (self.unknown, self.missing)

    @property
    def n_features(self) -> int:
        """One per category, and one for the rest."""
        return len(self.categories) + self.has_other


@dataclass(frozen=True, kw_only=True)
class TextColumn(Column):
    """A text, as hashed n-grams or by a sentence-embedding model that the user has.

    Parameters
    ----------
    name : str
    missing : {"empty", "reject"}
        An empty cell is the empty text, or rejects its row.
    encoder : {"ngrams", "sentences"}
        Hashed n-grams, or the model in the folder `model`.
    size : int
        Features: columns of the hash, or the length of the model's vectors.
    analyzer : {"char_wb", "char", "word"}
    shortest, longest : int
        Lengths of the n-grams.
    model : str
        Folder of a sentence-transformers model; empty for n-grams.
    digest : str
        SHA-256 over the files of that folder, filled in when the schema is proposed.
    """

    type: ClassVar[str] = "text"

    missing: str = "empty"
    encoder: str = "ngrams"
    size: int = 1024
    analyzer: str = "char_wb"
    shortest: int = 3
    longest: int = 5
    model: str = ""
    digest: str = ""

    def __post_init__(self) -> None:
        self._check_choice("missing", self.missing, ("empty", "reject"))
        self._check_choice("encoder", self.encoder, ("ngrams", "sentences"))
        self._check_choice("analyzer", self.analyzer, ("char_wb", "char", "word"))
        self._check_count("size", self.size, MAX_FEATURES)
        self._check_count("longest", self.longest, 50)
        self._check_count("shortest", self.shortest, self.longest)
        if not isinstance(self.model, str) or not isinstance(self.digest, str):
            raise self._refuse("model is a folder and digest its SHA-256, both texts.")
        if (self.encoder == "sentences") != bool(self.model and self.digest):
            raise self._refuse("model and digest belong to the encoder 'sentences' alone.")

    @property
    def n_features(self) -> int:
        """The declared size."""
        return self.size

    def feature_map(self) -> FrozenTransformer:
        """Return the map from texts to features, which learns nothing."""
        from poisonproof.features import HashedNGrams, SentenceEmbedding

        if self.encoder == "sentences":
            return SentenceEmbedding(self.model, n_features=self.size, digest=self.digest)
        return HashedNGrams(
            self.size, analyzer=self.analyzer, ngram_range=(self.shortest, self.longest)
        )
