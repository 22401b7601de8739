"""The radius of an assignment against every way to flip labels, on all kinds of small tables."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.members.clusters import assignment_radius, best_assignment

CASES = 10_000


@cache
def admissible(n_clusters: int, n_classes: int, rule: str) -> NDArray[np.int64]:
    """All admissible assignments in lexicographic order."""
    every = np.array(list(product(range(n_classes), repeat=n_clusters)))
    distinct = np.array([len(set(p)) for p in every.tolist()])
    if rule == "one_to_one":
        return every[distinct == n_clusters]
    return every[distinct == n_classes] if rule == "onto" else every


@cache
def fillings(rows: int, n_classes: int) -> NDArray[np.int64]:
    """All ways to give labels to the rows of a cluster, counted."""
    every = np.array(list(product(range(rows + 1), repeat=n_classes)))
    return every[every.sum(axis=1) == rows]


@cache
def elections(sizes: tuple[int, ...], n_classes: int, rule: str) -> tuple[Any, Any]:
    """All tables with clusters of these sizes, and the winning assignment of each."""
    parts = [fillings(size, n_classes) for size in sizes]
    tables = np.array([np.stack(rows) for rows in product(*parts)])
    candidates = admissible(len(sizes), n_classes, rule)
    agreeing = sum(tables[:, a, candidates[:, a]] for a in range(len(sizes)))
    return tables, candidates[np.asarray(agreeing).argmax(axis=1)]  # the first of the best


def shortest_attack(table: Any, rule: str, cluster: int, target: int | None) -> float:
    """The fewest flipped labels that change the class of a cluster (to the target)."""
    tables, winners = elections(tuple(table.sum(axis=1)), table.shape[1], rule)
    flips = np.abs(tables - table).sum(axis=(1, 2)) // 2
    now = winners[flips == 0][0][cluster]
    hit = winners[:, cluster] != now if target is None else winners[:, cluster] == target
    return float(flips[hit].min()) if hit.any() else np.inf


def random_table(rng: np.random.Generator, rule: str) -> NDArray[np.int64]:
    n_classes = int(rng.integers(2, 4))
    limits = {"local": (1, 4), "one_to_one": (1, n_classes + 1), "onto": (n_classes, 4)}[rule]
    sizes = rng.integers(0, 5, size=int(rng.integers(*limits)))
    return np.array([rng.multinomial(size, rng.dirichlet(np.ones(n_classes))) for size in sizes])


@pytest.mark.parametrize(
    ("rule", "tight"), [("local", 1.0), ("one_to_one", 0.999), ("onto", 0.999)]
)
def test_no_smaller_attack_exists_and_the_radius_is_mostly_tight(rule: Any, tight: float) -> None:
    rng = np.random.default_rng(0)
    exact = []
    for _ in range(CASES):
        table = random_table(rng, rule)
        labels, radius, runner_up = assignment_radius(table, rule)
        cluster = int(rng.integers(len(table)))
        attack = shortest_attack(table, rule, cluster, None)
        if attack == np.inf:  # nothing the attacker does changes it, whatever the radius says
            continue
        assert radius[cluster] + 1 <= attack, (table, cluster)
        assert runner_up[cluster] != labels[cluster]
        if table.sum(axis=1).min() > 0:
            exact.append(radius[cluster] + 1 == attack)
    assert np.mean(exact) >= tight


@pytest.mark.parametrize("rule", ["local", "one_to_one", "onto"])
def test_no_attack_within_the_targeted_radius_reaches_the_target(rule: Any) -> None:
    rng = np.random.default_rng(1)
    for _ in range(CASES // 4):
        table = random_table(rng, rule)
        cluster, target = int(rng.integers(len(table))), int(rng.integers(table.shape[1]))
        labels, radius, _ = assignment_radius(table, rule, target)
        attack = shortest_attack(table, rule, cluster, target)
        assert radius[cluster] < attack
        assert (radius[cluster] == -1) == (labels[cluster] == target)


@pytest.mark.parametrize("rule", ["local", "one_to_one", "onto"])
def test_the_best_assignment_is_the_first_of_the_best(rule: Any) -> None:
    rng = np.random.default_rng(2)
    for _ in range(2_000):
        table = random_table(rng, rule)
        candidates = admissible(*table.shape, rule)
        agreeing = sum(table[a, candidates[:, a]] for a in range(len(table)))
        best = candidates[np.asarray(agreeing).argmax()]
        assert np.array_equal(best_assignment(table, rule), best)


def test_at_published_sizes_no_flips_within_the_radius_change_the_class() -> None:
    rng = np.random.default_rng(3)
    table = 5000 * np.eye(10, dtype=np.int64) + rng.integers(0, 400, (10, 10))
    labels, radius, _ = assignment_radius(table, "one_to_one")
    for cluster in range(10):
        rival = best_assignment(np.where(_arc(cluster, labels), -(10**6), table), "one_to_one")
        for budget, survives in ((radius[cluster], True), (radius[cluster] + 1, False)):
            attacked = _swap(table, labels, rival, int(budget))
            found = best_assignment(attacked, "one_to_one")
            assert (found[cluster] == labels[cluster]) == survives


def _arc(cluster: int, labels: Any) -> Any:
    mask = np.zeros((10, 10), dtype=bool)
    mask[cluster, labels[cluster]] = True
    return mask


def _swap(table: Any, labels: Any, rival: Any, budget: int) -> Any:
    """Flip labels where the rival differs, from the class of the best to the rival's."""
    attacked = table.copy()
    for a in np.flatnonzero(labels != rival):
        moved = min(budget, int(attacked[a, labels[a]]))
        attacked[a, labels[a]] -= moved
        attacked[a, rival[a]] += moved
        budget -= moved
    return attacked


def test_shapes_that_admit_no_assignment_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="one_to_one"):
        best_assignment(np.ones((3, 2), dtype=int), "one_to_one")
    with pytest.raises(InvalidInputError, match="onto"):
        best_assignment(np.ones((2, 3), dtype=int), "onto")
