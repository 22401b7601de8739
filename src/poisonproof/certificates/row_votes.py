"""Votes of single training rows: every row is its own partition, and one act moves one vote."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.plurality import (
    check_target,
    plurality,
    plurality_radius,
    targeted_radius,
)
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat, make_threat, parse_threat
from poisonproof.exceptions import GuaranteeError, InvalidVotesError

ROW_TOUCHES = {"insert_delete": 1, "label_flip": 2, "replace": 2}
"""How far one unit of attack moves the gap between two labels, where rows vote for their own
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
    votes for its own label. `neighbour votes <https://arxiv.org/abs/2012.03765>`_ in a fixed
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
    threat = _row_threat(threat)
    table = _check_counts(counts, n_members)
    labels, runner_up = plurality(table)
    targets = None if target is None else check_target(target, len(table), table.shape[1])
    if threat.touches == 2:  # a vote moves from one label to another: theorem 1 and its kin
        radius = (
            plurality_radius(table, labels, runner_up, n_members)
            if targets is None
            else targeted_radius(table, labels, targets, n_members)
        )
    elif targets is None:
        radius = _gap(table, labels, runner_up, n_members)
    else:
        radius = _targeted_gap(table, labels, targets)
    return Certificates(
        labels, radius, runner_up, table, threat, n_members, target=targets, method="row_votes"
    )


def _gap(counts: NDArray[Any], labels: Any, runner_up: Any, n_members: int) -> NDArray[np.int64]:
    """Return how many votes may be added or taken away without changing the label."""
    if counts.shape[1] == 1:
        return np.full(len(counts), n_members, dtype=np.int64)
    rows = np.arange(len(counts))
    gap: NDArray[np.int64] = counts[rows, labels] - counts[rows, runner_up] - (runner_up < labels)
    return gap


def _targeted_gap(counts: NDArray[Any], labels: Any, targets: Any) -> NDArray[np.int64]:
    """Return how many votes may be added or taken away without making the target win.

    A row inserted for the target q lowers the lead of every other label by one, a deletion that
    of one label: insertions are never worse. So the attack needs the largest lead,
    max_a (n_a + [a < q] - n_q), which is zero or less exactly where q wins.
    """
    own = counts[np.arange(len(counts)), targets][:, None]
    leads = counts + (np.arange(counts.shape[1]) < targets[:, None]) - own
    np.put_along_axis(leads, targets[:, None], 0, axis=1)
    radius: NDArray[np.int64] = np.maximum(leads.max(axis=1), 0) - 1
    return np.where(labels == targets, -1, radius)


def _row_threat(threat: str | Threat) -> Threat:
    """Return the threat with the reach it has over votes of single rows."""
    wanted = parse_threat(threat)
    if wanted.unit != "row":
        raise GuaranteeError(
            f"Votes of single rows are certified in rows, but {wanted.plural} were asked: a "
            f"{wanted.unit} may be many rows. Ask threat={wanted.name!r}."
        )
    return make_threat(wanted.name, "row", ROW_TOUCHES[wanted.name], wanted.assumptions)


def _check_counts(counts: ArrayLike, n_members: int) -> NDArray[np.int64]:
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] == 0 or table.dtype.kind not in "iu":
        raise InvalidVotesError(
            "counts are whole numbers of shape (n, C): the voting rows of every class. Got shape "
            f"{table.shape} of dtype {table.dtype}."
        )
    table = table.astype(np.int64)
    if table.size and (int(table.min()) < 0 or int(table.sum(axis=1).max()) > n_members):
        raise InvalidVotesError(
            f"counts are at least 0 and add up to at most n_members={n_members} in every row. Got "
            f"{int(table.min())} to {int(table.sum(axis=1).max())}."
        )
    return table
