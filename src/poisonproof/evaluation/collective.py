"""How many of a test set's predictions one attack can change at once, exactly or bounded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates import Spread, Threat, parse_threat
from poisonproof.certificates.classes import class_indices
from poisonproof.certificates.collective import (
    CollectiveProblem,
    bucket_shares,
    collective_bound,
    make_problem,
)
from poisonproof.certificates.counting import check_n_classes, check_votes
from poisonproof.certificates.plurality import check_target
from poisonproof.evaluation.accuracy import check_sizes
from poisonproof.exceptions import InvalidInputError

__all__ = ["COLLECTIVE_METHODS", "CollectiveCertificate", "collective_certificate"]

COLLECTIVE_METHODS = ("exact", "bound")

Ints = NDArray[np.int64]

_TOLERANCE = 1e-6  # the solver's own


@dataclass(frozen=True)
class CollectiveCertificate:
    """What one attack of each size can do to a whole test set.

    Attributes
    ----------
    threat : Threat
        The unit of the sizes.
    n_rows : int
        Rows of the test set.
    n_counted : int
        Rows that count: all; or those predicted correctly, where true labels were given; less
        those that already have the target's label, where there is a target.
    sizes : ndarray of int, shape (m,)
        Attack sizes.
    changed : ndarray of int, shape (m,)
        No attack of that size changes more of the counted rows.
    attained : ndarray of int, shape (m,)
        Some change of the votes within reach changes that many: found and recounted.
    separately : ndarray of int, shape (m,)
        Rows whose own certificate is smaller than the attack: what one knows without looking at
        the rows together.

    Guarantee
    ---------
    ``attained <= truth <= changed <= separately`` at every size.
    """

    threat: Threat
    n_rows: int
    n_counted: int
    sizes: Ints
    changed: Ints
    attained: Ints
    separately: Ints

    @property
    def kept(self) -> Ints:
        """Counted rows that stay as they are under every attack of each size, at least."""
        return self.n_counted - self.changed

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Where bound and attack meet, so that `changed` is the truth."""
        return np.asarray(self.changed == self.attained)

    @property
    def share(self) -> NDArray[np.float64]:
        """`kept` as a share of all rows: with true labels, the certified accuracy."""
        return self.kept / self.n_rows


