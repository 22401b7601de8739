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

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat, parse_threat
from poisonproof.exceptions import InvalidInputError, InvalidVotesError

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


# Plurality votes and their certificates: theorems 1 and 2, and the exact targeted radius.
#
# Everything here is integer arithmetic on vote counts; no model and no training data is needed.

_BLOCK = 1 << 18  # counts looked at together; bounds the temporary arrays


def certify_votes(
    votes: ArrayLike,
    n_classes: int,
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
) -> Certificates:
    """Certify the plurality label of every row of a vote matrix.

    Parameters
    ----------
    votes : array-like of int, shape (n, k)
        One row per test sample, one column per member: a class index, or -1 where the member
        abstains. Any integer dtype; memory maps are read in pieces.
    n_classes : int
        Number of classes, C. A declared quantity: it must not depend on the votes.
    threat : str or Threat
        ``"insert_delete"``, ``"label_flip"`` or ``"replace"`` count rows; append ``"/group"`` or
        ``"/sample"`` for another unit.
    target : int or array-like of int, shape (n,), optional
        Certify against this label only: the radius is then the largest attack that cannot make
        the target win, although other labels may. It is -1 where the target already wins.

    Returns
    -------
    Certificates
        With class indices as labels.

    Guarantee
    ---------
    An attack of at most ``radius`` units leaves the label as it is (with `target`: keeps it from
    becoming the target). Theorems 1 and 2. The radius is tight for the votes: some change of the
    votes within reach of ``radius + 1`` units succeeds, unless there is only one class.

    Assumes
    -------
    One unit of attack changes at most ``threat.touches`` members. The votes alone cannot show
    that: it is what the partitioner and the training must guarantee, so the threat is the
    caller's statement about where the votes come from.

    Examples
    --------
    >>> certificates = certify_votes([[0, 0, 0, 0, 0, 1, 1], [2, 1, 1, 2, -1, -1, -1]], n_classes=3)
    >>> certificates.labels, certificates.radius, certificates.runner_up
    (array([0, 1]), array([1, 0]), array([1, 2]))
    >>> certify_votes([[0, 0, 0, 0, 1, 1, 1, 2]], n_classes=3, target=2).radius
    array([2])
    """
    threat = parse_threat(threat)
    n_classes = check_n_classes(n_classes)
    votes = check_votes(votes)
    n, k = votes.shape
    targets = None if target is None else check_target(target, n, n_classes)
    counts = count_votes(votes, n_classes)
    labels, runner_up = plurality(counts)
    if targets is None:
        partitions = plurality_radius(counts, labels, runner_up, k)
    else:
        partitions = targeted_radius(counts, labels, targets, k)
    arrays = labels, partitions // threat.touches, runner_up, counts
    for array in arrays:
        array.setflags(write=False)  # handed over, so `Certificates` need not copy them
    return Certificates(*arrays, threat=threat, n_members=k, target=targets)


