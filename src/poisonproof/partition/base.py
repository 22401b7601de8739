"""What a partitioner is, and what it certifies."""

from __future__ import annotations

import dataclasses
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition.canonical import CANONICAL_FORM
from poisonproof.partition.containers import n_rows

__all__ = ["Partitioner"]

LARGEST_K = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Partitioner(ABC):
    """A rule that puts every sample into one of k partitions.

    Parameters
    ----------
    n_partitions : int, optional
        The number of partitions, k >= 1. Left out only where an estimator fills it in.

    Attributes
    ----------
    name : str
        What `make_partitioner` and saved models call this rule.
    certifies : mapping from str to int
        For each certified threat, how many partitions one unit of the attack can touch.
    unit : {"row", "group", "sample"}
        What the attacker's budget counts.
    rowwise : bool
        Whether a row's partition depends on that row alone.
    hint : mapping from str to str
        For each threat that is not certified, what to use instead.
    """

    n_partitions: int | None = None

    name: ClassVar[str]
    certifies: ClassVar[Mapping[str, int]]
    unit: ClassVar[str]
    rowwise: ClassVar[bool]
    hint: ClassVar[Mapping[str, str]]

    def __post_init__(self) -> None:
        if self.n_partitions is None:
            return
        k = self.n_partitions
        try:
            number = operator.index(k)
        except TypeError:
            number = 0
        if isinstance(k, (bool, np.bool_)) or not 1 <= number <= LARGEST_K:
            raise InvalidInputError(
                f"n_partitions must be an integer from 1 to {LARGEST_K}, but it is {k!r}."
            )
        object.__setattr__(self, "n_partitions", number)

    @property
    def k(self) -> int:
        """The number of partitions; raises if it was left out."""
        if self.n_partitions is None:
            raise InvalidInputError(
                f"{type(self).__name__} does not know how many partitions to make. "
                "Set n_partitions."
            )
        return self.n_partitions

    @abstractmethod
    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each sample.

        Parameters
        ----------
        X : array, sparse matrix, frame, series or sequence of n samples
            The samples.
        groups : array or sequence of n identities, optional
            Who contributed each row. Read by `GroupHash` alone.

        Returns
        -------
        ndarray of int64 of shape (n,)
            Numbers in [0, k).
        """

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which samples have a partition, shape (n,); `assign` raises for the others.

        Whether a sample has one depends on that sample (and its group) alone.
        """
        return np.ones(n_rows(X), dtype=np.bool_)

    def specification(self) -> dict[str, Any]:
        """Return everything that decides the partitions, as JSON."""
        return {"name": self.name, "canonical_form": CANONICAL_FORM} | dataclasses.asdict(self)

    @classmethod
    def from_specification(cls, specification: Mapping[str, Any]) -> Self:
        """Return the partitioner that `specification` describes.

        Raises
        ------
        InvalidInputError
            If it describes another partitioner, or another version of the canonical form.
        """
        options = dict(specification)
        name, form = options.pop("name", None), options.pop("canonical_form", None)
        if name != cls.name or form != CANONICAL_FORM:
            raise InvalidInputError(
                f"This version makes {cls.name!r} partitions of canonical form {CANONICAL_FORM}, "
                f"but {name!r} partitions of canonical form {form!r} were asked."
            )
        try:
            return cls(**options)
        except TypeError:
            known = sorted(field.name for field in dataclasses.fields(cls))
            raise InvalidInputError(
                f"A {cls.name!r} partitioner has the options {known}, but {sorted(options)} came."
            ) from None