def collective_certificate(
    votes: ArrayLike,
    n_classes: int,
    sizes: ArrayLike,
    *,
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
    y_true: ArrayLike | None = None,
    membership: Spread | ArrayLike | None = None,
    method: str = "exact",
    time_limit: float = 60.0,
) -> CollectiveCertificate:
    """Bound how many plurality predictions one attack can change together.

    Parameters
    ----------
    votes : array-like of int, shape (n, k)
        Class indices of k members, -1 for an abstention.
    n_classes : int
        Number of classes, C.
    sizes : int or array-like of int, shape (m,)
        Attack sizes in units of `threat`.
    threat : str or Threat
        As in `certify_votes`: one unit reaches ``threat.touches`` members, on all rows alike; with
        `membership`, buckets.
    target : int or array-like of int, shape (n,), optional
        Count the rows that can be turned into this label, instead of those that can be changed.
    y_true : array-like of int, shape (n,), optional
        True class indices: only rows predicted correctly count.
    membership : Spread or array-like of int, shape (B, d), optional
        Row b lists the members that can change when bucket b changes, as for
        `certify_finite_aggregation`; by default partitions are disjoint.
    method : {"exact", "bound"}
        ``"exact"`` solves a mixed-integer program with HiGHS; ``"bound"`` uses
        `poisonproof.certificates.collective.collective_bound` alone, which takes seconds for
        10,000 rows and 1,000 members.
    time_limit : float
        Seconds for the solver, per size. What it has proved by then is a sound bound, and is used;
        `CollectiveCertificate.exact` says whether it is the truth.

    Returns
    -------
    CollectiveCertificate

    Guarantee
    ---------
    No attack of a size changes more of the counted rows than ``changed``. With ``"exact"`` this
    rests on the solver's bound, rounded against us by its tolerance; with ``"bound"`` on sums in
    double precision, rounded likewise.

    Examples
    --------
    Each of these rows falls to one changed member, but not to the same one:

    >>> votes = [[0, 0, 1, 1], [1, 1, 0, 0]]
    >>> certificate = collective_certificate(votes, n_classes=2, sizes=[1, 2])
    >>> certificate.separately, certificate.changed, certificate.exact
    (array([2, 2]), array([1, 2]), array([ True,  True]))
    """
    if method not in COLLECTIVE_METHODS:
        raise InvalidInputError(
            f"method is one of {', '.join(COLLECTIVE_METHODS)}. Got {method!r}."
        )
    if not time_limit > 0:
        raise InvalidInputError(f"time_limit is a number of seconds above 0. Got {time_limit!r}.")
    threat = parse_threat(threat)
    attacks = np.atleast_1d(check_sizes(sizes))
    if attacks.ndim > 1:
        raise InvalidInputError(f"sizes has one dimension. Got shape {attacks.shape}.")
    array = check_votes(votes)
    problem = _counted(array, check_n_classes(n_classes), target, y_true, membership)
    bound, proved, attained, separately = (np.zeros(len(attacks), dtype=np.int64) for _ in range(4))
    for i, size in enumerate(attacks.tolist()):
        reach = min(size * threat.touches, len(problem.buckets))
        separately[i] = (problem.attack <= reach).sum()
        bound[i], owned = collective_bound(problem, reach)
        proved[i], attained[i] = bound[i], problem.fallen(owned).sum()
        if method == "exact" and attained[i] < bound[i]:
            limit, found = _solve(problem, reach, time_limit)
            proved[i] = min(bound[i], limit)
            attained[i] = max(attained[i], problem.fallen(found).sum())
    certificate = _monotone(
        CollectiveCertificate(
            threat, len(array), len(problem.votes), attacks, proved, attained, separately
        )
    )
    if (certificate.changed < certificate.attained).any():
        # A solver that an attack contradicts proves nothing.
        certificate = _monotone(replace(certificate, changed=bound))
    return certificate


def _counted(
    votes: NDArray[Any],
    n_classes: int,
    target: ArrayLike | None,
    y_true: ArrayLike | None,
    membership: Spread | ArrayLike | None,
) -> CollectiveProblem:
    """Return the problem on the rows that count."""
    targets = None if target is None else check_target(target, len(votes), n_classes)
    problem = make_problem(votes, n_classes, targets, membership)
    counts = np.ones(len(votes), dtype=np.bool_)
    if y_true is not None:
        truth = class_indices(y_true, None, n_classes)
        if len(truth) != len(votes):
            raise InvalidInputError(
                f"y_true must have one label per row of votes ({len(votes)}). Got {len(truth)}."
            )
        counts &= truth == problem.labels
    if targets is not None:
        counts &= targets != problem.labels
    return replace(
        problem,
        votes=problem.votes[counts],
        counts=problem.counts[counts],
        labels=problem.labels[counts],
        target=None if targets is None else targets[counts],
        attack=problem.attack[counts],
    )


