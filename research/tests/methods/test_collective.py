"""The collective certificate brackets the truth, exactly or bounded, in time or not."""

from __future__ import annotations

import numpy as np
import pytest

from poisonproof.certificates import certify_votes
from poisonproof.exceptions import InvalidInputError
from poisonproof_research.methods.collective import (
    collective_bound,
    collective_certificate,
    make_problem,
)
from poisonproof_research.methods.shared_buckets import certify_finite_aggregation, make_spread


def realistic_votes(n, k, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, n_classes, n)
    knows = rng.random((n, k)) < 0.4 + 0.6 * rng.random((n, 1))
    return np.where(knows, truth[:, None], rng.integers(-1, n_classes, (n, k))), truth


@pytest.mark.parametrize("target", [None, 1])
def test_truth_lies_between_attained_and_changed(target):
    votes, _ = realistic_votes(60, 15, 4)
    sizes = np.arange(5)
    exact = collective_certificate(votes, 4, sizes, target=target)
    bound = collective_certificate(votes, 4, sizes, target=target, method="bound")
    assert exact.exact.all()
    assert (bound.attained <= exact.changed).all()
    assert (exact.changed <= bound.changed).all()
    assert (bound.changed <= bound.separately).all()
    assert (exact.changed < exact.separately).any()
    assert (np.diff(exact.changed) >= 0).all()


def test_separately_is_what_single_certificates_say():
    votes, truth = realistic_votes(200, 30, 5)
    single = certify_votes(votes, 5)
    found = collective_certificate(votes, 5, [0, 3, 6], method="bound")
    assert found.separately.tolist() == [int((single.radius < r).sum()) for r in (0, 3, 6)]
    correct = collective_certificate(votes, 5, 4, y_true=truth, method="bound")
    right = single.labels == truth
    assert correct.n_counted == right.sum()
    assert correct.separately[0] == (right & (single.radius < 4)).sum()
    assert correct.share[0] == (right.sum() - correct.changed[0]) / 200


@pytest.mark.parametrize("target", [None, 2])
@pytest.mark.parametrize(
    ("membership", "sizes"),
    [(None, (10, 40, 80)), (make_spread(50, 4), (3, 10, 20))],
    ids=["partitions", "buckets"],
)
def test_random_and_greedy_attacks_never_exceed_the_fast_bound_at_real_shapes(
    membership, sizes, target
):
    votes, _ = realistic_votes(1000, 200, 10)
    labels = certify_votes(votes, 10).labels
    keep = slice(None) if target is None else labels != target
    aims = None if target is None else np.full(1000, target)[keep]
    problem = make_problem(votes[keep], 10, aims, membership)
    rng = np.random.default_rng(1)
    for reach in sizes:
        bound, owned = collective_bound(problem, reach)
        attacks = [owned, *(rng.permutation(200)[:reach] for _ in range(30))]
        assert max(int(problem.fallen(attack).sum()) for attack in attacks) <= bound
        assert bound <= (problem.attack <= reach).sum()
    assert bound > 0


@pytest.mark.parametrize("method", ["exact", "bound"])
def test_buckets_of_one_member_are_disjoint_partitions(method):
    votes, _ = realistic_votes(60, 15, 4)
    alone = collective_certificate(votes, 4, [1, 3], method=method)
    for membership in (make_spread(15, 1), np.arange(15)[:, None], np.arange(15)[::-1, None]):
        same = collective_certificate(votes, 4, [1, 3], membership=membership, method=method)
        assert same.separately.tolist() == alone.separately.tolist()
        if method == "exact":
            assert same.changed.tolist() == alone.changed.tolist()


def test_the_exact_program_knows_that_buckets_overlap():
    """Finite aggregation adds what two buckets of the same members carry, and the bound does."""
    votes, buckets = np.zeros((1, 5), dtype=int), [[0, 1], [0, 1]]
    assert certify_finite_aggregation(votes, 2, buckets).radius.tolist() == [1]
    exact = collective_certificate(votes, 2, 2, membership=buckets)
    assert (exact.changed.tolist(), exact.separately.tolist()) == ([0], [1])


def test_fallen_rows_are_those_that_really_change():
    votes, _ = realistic_votes(100, 25, 4)
    problem = make_problem(votes, 4)
    members = np.arange(0, 25, 4)
    changed = np.zeros(100, dtype=bool)
    for rival in range(4):
        after = votes.copy()
        after[:, members] = rival
        changed |= certify_votes(after, 4).labels != problem.labels
    np.testing.assert_array_equal(problem.fallen(members), changed)


def test_a_solver_without_time_still_gives_a_sound_bound():
    votes, _ = realistic_votes(150, 40, 6)
    hurried = collective_certificate(votes, 6, [6], time_limit=1e-3)
    bound = collective_certificate(votes, 6, [6], method="bound")
    assert bound.attained[0] <= hurried.attained[0] <= hurried.changed[0] <= bound.changed[0]


@pytest.mark.parametrize(
    "options",
    [
        {"method": "guess"},
        {"time_limit": 0},
        {"sizes": [-1]},
        {"sizes": [[1]]},
        {"y_true": [0]},
        {"target": 7},
        {"membership": make_spread(3, 2)},
        {"membership": [[0, 9]]},
    ],
)
def test_bad_requests_are_refused(options):
    votes, _ = realistic_votes(5, 4, 3)
    with pytest.raises(InvalidInputError):
        collective_certificate(votes, **{"n_classes": 3, "sizes": 1, **options})


@pytest.mark.parametrize("lie", [0, 1])
def test_a_solver_that_an_attack_contradicts_is_not_believed(lie, monkeypatch):
    """Whether it lies about the size that is attacked, or about a larger one alone."""
    votes, _ = realistic_votes(60, 15, 4)
    sizes = [4, 5]
    fast = collective_certificate(votes, 4, sizes, method="bound")
    assert (fast.attained < fast.changed).all()
    limits = iter([100] * lie + [3, 3])
    monkeypatch.setattr(
        "poisonproof_research.methods.collective._solve", lambda *_: (next(limits), np.arange(0))
    )
    doubted = collective_certificate(votes, 4, sizes)
    assert np.array_equal(doubted.changed, fast.changed)