def plurality(counts: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the winning label and the runner-up of every row.

    Parameters
    ----------
    counts : ndarray of int, shape (n, C)
        Votes per class.

    Returns
    -------
    labels : ndarray of shape (n,)
        The label with most votes; of several, the smallest. Label 0 where everybody abstains.
    runner_up : ndarray of shape (n,)
        The label that needs fewest changed votes to overtake; of several, the smallest. With one
        class there is no other label and the winner is repeated.

    Examples
    --------
    >>> plurality(np.array([[1, 3, 3], [2, 0, 2]]))
    (array([1, 0]), array([2, 2]))
    """
    labels = np.empty(len(counts), dtype=np.int64)
    runner_up = np.empty(len(counts), dtype=np.int64)
    for rows in _row_blocks(counts):
        labels[rows] = counts[rows].argmax(axis=1)
        runner_up[rows] = _rivals(counts[rows], labels[rows]).argmax(axis=1)
    return labels, runner_up


def plurality_radius(
    counts: NDArray[Any], labels: NDArray[Any], runner_up: NDArray[Any], n_members: int
) -> NDArray[np.int64]:
    """Return how many members may change without changing the label (theorems 1 and 2).

    The paper's rho, floor((n_c - max_{c' != c}(n_c' + [c' < c])) / 2): a changed vote takes one
    from the winner and gives one to a rival, and a rival of smaller index wins ties. With a
    single class no vote can change the label; the radius is then `n_members`, all of them.

    Examples
    --------
    >>> counts = np.array([[5, 2, 0], [0, 5, 2]])
    >>> plurality_radius(counts, *plurality(counts), n_members=7)
    array([1, 1])
    """
    if counts.shape[1] == 1:
        return np.full(len(counts), n_members, dtype=np.int64)
    rows = np.arange(len(counts))
    lead: NDArray[np.int64] = counts[rows, labels].astype(np.int64) - counts[rows, runner_up]
    return (lead - (runner_up < labels)) // 2


def targeted_radius(
    counts: NDArray[Any], labels: NDArray[Any], target: NDArray[Any], n_members: int
) -> NDArray[np.int64]:
    """Return how many members may change without making the target win.

    With r changed votes the target q reaches at most n_q + r. Every other label a must then give
    up its excess max(0, n_a + [a < q] - n_q - r), and the attack succeeds exactly when these
    excesses are at most r in all: votes that need not come from them come from anybody, an
    abstention too. The smallest such r is found by bisection, because the excess falls and the
    supply grows with r; it is at most k - n_q, when every vote is the target's.

    Where one unit of attack changes t members, the radius in units is ``radius // t``. That is
    sound, as r units change at most t r members, and as tight as the votes can show: one more
    unit reaches at least radius + 1 members, all that the shortest attack needs. (Whether training
    rows exist that make those members vote so is beyond any certificate from votes.)

    Parameters
    ----------
    counts : ndarray of int, shape (n, C)
        Votes per class.
    labels, target : ndarray of int, shape (n,)
        Winning and target label.
    n_members : int
        Number of members, k.

    Returns
    -------
    ndarray of shape (n,)
        The radius; -1 where the target has won already and no attack is needed.

    Examples
    --------
    The gap to the target alone, floor((4 - 1) / 2) = 1, would not be tight:

    >>> targeted_radius(np.array([[4, 3, 1]]), np.array([0]), np.array([2]), n_members=8)
    array([2])
    """
    radius = np.empty(len(counts), dtype=np.int64)
    for rows in _row_blocks(counts):
        radius[rows] = _bisect(counts[rows].astype(np.int64), target[rows], n_members)
    radius[labels == target] = -1
    return radius


def _bisect(counts: NDArray[Any], target: NDArray[Any], n_members: int) -> NDArray[np.int64]:
    own = np.take_along_axis(counts, target[:, None], axis=1)
    excess = counts + (np.arange(counts.shape[1]) < target[:, None]) - own
    fails, succeeds = np.zeros(len(counts), dtype=np.int64), n_members - own[:, 0]
    while np.any(succeeds - fails > 1):
        middle = (fails + succeeds) // 2
        enough = np.maximum(excess - middle[:, None], 0).sum(axis=1) <= middle
        succeeds = np.where(enough, middle, succeeds)
        fails = np.where(enough, fails, middle)
    return fails


def _rivals(counts: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Return n_a + [a < c], what the winner c has to keep above, for every label a; -1 for c."""
    rivals = counts + (np.arange(counts.shape[1]) < labels[:, None])
    np.put_along_axis(rivals, labels[:, None], -1, axis=1)
    return rivals


def _row_blocks(counts: NDArray[Any]) -> Iterator[slice]:
    height = max(1, _BLOCK // counts.shape[1])
    return (slice(top, top + height) for top in range(0, len(counts), height))


def check_target(target: ArrayLike, n: int, n_classes: int) -> NDArray[np.int64]:
    """Return one class index per row from one index or n of them, or raise."""
    array = np.asarray(target)
    if array.dtype.kind not in "iu":
        raise InvalidInputError(f"target is a class index. Got {target!r} of dtype {array.dtype}.")
    if array.ndim > 1 or (array.ndim == 1 and len(array) != n):
        raise InvalidInputError(
            f"target is one class index, or one per row of votes ({n}). Got shape {array.shape}."
        )
    bad = np.flatnonzero((array < 0) | (array >= n_classes))
    if len(bad):
        where = f"[{bad[0]}]" if array.ndim else ""
        raise InvalidInputError(
            f"target{where} is {array.reshape(-1)[bad[0]]}; a class index goes from 0 to "
            f"{n_classes - 1} (n_classes={n_classes})."
        )
    return np.array(np.broadcast_to(array, (n,)), dtype=np.int64)
