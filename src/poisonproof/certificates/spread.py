"""Buckets and the members they serve: the overlapping partitions of finite aggregation."""

from __future__ import annotations

import hashlib
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.exceptions import InvalidInputError

__all__ = ["Spread", "check_membership", "make_spread"]


@dataclass(frozen=True)
class Spread:
    """How k d buckets of rows are spread over k d members, d buckets to the member.

    A row falls into one bucket. Bucket b serves the members (b + r) mod k d for every offset r, and
    so member j trains on the buckets (j - r) mod k d: about 1/k of all rows, as with k disjoint
    partitions, and every row reaches d members. The structure depends on k, d and the offsets
    alone, never on data.

    Parameters
    ----------
    n_partitions : int
        k, the inverse of the share of rows that one member sees.
    offsets : tuple of int
        d distinct numbers from 0 to k d - 1.

    Examples
    --------
    >>> spread = Spread(n_partitions=2, offsets=(0, 1))
    >>> spread.members_of_bucket.tolist()
    [[0, 1], [1, 2], [2, 3], [3, 0]]
    >>> spread.buckets_of_member.tolist()
    [[0, 3], [1, 0], [2, 1], [3, 2]]
    """

    n_partitions: int
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_partitions", _whole("n_partitions", self.n_partitions, 1))
        offsets = tuple(_whole("An offset", offset, 0) for offset in self.offsets)
        object.__setattr__(self, "offsets", offsets)
        if not offsets or len(set(offsets)) < len(offsets) or max(offsets) >= self.n_buckets:
            raise InvalidInputError(
                f"offsets are at least one distinct number below n_partitions * len(offsets) = "
                f"{self.n_buckets}. Got {offsets}."
            )

    @property
    def degree(self) -> int:
        """Members that a bucket serves, and buckets that a member trains on: d."""
        return len(self.offsets)

    @property
    def n_buckets(self) -> int:
        """Number of buckets, and of members: k d."""
        return self.n_partitions * self.degree

    @property
    def members_of_bucket(self) -> NDArray[np.int64]:
        """Members that each bucket serves, shape (k d, d)."""
        return self._shifted(np.array(self.offsets, dtype=np.int64))

    @property
    def buckets_of_member(self) -> NDArray[np.int64]:
        """Buckets that each member trains on, shape (k d, d)."""
        return self._shifted(-np.array(self.offsets, dtype=np.int64))

    def _shifted(self, by: NDArray[np.int64]) -> NDArray[np.int64]:
        shifted: NDArray[np.int64] = (np.arange(self.n_buckets)[:, None] + by) % self.n_buckets
        return shifted


def make_spread(n_partitions: int, degree: int, seed: int = 0) -> Spread:
    """Draw the offsets of a spread from a seed, the same on every machine and version.

    Examples
    --------
    >>> make_spread(50, degree=4).n_buckets
    200
    >>> make_spread(50, degree=4) == make_spread(50, degree=4, seed=0)
    True
    """
    n_buckets = _whole("n_partitions", n_partitions, 1) * _whole("degree", degree, 1)
    key = f"poisonproof spread {n_partitions} {degree} {_whole('seed', seed, 0)}"
    offsets: dict[int, None] = {}
    draw = 0
    while len(offsets) < degree:
        digest = hashlib.sha256(f"{key} {draw}".encode()).digest()
        offsets[int.from_bytes(digest[:16], "big") % n_buckets] = None
        draw += 1
    return Spread(n_partitions, tuple(offsets))


def check_membership(membership: Spread | ArrayLike, n_members: int) -> NDArray[np.int64]:
    """Return the members of every bucket, shape (B, d), or raise if they are none of the members.

    Parameters
    ----------
    membership : Spread or array-like of int, shape (B, d)
        Row b lists the members that can change when bucket b changes, each once.
    n_members : int
        Number of members.
    """
    if isinstance(membership, Spread) and membership.n_buckets != n_members:
        raise InvalidInputError(
            f"The spread of {membership.n_partitions} partitions, degree {membership.degree}, has "
            f"{membership.n_buckets} members, but there are votes of {n_members}. Members that no "
            "bucket serves would count as beyond the attacker's reach."
        )
    array: NDArray[Any] = (
        membership.members_of_bucket if isinstance(membership, Spread) else np.asarray(membership)
    )
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "iu":
        raise InvalidInputError(
            "membership is a Spread, or lists the members of every bucket as integers, one row per "
            f"bucket. Got shape {array.shape} of dtype {array.dtype}."
        )
    if int(array.min()) < 0 or int(array.max()) >= n_members:
        raise InvalidInputError(
            f"membership names the members 0 to {n_members - 1}, one per column of the votes. Got "
            f"{int(array.min())} to {int(array.max())}."
        )
    members = np.sort(array.astype(np.int64), axis=1)
    repeats = (members[:, 1:] == members[:, :-1]).any(axis=1)
    if repeats.any():
        raise InvalidInputError(f"Bucket {int(repeats.argmax())} names a member twice.")
    return members


def _whole(name: str, value: object, least: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool | np.bool_) or number < least:
        raise InvalidInputError(f"{name} is a whole number, at least {least}. Got {value!r}.")
    return number
