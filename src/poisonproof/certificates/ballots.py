"""Scores as ballots: every member orders the classes, higher score first, ties by smaller index.

The scores are read in blocks of rows, so that a memory map larger than the memory can be certified.
Comparing scores is all that is ever done with them: everything after this file is integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.counting import ABSTAIN
from poisonproof.exceptions import InvalidInputError

__all__ = ["Ballots", "check_scores", "read_ballots"]

_BLOCK = 1 << 21  # scores read together; bounds the temporary arrays


@dataclass(frozen=True)
class Ballots:
    """The orders of k members on h test rows.

    Attributes
    ----------
    scores : ndarray of shape (C, h, k)
        Scores, class by class. An abstaining member has NaN for every class.
    first : ndarray of int, shape (h, k)
        First choice of every member, -1 where it abstains.
    """

    scores: NDArray[Any]
    first: NDArray[np.int16]

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return len(self.scores)

    def prefers(self, label: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
        """Say which members rank `label` before `other`; both of shape (h,), result (h, k).

        Nobody ranks a label before itself, and an abstaining member ranks nothing.

        Examples
        --------
        >>> (rows, ballots), = read_ballots(np.array([[[1.0, 1.0, 0.0], [np.nan] * 3]]))
        >>> ballots.prefers(np.array([0]), np.array([1])), ballots.first
        (array([[ True, False]]), array([[ 0, -1]], dtype=int16))
        """
        rows = np.arange(len(self.first))
        ours, theirs = self.scores[label, rows], self.scores[other, rows]
        result: NDArray[np.bool_] = ours > theirs
        result |= (ours == theirs) & (label < other)[:, None]
        return result


def check_scores(scores: ArrayLike) -> NDArray[Any]:
    """Return `scores` as a numeric array of shape (n, k, C), k and C >= 1, without copying it.

    The values are checked where they are read.
    """
    if np.ma.isMaskedArray(scores):
        raise InvalidInputError(
            "scores is a masked array. Write NaN for all classes where a member abstains."
        )
    array = np.asarray(scores)
    if array.ndim != 3 or 0 in array.shape[1:]:
        raise InvalidInputError(
            "scores must have three dimensions: one row per test sample, at least one member, at "
            f"least one class. Got shape {array.shape}."
        )
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"scores must be real numbers, such as float32. Got dtype {array.dtype}."
        )
    if array.shape[1] > np.iinfo(np.int32).max or array.shape[2] > np.iinfo(np.int16).max:
        raise InvalidInputError(
            f"scores has {array.shape[1]:,} members and {array.shape[2]:,} classes; at most "
            "2^31 - 1 and 32,767 are allowed."
        )
    return array


def read_ballots(
    scores: NDArray[Any], max_rows: int | None = None
) -> Iterator[tuple[slice, Ballots]]:
    """Read checked scores in blocks of rows.

    Parameters
    ----------
    scores : ndarray of shape (n, k, C)
        As `check_scores` returns them.
    max_rows : int, optional
        Largest block that the caller can deal with.

    Yields
    ------
    rows : slice
        The rows of the block.
    ballots : Ballots
        What the members say about them.

    Raises
    ------
    InvalidInputError
        Naming the first infinite score, or the first NaN beside a number.
    """
    n, k, n_classes = scores.shape
    height = max(1, _BLOCK // (k * n_classes))
    height = height if max_rows is None else min(height, max_rows)
    for top in range(0, n, height):
        rows = slice(top, min(top + height, n))
        # Half precision is compared in single precision, which holds it exactly and is faster.
        dtype = np.float32 if scores.dtype == np.float16 else scores.dtype.newbyteorder("=")
        by_class = np.ascontiguousarray(np.moveaxis(scores[rows], 2, 0), dtype=dtype)
        yield rows, Ballots(by_class, _first_choices(by_class, top))


def _first_choices(by_class: NDArray[Any], top: int) -> NDArray[np.int16]:
    abstains = None
    if by_class.dtype.kind == "f" and not np.isfinite(by_class).all():
        abstains = np.isnan(by_class).all(axis=0)
        _check_finite(by_class, abstains, top)
    best = by_class[0].copy()
    first = np.zeros(best.shape, dtype=np.int16)
    for label in range(1, len(by_class)):
        better = by_class[label] > best
        np.copyto(best, by_class[label], where=better)
        np.copyto(first, np.int16(label), where=better)
    if abstains is not None:
        first[abstains] = ABSTAIN
    return first


def _check_finite(by_class: NDArray[Any], abstains: NDArray[np.bool_], top: int) -> None:
    bad = ~np.isfinite(by_class) & ~abstains
    if bad.any():
        row, member, label = (int(i) for i in np.argwhere(np.moveaxis(bad, 0, 2))[0])
        raise InvalidInputError(
            f"scores[{top + row}, {member}, {label}] is {by_class[label, row, member]}. A member "
            "scores every class with a finite number, or abstains with NaN for all classes."
        )
