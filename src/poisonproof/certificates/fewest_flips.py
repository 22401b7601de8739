"""One member that is linear in its labels, on all rows: the fewest flips that change its vote.

The same number as the smallest price of `flips_to_overtake`, for tens of thousands of rows and many
classes: most rivals are ruled out by a bound that one sort gives for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.label_flips import NEVER
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError

__all__ = ["certify_one_member", "fewest_flips"]

_TOTAL = 2**30

Ints = NDArray[np.int64]


def fewest_flips(weights: NDArray[Any], y: NDArray[Any], n_classes: int) -> tuple[Ints, Ints, Ints]:
    """Return the member's votes, the rival that overtakes each of them first, and its price.

    Parameters
    ----------
    weights : ndarray of int, shape (n, m)
        How much each of the m rows counts for each test row. No label may change them. Their
        absolute values add up to less than 2^30 in every row, else `InvalidInputError`.
    y : ndarray of int, shape (m,)
        Labels of the rows.
    n_classes : int
        Number of classes, C, at least 2.

    Returns
    -------
    votes, rivals, prices : ndarrays of shape (n,)
        The class of largest score, the smaller on ties; the class that needs the fewest flips to
        be ahead, the smaller on ties; and these flips, `NEVER` if no flips change the vote.

    Notes
    -----
    A flip of row i lowers s_v - s_u by at most w_i a + |w_i| with a = [y_i = v] - [y_i = u] (see
    `flips_to_overtake`). Whatever u is, that is at most 2 |w_i| for a row with y_i != v and
    w_i < 0, and what a = 0 or 1 gives for the others.

    Examples
    --------
    >>> fewest_flips(np.array([[4, 2, 1]]), np.array([0, 0, 1]), 3)
    (array([0]), array([1]), array([1]))
    """
    _check(weights, y, n_classes)
    found = np.empty((3, len(weights)), dtype=np.int64)
    y = y.astype(np.int64)
    for place, row in enumerate(weights.astype(np.int64)):
        found[:, place] = _one_row(row, y, n_classes)
    return found[0], found[1], found[2]


def _check(weights: NDArray[Any], y: NDArray[Any], n_classes: int) -> None:
    """Refuse what would be rounded, wrapped or counted for no class: prices would be too high."""
    if n_classes < 2 or not len(y):
        raise InvalidInputError(
            f"Flips change a vote among at least two classes, with at least one row. "
            f"Got {n_classes} classes and {len(y)} rows."
        )
    if weights.dtype.kind not in "biu" or weights.ndim != 2 or weights.shape[1] != len(y):
        raise InvalidInputError(
            f"weights are integers of shape (n, {len(y)}), one column per label. "
            f"Got {weights.dtype} of shape {weights.shape}."
        )
    if y.dtype.kind not in "biu" or y.ndim != 1 or y.min() < 0 or y.max() >= n_classes:
        raise InvalidInputError(
            f"Labels are integers from 0 to {n_classes - 1}, shape (m,). "
            f"Got {y.dtype} of shape {y.shape}, from {y.min()} to {y.max()}."
        )
    # In floating point: a sum of integers could wrap around and look small.
    if len(weights) and np.abs(weights.astype(np.float64)).sum(axis=1).max() >= _TOTAL:
        raise InvalidInputError(
            f"The absolute weights of a row add up to less than {_TOTAL:,}, so that nothing "
            "overflows. Round them to fewer bits."
        )


def _one_row(weights: Ints, y: NDArray[Any], n_classes: int) -> tuple[int, int, int]:
    # Sums of integers below 2^53 are exact in float64, which bincount adds in.
    scores = np.bincount(y, weights=weights, minlength=n_classes).astype(np.int64)
    vote = int(scores.argmax())
    lead = scores[vote] - scores + (np.arange(n_classes) > vote)
    size, own = np.abs(weights), y == vote
    largest = size + np.where(own, weights, np.maximum(-weights, 0))
    at_least = _flips(largest, lead)
    at_least[vote] = NEVER
    best, rival = NEVER + 1, vote
    for label in np.argsort(at_least, kind="stable"):
        if label == vote or at_least[label] > best:
            continue
        lower = size + weights * (own.astype(np.int64) - (y == label))
        price = int(_flips(lower, lead[label : label + 1])[0])
        if (price, label) < (best, rival) or best > NEVER:
            best, rival = price, int(label)
    return vote, rival, best


def _flips(reductions: Ints, leads: Ints) -> Ints:
    """Return how many of the largest reductions reach each lead, `NEVER` if all do not."""
    reached = np.cumsum(np.sort(reductions.astype(np.int32))[::-1], dtype=np.int64)
    needed = np.searchsorted(reached, leads, side="left") + 1
    return np.where(needed > len(reached), NEVER, needed)


def certify_one_member(
    votes: Ints, rivals: Ints, prices: Ints, n_classes: int, n_rows: int, threat: Threat
) -> Certificates:
    """Return the certificates of what `fewest_flips` found.

    Parameters
    ----------
    votes, rivals, prices : ndarrays of int, shape (n,)
        As returned by `fewest_flips`.
    n_classes : int
        Number of classes.
    n_rows : int
        Number of training rows; the radius where no flips change the label.
    threat : Threat
        Label flips, counted in rows.

    Raises
    ------
    GuaranteeError
        If the threat is another: a row inserted, or a sample with all its repeats, costs more.

    Guarantee
    ---------
    No `radius` flipped labels change the label, and `radius` + 1 do, unless none can.

    Assumes
    -------
    The weights are the same whatever the labels are, and predictions are `votes`, of the same
    weights: weights computed again in other company may differ in their last bits.
    """
    if (threat.name, threat.unit) != ("label_flip", "row"):
        raise GuaranteeError(
            "One member on all rows is certified against label flips, counted in rows. "
            f"Got {threat.name!r}, counted in {threat.unit}s."
        )
    counts = (votes[:, None] == np.arange(n_classes)).astype(np.int64)
    radius = np.where(prices >= NEVER, n_rows, prices - 1)
    return Certificates(votes, radius, rivals, counts, threat, 1, method="label_flips")
