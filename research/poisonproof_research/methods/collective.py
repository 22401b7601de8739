"""Number of predictions that one attack can change: it reaches the same members on all rows.

Every row by itself may withstand an attack of some size and fall to a larger one, but the rows fall
to *different* attacks. This file holds the problem in integers and a fast bound; the exact answer
is a mixed-integer program, in `poisonproof_research.methods.collective`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.plurality import (
    check_n_classes,
    check_target,
    check_votes,
    count_votes,
    plurality,
    plurality_radius,
    targeted_radius,
)
from poisonproof.certificates.result import class_indices
from poisonproof.certificates.threats import Threat, parse_threat
from poisonproof.evaluation.accuracy import check_sizes
from poisonproof.exceptions import InvalidInputError
from poisonproof_research.methods.shared_buckets import (
    Spread,
    certify_finite_aggregation,
    check_membership,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Condition:
    """Rows on which a rival overtakes a leader once the attacked members weigh enough.

    A member weighs 1 + [it votes for the leader] - [it votes for the rival]; abstaining is 1.
    """

    rows: Ints  # shape (m,)
    leader: Ints
    rival: Ints
    gap: Ints  # the weight that is needed, at least 1

    def weights(self, votes: NDArray[Any]) -> NDArray[np.int8]:
        """Return the weight of every member on every row of the condition, shape (m, k)."""
        said = votes[self.rows]
        weights: NDArray[np.int8] = (said == self.leader[:, None]).astype(np.int8) + np.int8(1)
        weights -= said == self.rival[:, None]
        return weights


@dataclass(frozen=True)
class CollectiveProblem:
    """Votes on n rows, and what an attacker who owns buckets of rows wants to happen on each.

    Attributes
    ----------
    votes : ndarray of int, shape (n, k)
        Class indices, -1 for an abstention.
    counts : ndarray of int, shape (n, C)
        Votes per class.
    labels : ndarray of int, shape (n,)
        Plurality labels.
    target : ndarray of int, shape (n,), or None
        None: a row falls when its label changes. Else: when it becomes the target.
    attack : ndarray of int, shape (n,)
        Buckets that must change for the row to fall, taken alone, at least.
    buckets : ndarray of int, shape (B, d)
        The members that each bucket serves; disjoint partitions serve one each.
    """

    votes: NDArray[Any]
    counts: Ints
    labels: Ints
    target: Ints | None
    attack: Ints
    buckets: Ints

    @property
    def disjoint(self) -> bool:
        """Whether bucket j serves member j and no other."""
        return np.array_equal(self.buckets, np.arange(self.votes.shape[1])[:, None])

    def rivalries(self, reach: int) -> Iterator[Condition]:
        """Yield the conditions under which rows within reach of `reach` buckets fall.

        Without a target a row falls if *one* of its conditions holds, with a target if *all* do.
        Labels without votes are left out where another rival is at least as close, whatever is
        attacked.
        """
        n_classes = self.counts.shape[1]
        rows = np.flatnonzero(self.attack <= reach)
        for label in range(n_classes):
            other = np.full(len(rows), label)
            if self.target is None:
                leader, rival = self.labels[rows], other
            else:
                leader, rival = other, self.target[rows]
            gap = self.counts[rows, leader] - self.counts[rows, rival] + (rival > leader)
            keep = (leader != rival) & (gap > 0)
            if self.target is None:
                keep &= gap <= 2 * reach * self.buckets.shape[1]
                keep &= ~self._dominated(rows, label)
            yield Condition(rows[keep], leader[keep], rival[keep], gap[keep])

    def fallen(self, owned: Ints) -> NDArray[np.bool_]:
        """Say which rows fall to an attacker who owns these buckets; exact, shape (n,)."""
        if not len(owned):
            return np.zeros(len(self.votes), dtype=np.bool_)
        members = np.unique(self.buckets[owned])
        theirs = count_votes(self.votes[:, members], self.counts.shape[1]).astype(np.int64)
        kept = self.counts - theirs
        rows, classes = np.arange(len(kept)), np.arange(kept.shape[1])
        if self.target is None:
            # Some label other than the winner gets every owned vote.
            ours = kept[rows, self.labels][:, None]
            rivals = kept + len(members)
            wins = (rivals > ours) | ((rivals == ours) & (classes < self.labels[:, None]))
            wins[rows, self.labels] = False
            return np.asarray(wins.any(axis=1))
        best = kept[rows, self.target][:, None] + len(members)
        loses = (kept < best) | ((kept == best) & (self.target[:, None] <= classes))
        loses[rows, self.target] = True
        return np.asarray(loses.all(axis=1))

    def _dominated(self, rows: Ints, label: int) -> NDArray[np.bool_]:
        """Say where nobody votes for `label` and a rival with votes wins whenever it would.

        Every set of members that lifts a label without votes over the winner also lifts one that
        has some, if ties are no better for the former.
        """
        counts, winner = self.counts[rows], self.labels[rows][:, None]
        classes = np.arange(counts.shape[1])
        better = (counts > 0) | (classes < label)
        better &= (classes != winner) & (classes != label)
        if_behind = np.where(label < winner, classes < winner, True)
        dominated: NDArray[np.bool_] = (counts[:, label] == 0) & (better & if_behind).any(axis=1)
        return dominated


def make_problem(
    votes: NDArray[Any],
    n_classes: int,
    target: Ints | None = None,
    membership: Spread | ArrayLike | None = None,
) -> CollectiveProblem:
    """Count the votes and find how many buckets it takes to make each row fall alone.

    Without `membership` partitions are disjoint. With a target, rows that it wins already have
    fallen: leave them out.
    """
    counts = count_votes(votes, n_classes).astype(np.int64)
    labels, runner_up = plurality(counts)
    n_members = votes.shape[1]
    buckets = np.arange(n_members)[:, None]
    if membership is not None:
        buckets = check_membership(membership, n_members)
        radius = certify_finite_aggregation(votes, n_classes, buckets, target=target).radius
    elif target is None:
        radius = plurality_radius(counts, labels, runner_up, n_members)
    else:
        radius = targeted_radius(counts, labels, target, n_members)
    return CollectiveProblem(votes, counts, labels, target, radius + 1, buckets)


def collective_bound(
    problem: CollectiveProblem, reach: int, iterations: int = 60
) -> tuple[int, Ints]:
    """Bound how many rows fall when `reach` buckets change; fast and sound.

    With weights w over gaps g, a row can fall only if the attacked members' shares w / g sum to 1,
    and so only if those of the attacked buckets do, where a bucket has the shares of all members
    that it serves. So for every discount a in [0, 1] per row, the number of fallen rows is at most
    the sum of the discounts plus the largest `reach` of the buckets' totals of (1 - a) times their
    shares. This is the dual of a linear relaxation; the discounts are improved by fictitious play
    between attacker and defender, and any of them gives a sound bound. Returned are the most rows
    that fall to `reach` buckets, and the buckets of the best attack met on the way.
    """
    n_buckets = len(problem.buckets)
    reach = min(reach, n_buckets)
    alone = int((problem.attack <= reach).sum())
    if reach == n_buckets or not alone:
        return alone, np.arange(reach)
    shares = bucket_shares(problem, reach)
    attacked = np.full(n_buckets, reach / n_buckets)
    discount = np.zeros(len(shares))
    # A sum of m terms in double precision is off by less than m 2^-52 of its value.
    rounding = 1e-6 + 1e-15 * len(shares) * alone
    bound, most, owned = alone, -1, np.arange(reach)
    for step in range(iterations):
        discount += ((shares @ attacked > 1) - discount) / (step + 1)
        totals = (1 - discount) @ shares
        strongest = np.argpartition(totals, n_buckets - reach)[n_buckets - reach :]
        value = float(discount.sum() + totals[strongest].sum())
        bound = min(bound, int(np.floor(value + rounding)))
        fallen = int(problem.fallen(strongest).sum())
        if fallen > most:
            most, owned = fallen, np.sort(strongest)
        if most == bound:
            break
        answer = np.zeros(n_buckets)
        answer[strongest] = 1
        attacked += (answer - attacked) * 2 / (step + 3)
    return bound, owned


def bucket_shares(problem: CollectiveProblem, reach: int) -> Floats:
    """Return the share of its way to falling that each bucket can carry a row, shape (m, B).

    Rows within reach only. A bucket carries what the members that it serves carry together, and
    nobody carries a row farther than all the way.
    """
    shares: Floats = _member_shares(problem, reach)[:, problem.buckets].sum(axis=2)
    return shares.clip(max=1.0)


def _member_shares(problem: CollectiveProblem, reach: int) -> Floats:
    """Return the same for members, shape (m, k).

    Without a target the largest share over the rivals; with a target the share against the label
    that leads most, the winner.
    """
    rows = np.flatnonzero(problem.attack <= reach)
    shares = np.zeros((len(problem.votes), problem.votes.shape[1]))
    for condition in problem.rivalries(reach):
        if problem.target is not None:
            leads = condition.leader == problem.labels[condition.rows]
            condition = Condition(  # noqa: PLW2901
                condition.rows[leads],
                condition.leader[leads],
                condition.rival[leads],
                condition.gap[leads],
            )
        carried = condition.weights(problem.votes) / condition.gap[:, None]
        shares[condition.rows] = np.maximum(shares[condition.rows], carried)
    return shares[rows]


# How many of a test set's predictions one attack can change at once, exactly or bounded.

COLLECTIVE_METHODS = ("exact", "bound")


_TOLERANCE = 1e-6  # the solver's own


@dataclass(frozen=True)
class CollectiveCertificate:
    """Effect of one attack of each size on a whole test set.

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
        """Sizes at which bound and attack meet, so that `changed` is the truth."""
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
        `poisonproof_research.methods.collective.collective_bound` alone, which takes seconds for
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
    """Return the solver's bound on fallen rows, and the buckets of its best attack."""
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
