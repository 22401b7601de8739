"""What a partitioner is, and the partitioners that read samples."""

from __future__ import annotations

import dataclasses
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.blocks import row_blocks
from poisonproof.partition.canonical import CANONICAL_FORM, sample_digests
from poisonproof.partition.containers import as_container, n_rows
from poisonproof.partition.sorted_order import sample_ranks

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
    unit : {"row", "sample", "group", "entity", "source", "day", "block"}
        What the attacker's budget counts.
    by_group : bool
        Whether `groups` decide, and not the samples.
    rowwise : bool
        Whether a row's partition depends on that row alone.
    hint : mapping from str to str
        For each threat that is not certified, what to use instead.
    n_blocks : int
        Into how many blocks of features a row is cut, with a member for each: one but in a grid.
    """

    n_partitions: int | None = None

    name: ClassVar[str]
    certifies: ClassVar[Mapping[str, int]] = {"insert_delete": 1, "label_flip": 1, "replace": 2}
    unit: ClassVar[str] = "row"
    by_group: ClassVar[bool] = False
    rowwise: ClassVar[bool] = True
    hint: ClassVar[Mapping[str, str]] = {}
    n_blocks: ClassVar[int] = 1

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
            Who contributed each row, or when. Read where `by_group` is true.

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

    def spec(self) -> dict[str, Any]:
        """Return everything that decides the partitions, as JSON."""
        options = {key: v for key, v in dataclasses.asdict(self).items() if v is not None}
        return {"name": self.name, "canonical_form": CANONICAL_FORM} | options


def reduce_digests(digests: NDArray[np.uint8], k: int) -> NDArray[np.int64]:
    """Return the first 128 bits of each digest, read as a little-endian number, modulo `k`.

    No partition is more likely than another by more than k / 2^128.
    """
    words = np.ascontiguousarray(digests[:, :16]).view("<u8")
    low, high = words[:, 0] % k, words[:, 1] % k
    # With k < 2^31 no term reaches 2^62, so the exact remainder fits uint64.
    remainder = (high * np.uint64(2**64 % k) + low) % np.uint64(k)
    return np.asarray(remainder, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class ContentHash(Partitioner):
    """Put each sample where the digest of its values says; the label is not hashed.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    The partition of a row depends on its values alone. A row inserted, deleted or relabelled
    touches one partition, and a replaced row at most two.

    Examples
    --------
    >>> X = np.arange(12).reshape(4, 3)
    >>> partitioner = ContentHash(n_partitions=50)
    >>> np.array_equal(partitioner.assign(X), partitioner.assign(X.astype(np.float32)))
    True
    """

    name: ClassVar[str] = "content"

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each sample; `groups` are not read."""
        return self.assign_digests(sample_digests(X))

    def assign_digests(self, digests: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the partition of each sample from its digest, shape (n, 32)."""
        return reduce_digests(digests, self.k)


@dataclass(frozen=True, kw_only=True)
class PixelSum(Partitioner):
    """Put each image where the sum of its integer pixel values, modulo k, says.

    This is the hash of the paper (its h). Sums are exact in every dtype. Images of different
    sizes come as a list of arrays.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    That of `ContentHash`. Nothing stops an attacker from choosing the partition of a row, and the
    certificate does not need that; but `ContentHash` spreads ordinary data more evenly.

    Examples
    --------
    >>> PixelSum(n_partitions=10).assign(np.array([[250, 5], [1, 1]], dtype=np.uint8))
    array([5, 2])
    """

    name: ClassVar[str] = "pixel_sum"

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each image; `groups` are not read.

        Raises
        ------
        InvalidRowsError
            If a pixel is negative, a fraction or missing: the published hash is not defined there.
        """
        sums, valid = self._sums(X)
        if not valid.all():
            raise InvalidRowsError(
                f"Row {int(valid.argmin())} holds a value that is not a pixel, but PixelSum adds "
                "integers. Pass the original pixels (0, 1, 2, ...), or use ContentHash, which "
                "takes any values."
            )
        return sums

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which images hold only integers of at least 0."""
        return self._sums(X)[1]

    def _sums(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the sum of each image modulo k, and whether it holds nothing but pixels."""
        X = as_container(X)
        sums, valid = np.zeros(n_rows(X), dtype=np.int64), np.ones(n_rows(X), dtype=np.bool_)
        for rows, values, _ in row_blocks(X):
            if isinstance(values, list):
                for column in values:
                    rest, pixels = _remainders(np.where(column.odd, 0, column.floats), self.k)
                    large = zip(np.flatnonzero(column.odd), column.taken(column.odd), strict=True)
                    for i, cell in large:
                        pixels[i] = isinstance(cell, int) and cell >= 0
                        rest[i] = cell % self.k if isinstance(cell, int) else 0
                    sums[rows] += rest
                    valid[rows] &= pixels
            elif isinstance(values, np.ndarray):
                rest, pixels = _remainders(values, self.k)
                sums[rows], valid[rows] = rest.sum(axis=1, dtype=np.int64), pixels.all(axis=1)
            else:
                rest, pixels = _remainders(values.data, self.k)
                totals = np.append(0, np.cumsum(rest, dtype=np.int64))
                wrong = np.append(0, np.cumsum(~pixels))
                sums[rows] = np.diff(totals[values.indptr])
                valid[rows] = np.diff(wrong[values.indptr]) == 0
        return sums % self.k, valid


def _remainders(values: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return numbers that add up to the pixels modulo `k`, and which of them are pixels."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        pixels = (values >= 0) & (np.trunc(values) == values) & np.isfinite(values)
        return (np.where(pixels, values, 0) % k).astype(np.int64), np.asarray(pixels)
    pixels = np.asarray(values >= 0) if kind == "i" else np.ones(values.shape, dtype=np.bool_)
    rest = values if size < 4 else (values.astype(np.uint64) % np.uint64(k)).astype(np.int64)
    return rest, pixels


_USE_CONTENT_HASH = (
    "Use ContentHash: its partitions do not move when rows are inserted, deleted or replaced."
)


@dataclass(frozen=True, kw_only=True)
class SortedIndex(Partitioner):
    """Sort the distinct samples and put number j of that order into partition j modulo k.

    These are the partitions of SS-DPA. The order is that of `numpy.lexsort` over the flattened
    pixels: the *last* one is compared first. The paper's images are channel-first; transpose
    images whose channels come last. All rows of a repeated sample share a partition (appendix G of
    the paper), so the partitions are balanced over distinct samples. Images of different sizes,
    given as a list of arrays, are compared as if padded with black to a common size.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    The partition depends on the values of the samples alone, never on a label, so that a sample
    whose labels are flipped touches one partition.

    Assumes
    -------
    The attacker changes labels only. One inserted sample can move all others.

    Examples
    --------
    >>> SortedIndex(n_partitions=2).assign(np.array([[9, 1], [0, 3], [5, 2], [9, 1]]))
    array([0, 0, 1, 0])
    """

    name: ClassVar[str] = "sorted"
    certifies: ClassVar[Mapping[str, int]] = {"label_flip": 1}
    unit: ClassVar[str] = "sample"
    rowwise: ClassVar[bool] = False
    hint: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("insert_delete", "replace"), _USE_CONTENT_HASH
    )

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each sample; `groups` are not read."""
        return sample_ranks(X) % self.k