def _solve(problem: CollectiveProblem, reach: int, time_limit: float) -> tuple[int, Ints]:
    """Solve the mixed-integer program: which buckets to own, and which rows fall to which rival.

    Returns
    -------
    proved : int
        The solver's upper bound on fallen rows, however far it came.
    owned : ndarray of int
        The buckets of the best attack that it found; none if it found none.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    matrix, lower, n_events = _program(problem, reach)
    n_columns, n_buckets = matrix.shape[1], len(problem.buckets)
    weights = np.zeros(n_columns)
    weights[n_columns - n_events :] = -1  # the solver minimises
    whole = np.ones(n_columns, dtype=np.int64)
    whole[n_buckets : n_columns - n_events] = 0  # members follow from buckets
    solved = milp(
        weights,
        integrality=whole,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, lb=lower),
        options={"time_limit": float(time_limit), "mip_rel_gap": 0.0},
    )
    dual = solved.get("mip_dual_bound")
    rows = int((problem.attack <= reach).sum())
    proved = rows
    if dual is not None and np.isfinite(dual):
        proved = min(rows, int(np.floor(-dual + _TOLERANCE)))
    if solved.x is None:
        return proved, np.arange(0)
    # Rounding may own a bucket too many; the strongest `reach` are an attack in any case.
    owned = np.argsort(-solved.x[:n_buckets], kind="stable")[:reach]
    return proved, np.sort(owned[solved.x[owned] > 0.5])


def _program(problem: CollectiveProblem, reach: int) -> tuple[Any, NDArray[Any], int]:
    """Return the constraints ``matrix @ (s, t, y) >= lower`` and the number of events y.

    s_b owns bucket b, which is 0 or 1, and t_j <= the sum of s_b over the buckets of member j, so
    that t_j may be 1 if one of them is owned; where partitions are disjoint, s stands for t.
    Without a target there is a y for every row and rival, with one a y for every row; y, which is
    0 or 1, may be 1 only if the owned members weigh at least the gap: sum_j w_j t_j >= gap y.
    """
    from scipy.sparse import coo_array, csr_array, diags_array, hstack, vstack

    n_buckets, n_members = len(problem.buckets), problem.votes.shape[1]
    vulnerable = np.flatnonzero(problem.attack <= reach)
    conditions = [c for c in problem.rivalries(reach) if len(c.rows)]
    rows = np.concatenate([c.rows for c in conditions])
    gaps = np.concatenate([c.gap for c in conditions])
    weights = csr_array(np.concatenate([c.weights(problem.votes) for c in conditions]), dtype=float)
    row_index = np.searchsorted(vulnerable, rows)
    n_events = len(rows) if problem.target is None else len(vulnerable)
    event = np.arange(len(rows)) if problem.target is None else row_index

    def nothing(height: int, width: int) -> Any:
        return csr_array((height, width))

    def line(owned: Any, changed: Any, events: Any) -> Any:
        return hstack([owned, events] if problem.disjoint else [owned, changed, events])

    of_event = coo_array(
        (-gaps.astype(float), (np.arange(len(rows)), event)), (len(rows), n_events)
    )
    first = weights if problem.disjoint else nothing(len(rows), n_buckets)
    blocks = [
        line(first, weights, of_event),
        line(csr_array(-np.ones((1, n_buckets))), nothing(1, n_members), nothing(1, n_events)),
    ]
    lower = [np.zeros(len(rows)), np.array([-float(reach)])]
    if not problem.disjoint:
        served = problem.buckets.ravel(), np.repeat(np.arange(n_buckets), problem.buckets.shape[1])
        serves = coo_array((np.ones(problem.buckets.size), served), (n_members, n_buckets))
        alone = diags_array(-np.ones(n_members))
        blocks.append(line(serves, alone, nothing(n_members, n_events)))
        lower.append(np.zeros(n_members))
    if problem.target is None:
        # A row falls once, and only if the largest shares over the rivals sum to 1.
        height = len(vulnerable)
        once = coo_array((-np.ones(len(rows)), (row_index, event)), (height, n_events))
        shares = csr_array(bucket_shares(problem, reach) * (1 + 1e-12))
        blocks += [
            line(nothing(height, n_buckets), nothing(height, n_members), once),
            line(shares, nothing(height, n_members), once),
        ]
        lower += [np.full(height, -1.0), np.zeros(height)]
    return csr_array(vstack(blocks)), np.concatenate(lower), n_events


def _monotone(certificate: CollectiveCertificate) -> CollectiveCertificate:
    """Use that a larger attack can do all that a smaller one can."""
    order = np.argsort(certificate.sizes, kind="stable")
    changed, attained = certificate.changed.copy(), certificate.attained.copy()
    changed[order] = np.minimum.accumulate(changed[order][::-1])[::-1]
    attained[order] = np.maximum.accumulate(attained[order])
    return replace(certificate, changed=changed, attained=attained)
