"""One member that is linear in its labels: the fewest flipped labels that change its vote.

Its score of class c is the sum of w_i over the rows of label c, with integer weights w_i that no
label can change. So flips can be counted, in exact integers. Most rivals are ruled out by a bound
that one sort gives for all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError

NEVER = 2**30
"""The price of a change that no number of flipped labels brings about: more than there are rows."""

Ints = NDArray[np.int64]


def fewest_flips(
    weights: NDArray[Any], y: NDArray[Any], n_classes: int, target: int | None = None
) -> tuple[Ints, Ints, Ints]:
    """Return the member's votes, the rival that overtakes each of them first, and its price.

    `weights`, integers (n, m), are those of the m training rows for each test row; the absolute
    values of a row add up to less than 2^30. A price counts flips and is `NEVER` if none change the
    vote. Ties go to the smaller class. `target` is the only rival, if given.

    Assumes
    -------
    The weights do not depend on labels.

    Examples
    --------
    >>> fewest_flips(np.array([[4, 2, 1]]), np.array([0, 0, 1]), 3)
    (array([0]), array([1]), array([1]))
    """
    _check(weights, y, n_classes)
    found = np.empty((3, len(weights)), dtype=np.int64)
    y = y.astype(np.int64)
    for place, row in enumerate(weights.astype(np.int64)):
        found[:, place] = _one_row(row, y, n_classes, target)
    return found[0], found[1], found[2]


def _check(weights: NDArray[Any], y: NDArray[Any], n_classes: int) -> None:
    """Refuse what would be rounded, wrapped or counted for no class: prices would be too high."""
    if weights.dtype.kind not in "biu" or weights.ndim != 2 or weights.shape[1] != len(y):
        raise InvalidInputError(
            f"weights are integers of shape (n, {len(y)}), one column per label. "
            f"Got {weights.dtype} of shape {weights.shape}."
        )
    known = y.dtype.kind in "biu" and y.ndim == 1 and len(y) > 0
    if not known or y.min() < 0 or y.max() >= n_classes:
        raise InvalidInputError(
            f"Labels are integers from 0 to {n_classes - 1}, shape (m,), at least one. "
            f"Got {y.dtype} of shape {y.shape}: {y[:10].tolist()}."
        )
    # In floating point: a sum of integers could wrap around and look small.
    if len(weights) and np.abs(weights.astype(np.float64)).sum(axis=1).max() >= NEVER:
        raise InvalidInputError(
            f"The absolute weights of a row must add up to less than {NEVER:,}, so that no sum "
            "overflows. Round them to fewer bits."
        )


def _one_row(
    weights: Ints, y: NDArray[Any], n_classes: int, target: int | None
) -> tuple[int, int, int]:
    # Sums of integers below 2^53 are exact in float64, which bincount adds in.
    scores = np.bincount(y, weights=weights, minlength=n_classes).astype(np.int64)
    vote = int(scores.argmax())
    lead = scores[vote] - scores + (np.arange(n_classes) > vote)
    size, own = np.abs(weights), y == vote
    if target is None:
        largest = size + np.where(own, weights, np.maximum(-weights, 0))
        at_least = _flips(largest, lead)
        rivals = np.argsort(at_least, kind="stable")
    else:
        at_least, rivals = np.zeros(n_classes, dtype=np.int64), np.array([target])
    best, rival = NEVER + 1, vote
    for label in rivals[rivals != vote]:
        if at_least[label] > best:
            continue
        lower = size + weights * (own.astype(np.int64) - (y == label))
        price = int(_flips(lower, lead[label : label + 1])[0])
        if (price, label) < (best, rival) or best > NEVER:
            best, rival = price, int(label)
    return vote, rival, min(best, NEVER)


def _flips(reductions: Ints, leads: Ints) -> Ints:
    """Return how many of the largest reductions reach each lead, `NEVER` if no number does."""
    reached = np.cumsum(np.sort(reductions.astype(np.int32))[::-1], dtype=np.int64)
    needed = np.searchsorted(reached, leads, side="left") + 1
    return np.where(needed > len(reached), NEVER, needed)


def certify_one_member(
    votes: Ints,
    rivals: Ints,
    prices: Ints,
    n_classes: int,
    n_rows: int,
    threat: Threat,
    target: int | None = None,
) -> Certificates:
    """Return the certificates of what `fewest_flips` found.

    `n_rows` is the number of training rows, the radius where no flips change the label.

    Guarantee
    ---------
    No `radius` flipped labels change the label (with `target`: make it the target). Without a
    target, `radius` + 1 do, unless none can.

    Assumes
    -------
    The weights do not depend on labels, and the predictions are `votes`: weights that are computed
    again, beside other rows, may differ in their last bits.
    """
    if (threat.name, threat.unit) != ("label_flip", "row"):
        raise GuaranteeError(
            "One member on all rows is certified against label flips, counted in rows. "
            f"Got {threat.name!r}, counted in {threat.unit}s."
        )
    counts = (votes[:, None] == np.arange(n_classes)).astype(np.int64)
    radius = np.where(prices >= NEVER, n_rows, prices - 1)
    goal = None
    if target is not None:
        goal = np.full(len(votes), target, dtype=np.int64)
        radius = np.where(votes == target, -1, radius)
    return Certificates(votes, radius, rivals, counts, threat, 1, target=goal, method="label_flips")
