"""Random small cases of votes of single rows, clusters, and flips counted within one member.

What exhaustive attack finds is searched act by act: every row inserted, deleted, relabelled or
replaced that could be, then every second one, until the prediction falls.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

from poisonproof.certificates import certify_row_votes, make_threat
from poisonproof.certificates.label_flips import certify_one_member, fewest_flips
from poisonproof.members.clusters import best_assignment, certify_clusters

from .flip_oracle import flips_by_vote, some_members, some_target, true_radius

Rng = np.random.Generator
Case = tuple[int, int]
"""The radius claimed, and the largest attack that fails."""
Votes = tuple[int, ...]


def acts(votes: Votes, threat: str) -> Iterator[Votes]:
    """Yield what one act makes of the rows: votes by label, then rows that do not vote."""
    n_classes = len(votes) - 1
    if threat == "insert_delete":
        for place in range(n_classes):
            yield _moved(votes, None, place)
            if votes[place]:
                yield _moved(votes, place, None)
        return
    places = range(n_classes) if threat == "label_flip" else range(n_classes + 1)
    for one, two in product(places, repeat=2):
        if one != two and votes[one]:
            yield _moved(votes, one, two)


def _moved(votes: Votes, out: int | None, into: int | None) -> Votes:
    changed = list(votes)
    if out is not None:
        changed[out] -= 1
    if into is not None:
        changed[into] += 1
    return tuple(changed)


@cache
def after(states: frozenset[Votes], threat: str) -> frozenset[Votes]:
    """Return all that one more act can make of any of the states."""
    return states | {changed for votes in states for changed in acts(votes, threat)}


def row_votes_case(rng: Rng, threat: str, targeted: bool) -> Case:
    n_classes = int(rng.integers(2, 4))
    votes = tuple(int(n) for n in rng.integers(0, 4, n_classes + 1))
    counts, total = np.array([votes[:-1]]), sum(votes)
    target = int(rng.integers(n_classes)) if targeted else None
    found = certify_row_votes(counts, total, threat, target)
    states = frozenset([votes])
    for size in range(total + 8):
        winners = {int(np.argmax(state[:-1])) for state in states}
        if size == 0:
            (label,) = winners
        if winners - {label} if target is None else target in winners:
            return int(found.radius[0]), size - 1
        more = after(states, threat)
        if more == states:
            break
        states = more
    return int(found.radius[0]), total


@cache
def fillings(size: int, n_classes: int) -> tuple[Votes, ...]:
    """All ways to label the rows of a cluster, counted."""
    every = product(range(size + 1), repeat=n_classes)
    return tuple(counts for counts in every if sum(counts) == size)


@cache
def assignments(n_clusters: int, n_classes: int, rule: str) -> np.ndarray:
    """All admissible assignments in lexicographic order."""
    every = product(range(n_classes), repeat=n_clusters)
    wanted = {"local": 0, "one_to_one": n_clusters, "onto": n_classes}[rule]
    return np.array([p for p in every if wanted in (0, len(set(p)))])


@cache
def tables(sizes: Votes, n_classes: int, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """All tables with clusters of these sizes, and the classes that win in each."""
    every = np.array(list(product(*(fillings(size, n_classes) for size in sizes))))
    if rule == "local":
        return every, every.argmax(axis=2)
    admissible = assignments(len(sizes), n_classes, rule)
    agreeing = sum(every[:, a, admissible[:, a]] for a in range(len(sizes)))
    return every, admissible[np.asarray(agreeing).argmax(axis=1)]


def clusters_case(rng: Rng, rule: str, targeted: bool) -> Case:
    n_classes = int(rng.integers(2, 4))
    least, most = {"local": (1, 3), "one_to_one": (1, n_classes), "onto": (n_classes, 3)}[rule]
    sizes = rng.integers(1, 5, int(rng.integers(least, most + 1)))
    share = rng.dirichlet(np.full(n_classes, rng.choice([0.3, 1.0, 3.0])), len(sizes))
    table = np.array([rng.multinomial(n, p) for n, p in zip(sizes, share, strict=True)])
    cluster, target = int(rng.integers(len(table))), None
    if targeted:
        target = int(rng.integers(n_classes))
    found = certify_clusters(table, np.array([cluster]), rule, target=target)
    every, winners = tables(tuple(sizes.tolist()), n_classes, rule)
    flips = np.abs(every - table).sum(axis=(1, 2)) // 2
    now = best_assignment(table, rule)[cluster]
    fallen = winners[:, cluster] != now if target is None else winners[:, cluster] == target
    truth = int(flips[fallen].min()) - 1 if fallen.any() else int(table.sum())
    return int(found.radius[0]), truth


def one_member_case(rng: Rng, targeted: bool) -> Case:
    ((weights, y),), n_classes = some_members(rng, n_members=1, most_rows=8)
    flips = flips_by_vote(weights, y, n_classes)
    target = some_target(rng, flips) if targeted else None
    fewest = fewest_flips(weights[None], y, n_classes, target)
    found = certify_one_member(*fewest, n_classes, len(y), make_threat("label_flip"), target)
    return int(found.radius[0]), true_radius(flips, len(y), target)
