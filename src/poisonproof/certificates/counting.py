"""From a vote matrix to vote counts, checked and in bounded memory.

The matrix is walked in tiles that stay in the processor's cache, so the only large array made is
the result. Few classes with many members are counted by comparing with one class after the other
(about 0.1 ns per vote and class, and 80 ns per row and class), everything else by
`numpy.bincount` (about 3 ns per vote, whatever the number of classes).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.exceptions import InvalidVotesError

__all__ = ["ABSTAIN", "check_n_classes", "check_votes", "count_votes"]

ABSTAIN = -1
"""The vote of a member that gives none."""

_TILE = 1 << 19  # votes per tile
_LANES = 8  # bytes in a 64-bit word
_COLUMNS = 255 * _LANES  # columns whose 0/1 bytes can be added word by word without a carry


def check_n_classes(n_classes: int) -> int:
    """Return `n_classes` as an int, or raise if it is not a whole number of at least 1."""
    try:
        number = operator.index(n_classes)
    except TypeError:
        number = 0
    if isinstance(n_classes, bool | np.bool_) or number < 1:
        raise InvalidVotesError(f"n_classes is a whole number, at least 1. Got {n_classes!r}.")
    return number


def check_votes(votes: ArrayLike) -> NDArray[Any]:
    """Return `votes` as an integer array of shape (n, k), k >= 1, without copying an array.

    The range of the values is checked where they are counted.
    """
    if np.ma.isMaskedArray(votes):
        raise InvalidVotesError("votes is a masked array. Write -1 where a member abstains.")
    try:
        array = np.asarray(votes)
    except ValueError as error:
        raise InvalidVotesError(
            f"votes must be a rectangle: one row per test sample, one column per member ({error})."
        ) from error
    if array.ndim != 2:
        raise InvalidVotesError(
            "votes must have two dimensions, one row per test sample and one column per member. "
            f"Got shape {array.shape}."
        )
    if array.shape[1] == 0:
        raise InvalidVotesError(
            f"votes has no members: shape {array.shape}. At least one column is needed."
        )
    if array.shape[1] > np.iinfo(np.int32).max:
        raise InvalidVotesError(f"votes has {array.shape[1]:,} members, more than 2^31 - 1.")
    if array.dtype.kind not in "iu":
        raise _not_integers(array)
    return array


def count_votes(votes: ArrayLike, n_classes: int) -> NDArray[np.int32]:
    """Count the votes for each class.

    Parameters
    ----------
    votes : array-like of int, shape (n, k)
        Class indices in any integer dtype, -1 where a member abstains.
    n_classes : int
        Number of classes, C.

    Returns
    -------
    ndarray of shape (n, C)
        The paper's n_c(x). Abstentions count for nobody.

    Examples
    --------
    >>> count_votes([[0, 2, 2, -1], [1, 1, 1, 1]], n_classes=3)
    array([[1, 0, 2],
           [0, 4, 0]], dtype=int32)
    """
    n_classes = check_n_classes(n_classes)
    array = check_votes(votes)
    counts = np.zeros((len(array), n_classes), dtype=np.int32)
    compare = n_classes * (800 + array.shape[1]) <= 24 * array.shape[1]  # the cheaper of the two
    for rows, tile in _tiles(array, n_classes, _COLUMNS if compare else _TILE):
        if _out_of_range(tile, n_classes):
            raise _first_out_of_range(array, rows.start, n_classes)
        counts[rows] += (_compare if compare else _bincount)(tile, n_classes)
    return counts


def _tiles(
    votes: NDArray[Any], n_classes: int, max_columns: int
) -> Iterator[tuple[slice, NDArray[Any]]]:
    n, k = votes.shape
    blocks = -(-k // max_columns)
    width = -(-k // blocks)  # blocks of equal width: no nearly empty last one
    height = max(1, _TILE // max(width, n_classes))
    for top in range(0, n, height):
        rows = slice(top, min(top + height, n))
        for left in range(0, k, width):
            yield rows, votes[rows, left : left + width]


def _compare(tile: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """Count by comparing with each class, eight 0/1 bytes to the 64-bit word.

    A row of at most 255 words is added without a carry from one byte into the next, so each byte
    of the sum is the count of one column out of eight.
    """
    height, width = tile.shape
    narrow = tile.astype(
        np.uint8, order="C", copy=False
    )  # -1 becomes 255; there are at most 24 classes
    hits = np.zeros((height, -(-width // _LANES) * _LANES), dtype=np.bool_)
    words = hits.view(np.uint64)
    counts = np.empty((height, n_classes), dtype=np.int64)
    for label in range(n_classes):
        np.equal(narrow, np.uint8(label), out=hits[:, :width])
        lanes = np.add.reduce(words, axis=1).view(np.uint8).reshape(height, _LANES)
        np.add.reduce(lanes, axis=1, dtype=np.int64, out=counts[:, label])
    return counts


def _bincount(tile: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """Count all rows of the tile in one histogram, with a bin for the abstentions of each row."""
    height, bins = len(tile), n_classes + 1
    first_bin = np.arange(height, dtype=np.int64)[:, None] * bins + 1
    flat = (tile.astype(np.int64) + first_bin).ravel()
    return np.bincount(flat, minlength=height * bins).reshape(height, bins)[:, 1:]


def _out_of_range(tile: NDArray[Any], n_classes: int) -> bool:
    if tile.dtype.kind == "i" and int(tile.min()) < ABSTAIN:
        return True
    return int(tile.max()) >= n_classes


def _first_out_of_range(votes: NDArray[Any], top: int, n_classes: int) -> InvalidVotesError:
    """Name the first bad vote in reading order; the rows above `top` are known to be good."""
    row = next(i for i in range(top, len(votes)) if _out_of_range(votes[i : i + 1], n_classes))
    line = votes[row]
    bad = line >= n_classes
    if votes.dtype.kind == "i":
        bad |= line < ABSTAIN
    member = int(bad.argmax())
    return InvalidVotesError(
        f"votes[{row}, {member}] is {int(line[member])}; a vote is a class index from 0 to "
        f"{n_classes - 1} (n_classes={n_classes}) or -1 for an abstention."
    )


def _not_integers(votes: NDArray[Any]) -> InvalidVotesError:
    where = ""
    if votes.size:
        flat = 0
        if votes.dtype.kind == "f":
            flat = int((votes != np.floor(votes)).argmax())  # a fraction or NaN, else the first
        row, member = divmod(flat, votes.shape[1])
        where = f"; votes[{row}, {member}] is {votes[row, member : member + 1].tolist()[0]!r}"
    return InvalidVotesError(
        f"votes must be integers (class indices, -1 for an abstention). Got dtype {votes.dtype}"
        f"{where}. Convert them first, for example with votes.astype('int16')."
    )
