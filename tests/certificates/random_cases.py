"""Random small cases for every certificate: what is claimed, and what exhaustive attack finds.

Used by the tests and by ``benchmarks/certificates.py``. A radius is unsound if it exceeds the
truth; a bound on fallen rows is unsound if it is below it. Both are returned as
(claimed, truth, unsound).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from poisonproof.certificates import certify_scores, certify_votes
from poisonproof_research.methods.collective import collective_certificate
from poisonproof_research.methods.shared_buckets import certify_finite_aggregation, make_spread

from .oracle import order_types, outcomes, plurality_types, scores_of, true_radius
from .random_row_cases import (
    Case,
    clusters_case,
    label_flips_case,
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


def finite_aggregation_case(rng: Rng, targeted: bool = False) -> Outcome:
    n_classes = int(rng.integers(1, 5))
    shapes = [(3, 2), (6, 2), (8, 2), (9, 2), (4, 3), (5, 3), (4, 4), (6, 1)]
    k, degree = shapes[rng.integers(8) if n_classes > 1 else 0]
    spread = make_spread(k, degree, seed=int(rng.integers(1000)))
    types = plurality_types(n_classes)
    rows = rows_of_types(rng, types, spread.n_buckets)
    target = some_target(rng, n_classes, targeted)
    certificates = certify_finite_aggregation(rows - 1, n_classes, spread, target=target)
    return radius_outcome(certificates, types, rows[0], spread.members_of_bucket, target)


def runoff_finite_aggregation_case(rng: Rng, targeted: bool = False) -> Outcome:
    n_classes, k, degree = [
        *((2, 4, 2), (2, 8, 2), (3, 3, 2), (3, 6, 2), (3, 8, 2), (3, 9, 2), (3, 4, 3), (3, 3, 4)),
        (4, 2, 2),
    ][rng.integers(9)]
    spread = make_spread(k, degree, seed=int(rng.integers(1000)))
    types = order_types(n_classes)
    rows = rows_of_types(rng, types, spread.n_buckets)
    target = some_target(rng, n_classes, targeted)
    scores = scores_of(types, rows, n_classes)
    certificates = certify_scores(scores, membership=spread, target=target)
    return radius_outcome(certificates, types, rows[0], spread.members_of_bucket, target)


def collective_case(rng: Rng, targeted: bool = False, method: str = "exact") -> Outcome:
    n_classes, k = int(rng.integers(2, 5)), int(rng.integers(2, 8))
    n_rows, size = int(rng.integers(2, 8)), int(rng.integers(1, k))
    types = plurality_types(n_classes)
    rows, target = rows_of_types(rng, types, k, n_rows), some_target(rng, n_classes, targeted)
    claimed = collective_certificate(rows - 1, n_classes, size, target=target, method=method)
    buckets = np.arange(k)[:, None]
    return fallen_outcome(claimed, most_fallen(types, rows, buckets, size, n_classes, target))


def collective_buckets_case(rng: Rng, targeted: bool = False, method: str = "exact") -> Outcome:
    n_classes, n_rows = int(rng.integers(2, 5)), int(rng.integers(2, 8))
    spread = make_spread(*[(3, 2), (5, 2), (7, 2), (9, 2), (5, 3)][rng.integers(5)])
    size = int(rng.integers(1, 4))
    types = plurality_types(n_classes)
    rows = rows_of_types(rng, types, spread.n_buckets, n_rows)
    target = some_target(rng, n_classes, targeted)
    claimed = collective_certificate(
        rows - 1, n_classes, size, target=target, membership=spread, method=method
    )
    buckets = spread.members_of_bucket
    return fallen_outcome(claimed, most_fallen(types, rows, buckets, size, n_classes, target))


def fallen_outcome(claimed, truth: int) -> Outcome:
    assert claimed.attained[0] <= truth, "an attack that does not exist"
    return Outcome(int(claimed.changed[0]), truth, bool(claimed.changed[0] < truth))


def most_fallen(types, rows, buckets, size, n_classes, target) -> int:
    """Try all sets of buckets on all rows."""
    labels = [min(outcomes(types, row, np.arange(0), n_classes)) for row in rows]

    def falls(row, label, members):
        possible = outcomes(types, row, members, n_classes)
        return (
            bool(possible - {label}) if target is None else label != target and target in possible
        )

    return max(
        sum(
            falls(row, label, np.unique(buckets[list(owned)]))
            for row, label in zip(rows, labels, strict=True)
        )
        for owned in combinations(range(len(buckets)), size)
    )


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
    "flips within members": (label_flips_case,),
    "one member on all rows": (one_member_case,),
}

CASES: dict[str, Callable[[Rng], Outcome]] = {
    "plurality": plurality_case,
    "plurality, targeted": targeted(plurality_case),
    "run-off": runoff_case,
    "run-off, targeted": targeted(runoff_case),
    "finite aggregation": finite_aggregation_case,
    "finite aggregation, targeted": targeted(finite_aggregation_case),
    "run-off, finite aggregation": runoff_finite_aggregation_case,
    "run-off, finite aggregation, targeted": targeted(runoff_finite_aggregation_case),
    "collective": collective_case,
    "collective, targeted": targeted(collective_case),
    "collective, fast bound": lambda rng: collective_case(rng, method="bound"),
    "collective, fast bound, targeted": targeted(collective_case, method="bound"),
    "collective, shared buckets": collective_buckets_case,
    "collective, shared buckets, targeted": targeted(collective_buckets_case),
    "collective, shared buckets, fast bound": lambda rng: collective_buckets_case(
        rng, method="bound"
    ),
    "collective, shared buckets, fast bound, targeted": targeted(
        collective_buckets_case, method="bound"
    ),
    **{
        name + (", targeted" if aimed else ""): radius_case(*settings, targeted=aimed)
        for name, settings in ROWS.items()
        for aimed in (False, True)
    },
}

BOUNDS = ("finite aggregation", "fast bound", "relabelled", "clusters", "flips", "rows, targeted")
EXACT = {
    name
    for name in CASES
    if name.startswith("clusters, local") or not any(word in name for word in BOUNDS)
}
"""Certificates that promise the truth, not only a bound."""
