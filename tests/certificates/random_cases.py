"""Random small cases for every certificate: what is claimed, and what exhaustive attack finds.

Used by the tests and by ``benchmarks/certificates.py``. A radius is unsound if it exceeds the
truth. Both are returned as (claimed, truth, unsound).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from poisonproof.certificates import (
    certify_grid,
    certify_grid_scores,
    certify_scores,
    certify_votes,
)

from .oracle import (
    order_types,
    plurality_types,
    scores_of,
    true_radius,
    true_staircase,
)
from .random_row_cases import (
    Case,
    clusters_case,
    one_member_case,
    row_votes_case,
)

Rng = np.random.Generator


class Outcome(NamedTuple):
    """One case."""

    claimed: int
    truth: int
    unsound: bool


def rows_of_types(rng: Rng, types, n_members: int, n_rows: int = 1) -> np.ndarray:
    """Return what members say, from unanimous to uniformly mixed."""
    share = rng.dirichlet(np.full(len(types), rng.choice([0.1, 0.3, 1.0, 5.0])))
    return rng.choice(len(types), size=(n_rows, n_members), p=share)


def some_target(rng: Rng, n_classes: int, targeted: bool) -> int | None:
    return int(rng.integers(n_classes)) if targeted else None


def radius_outcome(certificates, types, row, membership, target) -> Outcome:
    claimed = int(certificates.radius[0])
    truth = true_radius(types, row, membership, certificates.n_classes, target)
    return Outcome(claimed, truth, claimed > truth)


def plurality_case(rng: Rng, targeted: bool = False) -> Outcome:
    n_classes, k = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    types = plurality_types(n_classes)
    rows, target = rows_of_types(rng, types, k), some_target(rng, n_classes, targeted)
    certificates = certify_votes(rows - 1, n_classes, target=target)
    return radius_outcome(certificates, types, rows[0], np.arange(k)[:, None], target)


def runoff_case(rng: Rng, targeted: bool = False) -> Outcome:
    n_classes, k_max = [(1, 5), (2, 8), (3, 8), (3, 8), (3, 8), (4, 4)][rng.integers(6)]
    k = int(rng.integers(1, k_max + 1))
    types = order_types(n_classes)
    rows, target = rows_of_types(rng, types, k), some_target(rng, n_classes, targeted)
    certificates = certify_scores(scores_of(types, rows, n_classes), target=target)
    return radius_outcome(certificates, types, rows[0], np.arange(k)[:, None], target)


def grid_case(rng: Rng, outer: str, shared: bool, targeted: bool, runoff: bool = False) -> Outcome:
    n_classes, k, n_blocks = (int(rng.integers(1, most)) for most in (4, 5, 5))
    types = order_types(n_classes) if runoff else plurality_types(n_classes)
    grid, target = rows_of_types(rng, types, n_blocks, k), some_target(rng, n_classes, targeted)
    options = {"outer": outer, "max_features": n_blocks, "target": target}
    if runoff:
        found = certify_grid_scores(scores_of(types, grid, n_classes)[None], **options)
    else:
        found = certify_grid(grid[None] - 1, n_classes, shared_rows=shared, **options)
    truth = true_staircase(types, grid, n_classes, outer, shared, target)
    f = int(rng.integers(n_blocks + 1))
    unsound = (found.rows[0] > truth).any()
    return Outcome(int(found.rows[0, f]), truth[f], bool(unsound))


def targeted(case: Callable[..., Outcome], **options) -> Callable[[Rng], Outcome]:
    return lambda rng: case(rng, targeted=True, **options)


def radius_case(case: Callable[..., Case], *settings: str, **aim: bool) -> Callable[[Rng], Outcome]:
    def outcome(rng: Rng) -> Outcome:
        claimed, truth = case(rng, *settings, **aim)
        return Outcome(claimed, truth, claimed > truth)

    return outcome


ROWS = {
    "neighbour votes, rows inserted or deleted": (row_votes_case, "insert_delete"),
    "neighbour votes, rows relabelled": (row_votes_case, "label_flip"),
    "neighbour votes, rows replaced": (row_votes_case, "replace"),
    "clusters, local": (clusters_case, "local"),
    "clusters, one-to-one": (clusters_case, "one_to_one"),
    "clusters, onto": (clusters_case, "onto"),
    "one member on all rows": (one_member_case,),
}

GRIDS = {
    "grid, rows outside": {"outer": "rows", "shared": True},
    "grid, features outside": {"outer": "features", "shared": False},
    "grid, features outside, the same rows": {"outer": "features", "shared": True},
    "grid of run-offs, rows outside": {"outer": "rows", "shared": True, "runoff": True},
    "grid of run-offs, features outside": {"outer": "features", "shared": False, "runoff": True},
}

CASES: dict[str, Callable[[Rng], Outcome]] = {
    "plurality": plurality_case,
    "plurality, targeted": targeted(plurality_case),
    "run-off": runoff_case,
    "run-off, targeted": targeted(runoff_case),
    **{
        name + (", targeted" if aimed else ""): radius_case(*settings, targeted=aimed)
        for name, settings in ROWS.items()
        for aimed in (False, True)
    },
    **{
        name + (", targeted" if aimed else ""): partial(grid_case, targeted=aimed, **options)
        for name, options in GRIDS.items()
        for aimed in (False, True)
    },
}

BOUNDS = ("relabelled", "clusters", "rows, targeted", "grid")
EXACT = {
    name
    for name in CASES
    if name.startswith("clusters, local")
    or not any(word in name for word in BOUNDS)
    or name in ("grid, features outside", "grid of run-offs, features outside")
}
"""Certificates that promise the truth, not only a bound."""
