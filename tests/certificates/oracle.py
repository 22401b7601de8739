"""Exhaustive attack, free of every formula that it is used to check.

What a member says is its *type*: a label, or an order of the labels, or nothing. A row is a type
per member. An attacker who owns some members may give each of them any type; all ways to do so are
tried, member by member.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise, permutations

import numpy as np

Types = tuple[tuple[int, ...], ...]
Counts = tuple[int, ...]


def plurality_types(n_classes: int) -> Types:
    """Return what a voter can say: one label, or nothing."""
    return ((), *((label,) for label in range(n_classes)))


def order_types(n_classes: int) -> Types:
    """Return what an elector can say: an order of all labels, or nothing."""
    return ((), *permutations(range(n_classes)))


def winner(types: Types, counts: Counts, n_classes: int) -> int:
    """Count by hand: plurality if types name one label, a run-off if they order all of them."""

    def smallest_of_most(votes):
        return min(votes, key=lambda label: (-votes[label], label))

    said = [(types[i], n) for i, n in enumerate(counts) if n and types[i]]
    firsts = {label: sum(n for order, n in said if order[0] == label) for label in range(n_classes)}
    one = smallest_of_most(firsts)
    if n_classes == 1 or max(len(order) for order in types) == 1:
        return one
    two = smallest_of_most({label: n for label, n in firsts.items() if label != one})
    duel = {
        label: sum(n for order, n in said if order.index(label) < order.index(one + two - label))
        for label in (one, two)
    }
    return smallest_of_most(duel)


@cache
def elections(types: Types, n_members: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all ways to spread the members over the types, and who wins each."""
    places = n_members + len(types) - 1
    bars = np.array(list(combinations(range(places), len(types) - 1)), dtype=np.int64)
    walls = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, places)))
    states = (np.diff(walls, axis=1) - 1).astype(np.int8)
    return states, np.array([winner(types, tuple(s), n_classes) for s in states.tolist()])


@cache
def reachable(types: Types, kept: Counts, n_members: int, n_classes: int) -> frozenset[int]:
    """Return who can win while the untouched members keep their types."""
    if sum(kept) == n_members:
        return frozenset([winner(types, kept, n_classes)])
    one_more = (
        reachable(types, (*kept[:i], n + 1, *kept[i + 1 :]), n_members, n_classes)
        for i, n in enumerate(kept)
    )
    return frozenset().union(*one_more)


@cache
def choices(n_buckets: int, size: int) -> np.ndarray:
    """Return all sets of buckets of one size, shape (sets, size)."""
    return np.array(list(combinations(range(n_buckets), size)), dtype=np.int64)


def winners_by_size(types: Types, row: np.ndarray, membership: np.ndarray, n_classes: int):
    """Yield, for attacks on 0, 1, 2, ... buckets, who can win.

    Parameters
    ----------
    row : ndarray of int, shape (k,)
        Index of every member's type.
    membership : ndarray of int, shape (B, d)
        The members that each bucket serves.
    """
    says = (row[:, None] == np.arange(len(types))).astype(np.int64)
    for size in range(len(membership) + 1):
        chosen = choices(len(membership), size)
        untouched = np.ones((len(chosen), len(row)), dtype=np.int64)
        untouched[np.arange(len(chosen))[:, None, None], membership[chosen]] = 0
        possible: set[int] = set()
        for kept in {tuple(counts) for counts in (untouched @ says).tolist()}:
            possible |= reachable(types, kept, len(row), n_classes)
        yield possible


def outcomes(types: Types, row: np.ndarray, touched: np.ndarray, n_classes: int) -> frozenset[int]:
    """Return who can win a row when the listed members say what the attacker likes."""
    untouched = np.delete(row, np.unique(touched).astype(int))
    kept = tuple(np.bincount(untouched, minlength=len(types)).tolist())
    return reachable(types, kept, len(row), n_classes)


def true_radius(types: Types, row: np.ndarray, membership: np.ndarray, n_classes: int, target=None):
    """Return the largest attack that cannot change the winner (make the target win)."""
    label = None
    for size, possible in enumerate(winners_by_size(types, row, membership, n_classes)):
        if size == 0:
            (label,) = possible
        if possible - {label} if target is None else target in possible:
            return size - 1
    return len(membership)


def scores_of(types: Types, rows: np.ndarray, n_classes: int) -> np.ndarray:
    """Return scores whose orders are the given types; ties stand for the natural order."""
    table = np.full((len(types), n_classes), np.nan)
    for i, order in enumerate(types):
        if order:
            value = 0.0
            for better, worse in pairwise(order):
                table[i, better] = value
                value -= float(better > worse)  # equal scores where the index decides already
            table[i, order[-1]] = value
    return table[rows]


# Grids: outer voters whose own votes are elections of inner voters.


@cache
def inner_labels(types: Types, kept: Counts, n_members: int, n_classes: int) -> frozenset[int]:
    """Return who an outer voter can vote for while the untouched inner voters keep their types."""
    if sum(kept) == n_members:
        voting = any(n for n, order in zip(kept, types, strict=True) if order)
        return frozenset([winner(types, kept, n_classes) if voting else -1])
    one_more = (
        inner_labels(types, (*kept[:i], n + 1, *kept[i + 1 :]), n_members, n_classes)
        for i, n in enumerate(kept)
    )
    return frozenset().union(*one_more)


def outer_winners(labels: list[frozenset[int]], n_classes: int) -> set[int]:
    """Return who can win a plurality of voters that each choose from a set; -1 abstains."""
    states = {(0,) * n_classes}
    for some in labels:
        states = {
            tuple(n + (i == label) for i, n in enumerate(state))
            for state in states
            for label in some
        }
    return {min(range(n_classes), key=lambda a: (-state[a], a)) for state in states}


def grid_winners(
    types: Types, grid: np.ndarray, n_classes: int, n_outer: int, n_inner: int, shared: bool
) -> set[int]:
    """Return who can win when some outer voters change and some inner voters of all of them.

    Parameters
    ----------
    grid : ndarray of int, shape (N, M)
        Index of the type of each inner voter of each outer voter.
    n_outer, n_inner : int
        How many of them change.
    shared : bool
        Whether the changed inner voters are the same for all outer voters.
    """
    anything = frozenset(range(-1, n_classes))

    def reached(row, touched):
        kept = np.bincount(np.delete(row, touched), minlength=len(types))
        return inner_labels(types, tuple(kept.tolist()), len(row), n_classes)

    inner_sets = [list(some) for some in combinations(range(grid.shape[1]), n_inner)]
    found = [[reached(row, touched) for row in grid] for touched in inner_sets]
    if not shared:
        found = [[frozenset().union(*some) for some in zip(*found, strict=True)]]
    return {
        label
        for outer_set in combinations(range(len(grid)), n_outer)
        for labels in found
        for label in outer_winners(
            [anything if i in outer_set else some for i, some in enumerate(labels)], n_classes
        )
    }


def true_staircase(
    types: Types, grid: np.ndarray, n_classes: int, outer: str, shared: bool, target=None
) -> list[int]:
    """Return for every f the largest r that cannot change the winner (make the target win)."""
    k, n_blocks = grid.shape
    voters = grid if outer == "rows" else grid.T
    (label,) = grid_winners(types, voters, n_classes, 0, 0, shared)

    def holds(r, f):
        sizes = (r, f) if outer == "rows" else (f, r)
        possible = grid_winners(types, voters, n_classes, *sizes, shared or outer == "rows")
        return possible == {label} if target is None else target not in possible

    return [next((r - 1 for r in range(k + 1) if not holds(r, f)), k) for f in range(n_blocks + 1)]
