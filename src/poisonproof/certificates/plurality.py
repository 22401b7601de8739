"""Plurality votes, of members and of single training rows, and their exact radii.

Everything here is integer arithmetic on votes and their counts; no model and no training data is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat, make_threat, parse_threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidVotesError

ABSTAIN = -1
"""The vote of a member that gives none."""

_TILE = 1 << 17  # votes counted together; they stay in the CPU's cache
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


ROW_TOUCHES = {"insert_delete": 1, "label_flip": 2, "replace": 2}
"""By how much one unit of attack moves the gap between two labels, where rows vote for their own
label: an inserted or deleted row by one, a relabelled or replaced row by two."""


def certify_row_votes(
    counts: ArrayLike,
    n_members: int,
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
) -> Certificates:
    """Certify the plurality label where every vote is one training row's own label.

    Parameters
    ----------
    counts : array-like of int, shape (n, C)
        For every test row, how many training rows of each class vote.
    n_members : int
        Number of training rows, m.
    threat : str or Threat
        ``"insert_delete"``, ``"label_flip"`` or ``"replace"``, counted in rows.
    target : int or array-like of int, shape (n,), optional
        Certify against this label only. The radius is -1 where the target already wins.

    Returns
    -------
    Certificates
        With class indices as labels and the method ``"row_votes"``.

    Guarantee
    ---------
    An attack of at most ``radius`` rows leaves the label as it is (with `target`: keeps it from
    becoming the target). For insertions and deletions the radius is the whole gap
    n_c - max_{c' != c}(n_c' + [c' < c]), without the half of theorem 1: an inserted row adds one
    vote and takes none away. All radii are tight for the votes, as long as the attacker has rows
    of the right label to change, and can insert rows that vote.

    Assumes
    -------
    Whether a training row votes on a test row is a function of these two samples alone, and it
    votes for its own label. Neighbour votes (Jia, Liu, Cao and Gong, AAAI 2022) in a fixed
    feature space are such votes.

    Examples
    --------
    >>> counts = [[5, 2, 0], [0, 5, 2]]
    >>> certify_row_votes(counts, n_members=7).radius
    array([3, 3])
    >>> certify_row_votes(counts, n_members=7, threat="label_flip").radius
    array([1, 1])
    >>> certify_row_votes(counts, n_members=7, target=2).radius
    array([5, 3])
    """
    wanted = parse_threat(threat)
    if wanted.unit != "row":
        raise GuaranteeError(
            f"Votes of single rows are certified in rows, but {wanted.plural} were requested: a "
            f"{wanted.unit} may be many rows. Use threat={wanted.name!r}."
        )
    threat = make_threat(wanted.name, "row", ROW_TOUCHES[wanted.name], wanted.assumptions)
    table = _check_counts(counts, n_members)
    labels, runner_up = plurality(table)
    targets = None if target is None else check_target(target, len(table), table.shape[1])
    moves = threat.touches == 2  # a vote moves from one label to another: theorem 1 and its kin
    if targets is None:
        radius = (plurality_radius if moves else _lead)(table, labels, runner_up, n_members)
    elif moves:
        radius = targeted_radius(table, labels, targets, n_members)
    else:
        # A row inserted for the target lowers the lead of every other label by one, a deletion that
        # of one label: insertions are never worse, and the attack needs the largest lead.
        radius = np.where(labels == targets, -1, _excess(table, targets).max(axis=1) - 1)
    return Certificates(
        labels, radius, runner_up, table, threat, n_members, target=targets, method="row_votes"
    )


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
        rivals = counts[rows] + (np.arange(counts.shape[1]) < labels[rows, None])
        np.put_along_axis(rivals, labels[rows, None], -1, axis=1)
        runner_up[rows] = rivals.argmax(axis=1)
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
    return _lead(counts, labels, runner_up, n_members) // 2


def _lead(
    counts: NDArray[Any], labels: NDArray[Any], runner_up: NDArray[Any], n_members: int
) -> NDArray[np.int64]:
    """Return n_c - (n_a + [a < c]) of winner c and runner-up a; all members with one class."""
    if counts.shape[1] == 1:
        return np.full(len(counts), n_members, dtype=np.int64)
    rows = np.arange(len(counts))
    lead: NDArray[np.int64] = counts[rows, labels].astype(np.int64) - counts[rows, runner_up]
    return lead - (runner_up < labels)


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
        excess = _excess(counts[rows].astype(np.int64), target[rows])
        own = np.take_along_axis(counts[rows], target[rows, None], axis=1)[:, 0]

        def enough(changes: NDArray[np.int64], excess: NDArray[np.int64] = excess) -> Any:
            return np.maximum(excess - changes[:, None], 0).sum(axis=1) <= changes

        most = np.maximum(n_members - own.astype(np.int64), 1)
        radius[rows] = fewest_changes(enough, np.zeros_like(most), most) - 1
    radius[labels == target] = -1
    return radius


def _excess(counts: NDArray[Any], target: NDArray[Any]) -> NDArray[np.int64]:
    """Return n_a + [a < q] - n_q, what the target q has to gain on every label a; 0 for q."""
    own = np.take_along_axis(counts, target[:, None], axis=1)
    return np.asarray(counts + (np.arange(counts.shape[1]) < target[:, None]) - own)


def fewest_changes(
    succeeds: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
    least: NDArray[np.int64],
    most: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return by bisection how many changes succeed first, where `least` fail and `most` succeed."""
    while np.any(most - least > 1):
        middle = (least + most) // 2
        enough = succeeds(middle)
        least, most = np.where(enough, least, middle), np.where(enough, middle, most)
    return most


def _row_blocks(counts: NDArray[Any]) -> Iterator[slice]:
    height = max(1, _BLOCK // counts.shape[1])
    return (slice(top, top + height) for top in range(0, len(counts), height))


# From votes to counts, checked and in bounded memory.


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
    counts = np.empty((len(array), n_classes), dtype=np.int32)
    height, bins = max(1, _TILE // max(array.shape[1], n_classes)), n_classes + 1
    for top in range(0, len(array), height):
        tile = array[top : top + height]
        if int(tile.min()) < ABSTAIN or int(tile.max()) >= n_classes:
            row, member = np.argwhere((tile < ABSTAIN) | (tile >= n_classes))[0]
            raise InvalidVotesError(
                f"votes[{top + row}, {member}] is {tile[row, member]}; a vote is a class index "
                f"from 0 to {n_classes - 1} (n_classes={n_classes}) or -1 for an abstention."
            )
        # One histogram of all rows of the tile, with a bin for the abstentions of each row.
        first_bin = np.arange(len(tile), dtype=np.int64)[:, None] * bins + 1
        flat = (tile.astype(np.int64) + first_bin).ravel()
        found = np.bincount(flat, minlength=len(tile) * bins).reshape(len(tile), bins)
        counts[top : top + height] = found[:, 1:]
    return counts


def check_n_classes(n_classes: int) -> int:
    """Return `n_classes` as an int, or raise if it is not an integer of at least 1."""
    whole = isinstance(n_classes, int | np.integer) and not isinstance(n_classes, bool)
    if not whole or n_classes < 1:
        raise InvalidVotesError(f"n_classes is an integer, at least 1. Got {n_classes!r}.")
    return int(n_classes)


def check_votes(votes: ArrayLike) -> NDArray[Any]:
    """Return `votes` as an integer array of shape (n, k), k >= 1, without copying an array."""
    if np.ma.isMaskedArray(votes):
        raise InvalidVotesError("votes is a masked array. Write -1 where a member abstains.")
    try:
        array = np.asarray(votes)
    except ValueError as error:
        raise InvalidVotesError(
            f"votes must be a rectangle: one row per test sample, one column per member ({error})."
        ) from error
    if array.ndim != 2 or array.shape[1] == 0:
        raise InvalidVotesError(
            "votes must have two dimensions, one row per test sample and at least one column, a "
            f"column per member. Got shape {array.shape}; scores of every class are for "
            "certify_scores."
        )
    if array.shape[1] > np.iinfo(np.int32).max:
        raise InvalidVotesError(f"votes has {array.shape[1]:,} members, more than 2^31 - 1.")
    if array.dtype.kind not in "iu":
        raise InvalidVotesError(
            "votes must be integers (class indices, -1 for an abstention). Got dtype "
            f"{array.dtype}. Probabilities and scores are for certify_scores."
        )
    return array


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


def _check_counts(counts: ArrayLike, n_members: int) -> NDArray[np.int64]:
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] == 0 or table.dtype.kind not in "iu":
        raise InvalidVotesError(
            "counts are integers of shape (n, C): the voting rows of every class. Got shape "
            f"{table.shape} of dtype {table.dtype}."
        )
    table = table.astype(np.int64)
    if table.size and (int(table.min()) < 0 or int(table.sum(axis=1).max()) > n_members):
        raise InvalidVotesError(
            f"counts must be at least 0 and add up to at most n_members={n_members} in every row. "
            f"Got {int(table.min())} to {int(table.sum(axis=1).max())}."
        )
    return table
