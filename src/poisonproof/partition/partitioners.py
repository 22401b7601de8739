"""The partitioners: rules that put every sample into one of k partitions."""

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
from poisonproof.partition.canonical import CANONICAL_FORM, readable_rows, sample_digests
from poisonproof.partition.containers import as_container, n_rows, take_rows
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
    unit : {"row", "group", "sample"}
        What the attacker's budget counts.
    rowwise : bool
        Whether a row's partition depends on that row alone.
    hint : mapping from str to str
        For each threat that is not certified, what to use instead.
    """

    n_partitions: int | None = None

    name: ClassVar[str]
    certifies: ClassVar[Mapping[str, int]] = {"insert_delete": 1, "label_flip": 1, "replace": 2}
    unit: ClassVar[str] = "row"
    rowwise: ClassVar[bool] = True
    hint: ClassVar[Mapping[str, str]] = {}

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

    def spec(self) -> dict[str, Any]:
        """Return everything that decides the partitions, as JSON."""
        return {"name": self.name, "canonical_form": CANONICAL_FORM} | dataclasses.asdict(self)


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
class GroupHash(Partitioner):
    """Put all rows of a contributor (user, device, domain) into one partition.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    The radius counts malicious contributors, whatever each does to however many rows.

    Assumes
    -------
    Identities cannot be forged: nobody can contribute under another name, or under many.

    Examples
    --------
    >>> X = np.zeros((4, 2))
    >>> first, *_, last = GroupHash(n_partitions=50).assign(X, groups=["ada", "bo", "cy", "ada"])
    >>> bool(first == last)
    True
    """

    name: ClassVar[str] = "group"
    certifies: ClassVar[Mapping[str, int]] = {"replace": 1, "insert_delete": 1, "label_flip": 1}
    unit: ClassVar[str] = "group"

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each row from its group; the samples are not read.

        Identities are compared in canonical form: ``1``, ``1.0`` and ``numpy.int64(1)`` are one
        group, ``"1"`` is another. A tuple is an identity of several parts.

        Raises
        ------
        InvalidInputError
            If `groups` is left out, has another length than `X`, or a group is missing.
        """
        if groups is None:
            raise InvalidInputError(
                "GroupHash needs groups, one identity per row of X: fit(X, y, groups=...)."
            )
        if n_rows(groups) != n_rows(X):
            raise InvalidInputError(
                f"groups has {n_rows(groups)} entries, but X has {n_rows(X)} rows. "
                "Give one identity per row."
            )
        try:
            missing = _rows_without_group(groups)
            digests = sample_digests(groups)
        except InvalidRowsError as error:
            raise InvalidInputError(f"groups cannot be read as identities: {error}") from None
        if len(missing):
            raise InvalidInputError(
                f"Row {missing[0]} has no group ({len(missing)} rows in all). Give every row an "
                "identity: rows without one could come from any number of contributors."
            )
        return reduce_digests(digests, self.k)

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which rows have a group that can be read; without any, `assign` says so."""
        if groups is None or n_rows(groups) != n_rows(X):
            return np.ones(n_rows(X), dtype=np.bool_)
        try:
            placeable = readable_rows(groups)
            kept = np.flatnonzero(placeable)
            placeable[kept[_rows_without_group(take_rows(as_container(groups), kept))]] = False
        except InvalidRowsError as error:
            raise InvalidInputError(f"groups cannot be read as identities: {error}") from None
        return placeable


def _rows_without_group(groups: Any) -> NDArray[np.intp]:
    found = [np.empty(0, dtype=np.intp)]
    for rows, values, _ in row_blocks(as_container(groups)):
        if isinstance(values, list):
            missing = [np.isnan(column.floats) & ~column.odd for column in values]
            # An identity of no parts is none.
            found.append(rows[np.any(missing, axis=0)] if missing else rows)
        elif isinstance(values, np.ndarray):
            found.append(rows[np.isnan(values).any(axis=1)])
        else:
            raise InvalidRowsError("a sparse matrix cannot hold identities")
    return np.sort(np.concatenate(found))


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


_ALL: tuple[type[Partitioner], ...] = (ContentHash, PixelSum, SortedIndex, GroupHash)
PARTITIONERS: Mapping[str, type[Partitioner]] = {rule.name: rule for rule in _ALL}


def make_partitioner(
    partitioner: str | Partitioner, n_partitions: int | None = None
) -> Partitioner:
    """Return a partitioner with its number of partitions, which an instance may leave open."""
    if isinstance(partitioner, str) and partitioner in PARTITIONERS:
        partitioner = PARTITIONERS[partitioner]()
    if not isinstance(partitioner, Partitioner):
        raise InvalidInputError(
            f"partitioner must be one of {', '.join(map(repr, PARTITIONERS))} or a Partitioner, "
            f"but it is {partitioner!r}."
        )
    if n_partitions is None:
        n_partitions = partitioner.k
    if partitioner.n_partitions not in {None, n_partitions}:
        raise InvalidInputError(
            f"n_partitions is {n_partitions}, but the partitioner makes "
            f"{partitioner.n_partitions} partitions. Give one number, or the same number twice."
        )
    return dataclasses.replace(partitioner, n_partitions=n_partitions)


def partitioner_from_spec(spec: Mapping[str, Any]) -> Partitioner:
    """Return the partitioner that `Partitioner.spec` described."""
    options = dict(spec)
    name, form = str(options.pop("name", None)), options.pop("canonical_form", None)
    if name not in PARTITIONERS or form != CANONICAL_FORM or set(options) != {"n_partitions"}:
        raise InvalidInputError(
            f"A saved partitioner is one of {', '.join(map(repr, PARTITIONERS))} of canonical form "
            f"{CANONICAL_FORM}, with n_partitions. Got {spec!r:.200}."
        )
    return PARTITIONERS[name](**options)
