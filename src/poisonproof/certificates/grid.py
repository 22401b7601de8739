"""Grids of members, one per row partition and feature block: rows and features certified together.

A vote in two steps: the members of one row partition elect a label and the row partitions elect
the prediction, or the feature blocks do. The side that votes last is *outer*, the other *inner*.
Changing an inner voter changes one vote within every outer voter, changing an outer voter all its
votes. The derivations are in ``docs/theorems.md``, and the names here are those of that page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.plurality import (
    ABSTAIN,
    check_n_classes,
    check_target,
    count_votes,
    fewest_changes,
    plurality,
    plurality_radius,
    targeted_radius,
)
from poisonproof.certificates.result import GridCertificates
from poisonproof.certificates.runoff import (
    METHODS,
    elect,
    read_ballots,
    runoff_radius,
    runoff_targeted_radius,
)
from poisonproof.certificates.threats import Threat, parse_threat
from poisonproof.exceptions import InvalidInputError, InvalidVotesError

OUTER = ("rows", "features")
Ints = NDArray[np.int64]
_BLOCK = 1 << 18  # votes, or votes by class, looked at together; bounds the temporary arrays
_SCORES = 1 << 22  # scores read together
_ONE = 1 << 20  # what a whole vote counts where shares of votes are added, as integers
_ROUNDS = 8  # attempts at the sharper bound; each is valid


def certify_grid(
    votes: ArrayLike,
    n_classes: int,
    outer: str = "rows",
    max_features: int | None = None,
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
    shared_rows: bool = False,
) -> GridCertificates:
    """Certify a vote in two steps against poisoned rows and changed features at once.

    Parameters
    ----------
    votes : array-like of int, shape (n, k, B)
        One grid per test sample: the vote of member (i, j), trained on row partition i and shown
        feature block j only, in training and in prediction. A class index, or -1 where the member
        abstains. Memory maps are read in pieces.
    n_classes : int
        Number of classes, C. A declared quantity: it must not depend on the votes.
    outer : {"rows", "features"}
        The side that votes last. ``"rows"``: every row partition elects a label by its B votes,
        and the k labels elect the prediction. ``"features"``: every feature block elects a label
        by its k votes, and the B labels elect. Both are pluralities with ties to the smaller
        label; a voter abstains in the second if all its members abstain.
    max_features : int, optional
        Largest number of feature blocks that is looked at, F. By default all that anything is
        certified for.
    threat : str or Threat
        What one unit of attack on rows is, as in `certify_votes`.
    target : int or array-like of int, shape (n,), optional
        Certify against this label only: the largest attacks that cannot make the target win.
    shared_rows : bool
        For ``outer="features"``: a unit of attack touches the same row partitions for every
        feature block, as with contributors or with one partition for all blocks. The bound is
        then sharper. Rows partitioned by the content of each block fall elsewhere in each.

    Returns
    -------
    GridCertificates
        With class indices as labels. `rows` says for every f how many units are certified while f
        feature blocks differ; `counts` are the votes of the second step.

    Guarantee
    ---------
    No attack of at most f feature blocks and ``rows[i, f]`` units changes the label (with
    `target`: makes the target win). The votes of the attacked feature blocks and row partitions
    may change in any way. For ``outer="rows"`` f blocks of the test row may differ, so every
    backdoor whose trigger lies in them is covered. For ``outer="features"`` they may differ in
    all training rows, too. For ``outer="rows"`` the radius is tight for the votes, and without
    `target` and `shared_rows` so is all of ``outer="features"``, unless there is only one class.

    Assumes
    -------
    The feature blocks are fixed beforehand, not chosen from untrusted rows, and a member sees
    nothing of other blocks. One unit of attack changes at most ``threat.touches`` row partitions,
    for ``outer="features"`` in every block. There the partition of a row for one block may not
    depend on other blocks if these differ in training rows: partition by the content of each
    block, or by a key out of the attacker's reach.

    Examples
    --------
    >>> votes = np.zeros((1, 5, 4), dtype=int)  # 5 row partitions, 4 feature blocks
    >>> votes[0, 0] = 1  # of which the members of one partition vote for label 1
    >>> certify_grid(votes, n_classes=2).rows
    array([[1, 1, 1]])
    >>> certify_grid(votes, n_classes=2, outer="features").rows
    array([[1, 1, 1]])
    """
    n_classes = check_n_classes(n_classes)
    grid = _check_grid(votes)
    n, k, n_blocks = grid.shape
    plan = _Plan.of(outer, max_features, threat, k, n_blocks)
    targets = None if target is None else check_target(target, n, n_classes)
    height = max(1, _BLOCK // (k * n_blocks + plan.n_voters * n_classes))

    def blocks() -> Iterator[_Inner]:
        for top in range(0, n, height):
            cells = grid[top : top + height]
            _check_range(cells, top, n_classes)
            yield _inner_votes(plan.by_voter(cells), n_classes, shared_rows or outer == "rows")

    return _certify(blocks(), plan, n_classes, targets, f"grid_{outer}")


def certify_grid_scores(
    scores: ArrayLike | Iterator[ArrayLike],
    outer: str = "rows",
    max_features: int | None = None,
    threat: str | Threat = "insert_delete",
    target: ArrayLike | None = None,
    inner: str = "runoff",
) -> GridCertificates:
    """Certify a grid whose inner elections are run-offs of members that order the classes.

    Parameters
    ----------
    scores : array-like of float, shape (n, k, B, C), or iterator of such arrays
        The scores of member (i, j) for C classes, of which only the order matters, as in
        `certify_scores`; NaN for all classes where it abstains. Memory maps are read in pieces.
        An iterator gives the test samples in blocks, so that the scores of all never exist.
    outer, max_features, threat, target
        As in `certify_grid`; with an iterator, `target` is one class index.
    inner : {"runoff", "plurality"}
        The inner elections. The outer one is always a plurality of the labels that they elect.

    Returns
    -------
    GridCertificates
        As from `certify_grid`.

    Guarantee
    ---------
    As in `certify_grid`.

    Assumes
    -------
    As in `certify_grid`, and a member's scores depend on nothing but its own training rows and
    the features of the test row in its own block.

    Examples
    --------
    With one row partition, features alone are certified. The same scores as in `certify_scores`:

    >>> orders = [[2, 1, 0]] * 3 + [[0, 2, 1]] * 2 + [[0, 1, 2]] * 2
    >>> certificates = certify_grid_scores([[orders]])
    >>> certificates.labels, certificates.rows
    (array([1]), array([[0]]))
    """
    if inner not in METHODS:
        raise InvalidInputError(f"inner is one of {', '.join(METHODS)}. Got {inner!r}.")
    parts = scores if isinstance(scores, Iterator) else iter([scores])
    first = next(parts, None)
    if first is None:
        raise InvalidInputError("scores is an iterator without any array.")
    first = _check_scores(first)
    n, k, n_blocks, n_classes = first.shape
    plan = _Plan.of(outer, max_features, threat, k, n_blocks)
    if isinstance(scores, Iterator):
        if np.ndim(target if target is not None else 0):
            raise InvalidInputError("target is one class index where scores is an iterator.")
        n = 1  # of the targets; the rows are not known yet
    targets = None if target is None else check_target(target, n, n_classes)
    height = max(1, _SCORES // (k * n_blocks * n_classes))
    elections = _inner_runoffs if inner == "runoff" else _inner_first_choices

    def blocks() -> Iterator[_Inner]:
        top = 0
        for part in chain([first], map(_check_scores, parts)):
            if part.shape[1:] != first.shape[1:]:
                raise InvalidInputError(
                    "Every array of an iterator has the same members, blocks and classes. Got "
                    f"shapes {first.shape} and {part.shape}."
                )
            for start in range(0, len(part), height):
                block = part[start : start + height]
                _check_finite(block, top + start)
                yield elections(plan.by_voter(block), outer == "rows")
            top += len(part)

    method = f"grid_{outer}_runoff" if inner == "runoff" else f"grid_{outer}"
    return _certify(blocks(), plan, n_classes, targets, method)


@dataclass(frozen=True)
class _Plan:
    """The sides of a grid, the attacks that are looked at, and their unit."""

    outer: str
    k: int
    n_blocks: int
    last: int
    trims: bool
    threat: Threat

    @classmethod
    def of(
        cls, outer: str, max_features: int | None, threat: str | Threat, k: int, n_blocks: int
    ) -> _Plan:
        """Check the options."""
        if outer not in OUTER:
            raise InvalidInputError(f"outer is one of {', '.join(OUTER)}. Got {outer!r}.")
        if max_features is None:
            return cls(outer, k, n_blocks, n_blocks, True, parse_threat(threat))
        whole = isinstance(max_features, int | np.integer) and not isinstance(max_features, bool)
        if not whole or not 0 <= max_features <= n_blocks:
            raise InvalidInputError(
                f"max_features is a number of feature blocks, from 0 to {n_blocks}. "
                f"Got {max_features!r}."
            )
        return cls(outer, k, n_blocks, int(max_features), False, parse_threat(threat))

    @property
    def n_voters(self) -> int:
        """Number of outer voters."""
        return self.k if self.outer == "rows" else self.n_blocks

    def by_voter(self, cells: NDArray[Any]) -> NDArray[Any]:
        """Return cells (h, k, B, ...) with outer voters on axis 1 and inner ones on axis 2."""
        return np.ascontiguousarray(cells if self.outer == "rows" else cells.swapaxes(1, 2))


@dataclass(frozen=True)
class _Inner:
    """The inner elections of N outer voters, M inner voters each, on h test rows."""

    labels: Ints  # (h, N), -1 where nobody votes
    radius: Ints  # (h, N), changed inner voters that leave the label as it is
    reach: NDArray[np.int32]  # (h, N, C), changed inner voters that can make each label win
    cells: NDArray[Any] | None = None  # (h, N, M) votes, where changes hit the same inner voters
    counts: NDArray[Any] | None = None  # (h, N, C) of these votes

    def only(self, rows: NDArray[Any]) -> _Inner:
        """Return some test rows."""
        arrays = (self.labels, self.radius, self.reach, self.cells, self.counts)
        return _Inner(*(None if array is None else array[rows] for array in arrays))  # type: ignore[arg-type]


def _inner_votes(cells: NDArray[Any], n_classes: int, shared: bool) -> _Inner:
    h, n_voters, size = cells.shape
    counts = count_votes(cells.reshape(-1, size), n_classes)
    first, second = plurality(counts)
    radius = plurality_radius(counts, first, second, size)
    labels = np.where(counts.any(axis=1), first, ABSTAIN)
    reach = np.empty((len(counts), n_classes), dtype=np.int32)
    for label in range(n_classes):
        aim = np.full(len(counts), label)
        reach[:, label] = targeted_radius(counts, labels, aim, size) + 1
    reach[labels == ABSTAIN] = 1  # one changed vote decides where nobody votes
    shape = h, n_voters
    kept = (cells, counts.reshape(*shape, n_classes)) if shared else (None, None)
    return _Inner(
        labels.reshape(shape), radius.reshape(shape), reach.reshape(*shape, n_classes), *kept
    )


def _inner_first_choices(scores: NDArray[Any], shared: bool) -> _Inner:
    h, n_voters, size, n_classes = scores.shape
    first = np.empty((h * n_voters, size), dtype=np.int16)
    for rows, ballots in read_ballots(scores.reshape(-1, size, n_classes)):
        first[rows] = ballots.first
    return _inner_votes(first.reshape(h, n_voters, size), n_classes, shared)


def _inner_runoffs(scores: NDArray[Any], _shared: bool) -> _Inner:
    h, n_voters, size, n_classes = scores.shape
    flat = scores.reshape(-1, size, n_classes)
    labels, radius = np.empty((2, len(flat)), dtype=np.int64)
    reach = np.empty((len(flat), n_classes), dtype=np.int32)
    for rows, ballots in read_ballots(flat):
        counts = count_votes(ballots.first, n_classes)
        labels[rows], _ = elect(ballots, counts)
        radius[rows] = runoff_radius(ballots, counts, labels[rows])
        for label in range(n_classes):
            aim = np.full(len(counts), label)
            reach[rows, label] = runoff_targeted_radius(ballots, counts, labels[rows], aim) + 1
        # Where nobody votes, one member that begins to decides.
        silent = rows.start + np.flatnonzero(~counts.any(axis=1))
        labels[silent], radius[silent], reach[silent] = ABSTAIN, 0, 1
    shape = h, n_voters
    return _Inner(labels.reshape(shape), radius.reshape(shape), reach.reshape(*shape, n_classes))


# From inner elections to the staircase: how far the outer election holds, attack by attack.


def _certify(
    blocks: Iterator[_Inner], plan: _Plan, n_classes: int, targets: Ints | None, method: str
) -> GridCertificates:
    """Hold the outer elections block by block and join what they give."""
    labels, runner_up = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    counts = [np.empty((0, n_classes), np.int32)]
    rows = [np.empty((0, plan.last + 1), np.int64)]
    top = 0
    for inner in blocks:
        counts.append(count_votes(inner.labels, n_classes))
        for found, array in zip((labels, runner_up), plurality(counts[-1]), strict=True):
            found.append(array)
        aim = None
        if targets is not None:
            aim = targets[top : top + len(inner.labels)] if len(targets) > 1 else targets
            aim = np.broadcast_to(aim, labels[-1].shape)
        rows.append(_staircase(inner, labels[-1], counts[-1], aim, plan))
        top += len(inner.labels)
    table = np.concatenate(rows)
    if plan.trims:
        table = table[:, : max(1, int((table >= 0).any(axis=0).sum()))]
    return GridCertificates(
        np.concatenate(labels),
        np.ascontiguousarray(table[:, 0]),
        np.concatenate(runner_up),
        np.concatenate(counts),
        threat=plan.threat,
        n_members=plan.n_voters,
        target=None if targets is None else np.broadcast_to(targets, (top,)).copy(),
        method=method,
        rows=np.ascontiguousarray(table),
        outer=plan.outer,
        n_blocks=plan.n_blocks,
    )


def _staircase(
    inner: _Inner, labels: Ints, counts: NDArray[Any], targets: Ints | None, plan: _Plan
) -> Ints:
    """Return for f = 0, ..., F the largest number of units, shape (h, F + 1)."""
    touches, steps = plan.threat.touches, np.arange(plan.last + 1)
    rows_outside = plan.outer == "rows"
    table = np.full((len(labels), len(steps)), -1, dtype=np.int64)
    left, known = np.arange(len(labels)), np.full(len(labels), plan.n_voters, dtype=np.int64)
    for size in steps.tolist() if rows_outside else range(0, plan.k + 1, touches):
        if not len(left):
            break
        aim = None if targets is None else targets[left]
        # An attack that is withstood with more changed inner voters is withstood with fewer.
        known = np.minimum(
            known, _outer_radius(inner, labels[left], counts[left], aim, size, known)
        )
        holds = known >= 0
        if not holds.all():
            left, known, inner = left[holds], known[holds], inner.only(holds)
        if rows_outside:
            table[left, size] = known // touches
        else:
            table[left] += known[:, None] >= steps
    return table


def _outer_radius(
    inner: _Inner, labels: Ints, counts: NDArray[Any], targets: Ints | None, size: int, most: Ints
) -> Ints:
    """Return how many outer voters may change while `size` inner voters of each do, -1 if none.

    More than `most` is of no use.
    """
    n_voters, n_classes = inner.reach.shape[1:]
    classes, every = np.arange(n_classes), np.arange(len(labels))
    stays = np.where(inner.radius >= size, inner.labels, ABSTAIN)
    reached = (inner.reach <= size).sum(axis=1)
    if targets is None:
        safe = (stays == labels[:, None]).sum(axis=1)
        lead = safe[:, None] - reached - (classes < labels[:, None])
        np.put_along_axis(lead, labels[:, None], 2 * n_voters, axis=1)
        radius = lead // 2
        if inner.cells is not None and size:
            # Only the closest rival matters, until the sharper bound puts it behind another.
            sharpened = np.zeros_like(lead, dtype=np.bool_)
            while True:
                rivals = radius.argmin(axis=1)
                open_ = ~sharpened[every, rivals] & (radius[every, rivals] < most)
                rows, rivals = every[open_], rivals[open_]
                if not len(rows):
                    break
                shared = _shared_radius(inner, labels, counts, rows, rivals, size)
                radius[rows, rivals] = np.maximum(radius[rows, rivals], shared)
                sharpened[rows, rivals] = True
        return np.asarray(np.maximum(radius.min(axis=1), -1))
    own = np.take_along_axis(reached, targets[:, None], axis=1)
    excess = count_votes(stays, n_classes) + (classes < targets[:, None]) - own
    np.put_along_axis(excess, targets[:, None], 0, axis=1)

    def enough(changes: Ints) -> NDArray[np.bool_]:
        needed = np.maximum(excess - changes[:, None], 0).sum(axis=1)
        return np.asarray(needed <= changes)

    radius = fewest_changes(enough, np.full_like(labels, -1), np.full_like(labels, n_voters)) - 1
    if inner.cells is not None and size:
        # The target does not win while the winner stays ahead of it.
        rows = np.flatnonzero((radius < most) & (labels != targets))
        shared = _shared_radius(inner, labels, counts, rows, targets[rows], size)
        radius[rows] = np.maximum(radius[rows], shared)
    return radius


# The sharper bound: the same inner voters change within all outer voters.


def _shared_radius(
    inner: _Inner, labels: Ints, counts: NDArray[Any], rows: Ints, rivals: Ints, size: int
) -> Ints:
    """Return how many outer voters may change before each rival passes the winner of its row."""
    winners = labels[rows]
    lead = counts[rows, winners].astype(np.int64) - counts[rows, rivals] - (rivals < winners)
    assert inner.cells is not None
    step = max(1, _BLOCK // inner.cells[0].size)
    for top in range(0, len(rows), step):
        part = slice(top, top + step)
        lead[part] -= _damage(inner.only(rows[part]), winners[part], rivals[part], size)
    return np.asarray(np.maximum(lead // 2, -1))


def _damage(inner: _Inner, winners: Ints, rivals: Ints, size: int) -> Ints:
    """Bound by how much `size` changed inner voters lower the lead of winner over rival, (p,).

    An event is that an outer voter turns to the rival, or that it leaves the winner. It counts one
    at most, and at most the shares of the changed inner voters in bringing it about. All is in
    multiples of 1 / `_ONE`, rounded up: integers, so that floats hold every sum exactly.
    """
    active, gap, helping, cells = _events(inner, winners, rivals, size)
    # Changed inner voters move the gap by two if they held the label, else by one, or by nothing if
    # they voted for whom the gap is to. Or: as `size` of them move it by one each, what is left of
    # a larger gap falls to those that held the label.
    own, other = active * np.minimum(_share(2, gap), _ONE), active * _share(1, gap)
    spared = active * helping
    beyond, alone = gap > size, active * _share(1, np.maximum(gap - size, 1))
    whole = active * float(_ONE)
    damage: Ints = active.sum(axis=(1, 2))
    # Rounds of a game: the events against the inner voters that harm most so far. A mean of valid
    # bounds is a valid bound, and later rounds weigh more.
    counted, narrow, weight = active, beyond, 0
    columns, fixed = np.zeros((len(active), cells.shape[2])), np.zeros(len(active))
    for turn in range(1, _ROUNDS + 1):
        by_own = counted * np.where(narrow, alone, own)
        by_other, by_spared = counted * np.where(narrow, 0, (other, spared))
        by_kind = [(by_own - by_other).sum(axis=1, keepdims=True), by_spared - by_other]
        weights = np.concatenate(by_kind, axis=1).reshape(len(active), 1, -1)
        columns += turn * ((weights @ cells)[:, 0] + by_other.sum(axis=(1, 2))[:, None])
        fixed += turn * np.where(counted, 0, whole).sum(axis=(1, 2))
        weight += turn
        largest = np.argpartition(columns, -size, axis=1)[:, -size:]
        total = fixed + np.take_along_axis(columns, largest, axis=1).sum(axis=1)
        damage = np.minimum(damage, total.astype(np.int64) // (weight * _ONE))
        # Each event as it counts least for these inner voters.
        changed = np.zeros_like(columns)
        np.put_along_axis(changed, largest, 1, axis=1)
        n_cells = (cells @ changed[:, :, None]).reshape(len(active), 3, -1)
        n_own, n_spared = n_cells[:, :1], n_cells[:, 1:]
        by_all = own * n_own + other * (size - n_own - n_spared) + spared * n_spared
        by_some = np.where(beyond, alone * n_own, np.inf)
        narrow = by_some < by_all
        counted = active & (np.minimum(by_all, by_some) < whole)
    return damage


def _share(moves: int, gap: Ints) -> NDArray[np.float64]:
    """Return moves / gap in multiples of 1 / `_ONE`, rounded up."""
    return np.asarray(-(-moves * _ONE // gap), dtype=np.float64)


def _events(
    inner: _Inner, winners: Ints, rivals: Ints, size: int
) -> tuple[NDArray[np.bool_], Ints, NDArray[np.float64], NDArray[np.float64]]:
    """Return the events of N outer voters in p pairs: first the turns, then the departures.

    Whether `size` changed inner voters can bring it about, the gap to close, and the share of those
    that voted for whom the gap is to, all of shape (p, 2, N). Then which inner voters held the
    label, voted for the rival, and voted for the label closest to departures, (p, 3 N, M).
    """
    cells, counts, labels = inner.cells, inner.counts, inner.labels
    assert cells is not None
    assert counts is not None
    n_classes, pairs, most = counts.shape[2], np.arange(len(counts)), np.iinfo(np.int64).max
    own = np.maximum(labels, 0)[:, :, None]
    held = np.take_along_axis(counts, own, axis=2).astype(np.int64)
    gaps = held - counts + (np.arange(n_classes) > labels[:, :, None])
    to_rival = gaps[pairs, :, rivals]
    np.put_along_axis(gaps, own, most, axis=2)
    closest = gaps.argmin(axis=2)[:, :, None]
    to_closest = np.take_along_axis(gaps, closest, axis=2)[:, :, 0]
    np.put_along_axis(gaps, closest, most, axis=2)
    second = gaps.min(axis=2)
    turns = (inner.reach[pairs, :, rivals] <= size) & (labels != rivals[:, None])
    departs = (labels == winners[:, None]) & (inner.radius < size)
    active = np.stack([turns, departs], axis=1)
    gap = np.where(active, np.stack([to_rival, to_closest], axis=1), 1)
    # A changed vote for the closest label still helps the second closest, if there is any.
    helping = np.where(second < most, _share(1, np.minimum(second, _ONE)), 0)
    kinds = [cells == whom for whom in (labels[:, :, None], rivals[:, None, None], closest)]
    stacked = np.concatenate(kinds, axis=1, dtype=np.float64)
    return active, gap, np.stack([np.zeros_like(helping), helping], axis=1), stacked


# Checks.


def _check_grid(votes: ArrayLike) -> NDArray[Any]:
    """Return votes as an integer array of shape (n, k, B), k and B >= 1."""
    if np.ma.isMaskedArray(votes):
        raise InvalidVotesError("votes is a masked array. Write -1 where a member abstains.")
    try:
        array = np.asarray(votes)
    except ValueError as error:
        raise InvalidVotesError(
            "votes must be a block: one grid of row partitions and feature blocks per test sample "
            f"({error})."
        ) from error
    if array.ndim != 3 or 0 in array.shape[1:]:
        raise InvalidVotesError(
            "votes must have three dimensions: one row per test sample, at least one row "
            f"partition, at least one feature block. Got shape {array.shape}."
        )
    if array.dtype.kind not in "iu":
        raise InvalidVotesError(
            "votes must be integers (class indices, -1 for an abstention). Got dtype "
            f"{array.dtype}. Scores are for certify_grid_scores."
        )
    return array


def _check_range(cells: NDArray[Any], top: int, n_classes: int) -> None:
    if int(cells.min()) < ABSTAIN or int(cells.max()) >= n_classes:
        row, i, j = np.argwhere((cells < ABSTAIN) | (cells >= n_classes))[0]
        raise InvalidVotesError(
            f"votes[{top + row}, {i}, {j}] is {cells[row, i, j]}; a vote is a class index from 0 "
            f"to {n_classes - 1} (n_classes={n_classes}) or -1 for an abstention."
        )


def _check_scores(scores: ArrayLike) -> NDArray[Any]:
    """Return scores as a real array of shape (n, k, B, C), k, B and C >= 1."""
    if np.ma.isMaskedArray(scores):
        raise InvalidInputError(
            "scores is a masked array. Write NaN for all classes where a member abstains."
        )
    array = np.asarray(scores)
    if array.ndim != 4 or 0 in array.shape[1:]:
        raise InvalidInputError(
            "scores must have four dimensions: one row per test sample, at least one row "
            "partition, at least one feature block, at least one class. Got shape "
            f"{array.shape}."
        )
    if array.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"scores must be real numbers, such as float32. Got dtype {array.dtype}."
        )
    return array


def _check_finite(scores: NDArray[Any], top: int) -> None:
    finite = np.isfinite(scores)
    bad = ~finite & ~np.isnan(scores).all(axis=3, keepdims=True)
    if bad.any():
        row, i, j, label = (int(index) for index in np.argwhere(bad)[0])
        raise InvalidInputError(
            f"scores[{top + row}, {i}, {j}, {label}] is {scores[row, i, j, label]}. A member "
            "scores every class with a finite number, or abstains with NaN for all classes."
        )
