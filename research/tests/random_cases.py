"""Random small cases of the certificates that only comparisons use, against exhaustive attack."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from poisonproof.certificates import make_threat
from poisonproof_research.methods.collective import collective_certificate
from poisonproof_research.methods.label_flip_elections import (
    certify_label_flips,
    flips_to_overtake,
)
from poisonproof_research.methods.shared_buckets import (
    certify_finite_aggregation,
    certify_shared_runoff,
    make_spread,
)
from tests.certificates.flip_oracle import flips_by_winner, some_members
from tests.certificates.flip_oracle import some_target as some_flip_target
from tests.certificates.flip_oracle import true_radius as true_flip_radius
from tests.certificates.oracle import order_types, outcomes, plurality_types, scores_of
from tests.certificates.random_cases import (
    Outcome,
    Rng,
    radius_case,
    radius_outcome,
    rows_of_types,
    some_target,
    targeted,
)


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
    certificates = certify_shared_runoff(scores, spread, target=target)
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


def label_flips_case(rng: Rng, targeted: bool) -> tuple[int, int]:
    members, n_classes = some_members(rng, n_members=int(rng.integers(2, 6)), most_rows=4)
    n_rows = sum(len(y) for _, y in members)
    flips = flips_by_winner(members, n_classes)
    target = some_flip_target(rng, flips) if targeted else None
    asked = [flips_to_overtake(weights[None], y, n_classes) for weights, y in members]
    votes, prices = (np.stack(each, axis=1) for each in zip(*asked, strict=True))
    found = certify_label_flips(votes, prices, n_rows, make_threat("label_flip"), target)
    return int(found.radius[0]), true_flip_radius(flips, n_rows, target)


CASES: dict[str, Callable[[Rng], Outcome]] = {
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
    "flips within members": radius_case(label_flips_case, targeted=False),
    "flips within members, targeted": radius_case(label_flips_case, targeted=True),
}
EXACT = {name for name in CASES if not any(w in name for w in ("finite", "bound", "flips"))}
"""Certificates that promise the truth, not only a bound."""
