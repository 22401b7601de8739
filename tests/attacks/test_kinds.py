"""Every kind of attack does what it says, in the unit of its threat."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from poisonproof.attacks import (
    ATTACK_KINDS,
    AttackKind,
    Backdoor,
    NumberMaterial,
    PartitionAware,
    Target,
    TargetedFlips,
    Victim,
)
from poisonproof.partition import ContentHash

K = 12
RNG = np.random.default_rng(0)
X, y = RNG.integers(0, 9, (200, 6)).astype(float), RNG.integers(0, 4, 200)
VICTIM = Victim(NumberMaterial(X), y, np.arange(4), ContentHash(n_partitions=K))
TARGET = Target(0, X[3] + 0.0, label=2, goal=1, radius=2, votes=RNG.integers(0, 4, K))


def rows(X: Any, y: Any) -> Counter[tuple[float, ...]]:
    return Counter(tuple(row) for row in np.column_stack([X, y]).tolist())


@pytest.mark.parametrize("size", [0, 1, 7, 25])
@pytest.mark.parametrize("kind", ATTACK_KINDS.values(), ids=list(ATTACK_KINDS))
def test_an_attack_changes_as_many_rows_as_its_size_says(kind: AttackKind, size: int) -> None:
    poison = kind.poison(VICTIM, TARGET, 25, np.random.default_rng(1))
    before, after = rows(X, y), rows(*poison.apply(X, y, size)[:2])
    gone, new = (before - after).total(), (after - before).total()
    assert new == size
    assert gone == (size if kind.threat == "label_flip" else 0)
    if kind.threat == "label_flip":
        assert rows(poison.apply(X, y, size)[0], 0 * y) == rows(X, 0 * y)


@pytest.mark.parametrize("kind", ATTACK_KINDS.values(), ids=list(ATTACK_KINDS))
def test_an_attack_is_a_function_of_its_seed(kind: AttackKind) -> None:
    first, again = (kind.poison(VICTIM, TARGET, 9, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first.X, again.X)
    assert np.array_equal(first.y, again.y)


def test_targeted_flips_take_the_nearest_rows_first() -> None:
    poison = TargetedFlips().poison(VICTIM, TARGET, 30, np.random.default_rng(0))
    scale = X.std(axis=0)
    distance = (((poison.X - TARGET.sample) / scale) ** 2).sum(axis=1)
    assert (np.diff(distance) >= 0).all()
    assert set(poison.y.tolist()) == {TARGET.goal}
    assert poison.leaves is not None
    assert TARGET.goal not in y[poison.leaves]


def test_the_worst_case_turns_to_every_voter_once_before_it_wastes_a_row() -> None:
    poison = PartitionAware().poison(VICTIM, TARGET, K, np.random.default_rng(0))
    voters = np.flatnonzero(TARGET.votes == TARGET.label)
    reached = VICTIM.partitioner.assign(poison.X)
    assert set(reached[: len(voters)].tolist()) == set(voters.tolist())
    assert len(set(reached.tolist())) == K


def test_look_alikes_stay_whole_numbers_in_the_range_of_the_data() -> None:
    near = VICTIM.material.near(TARGET.sample, 500, np.random.default_rng(0))
    assert np.array_equal(near, np.rint(near))
    assert near.min() >= X.min()
    assert near.max() <= X.max()
    assert np.abs(near - TARGET.sample).max() <= 1


def test_a_backdoor_marks_the_test_row_and_the_poison_alike() -> None:
    quiet = X.copy()
    quiet[:, :4] = 0
    victim = Victim(NumberMaterial(quiet), y, np.arange(4), ContentHash(n_partitions=K))
    asked = Backdoor().predicted(victim, quiet[:5])
    assert (asked[:, :4] == quiet.max()).all()
    assert np.array_equal(asked[:, 4:], quiet[:5, 4:])
    poison = Backdoor().poison(victim, TARGET, 10, np.random.default_rng(0))
    assert (poison.X[:, :4] == quiet.max()).all()
    assert (quiet[:5, :4] == 0).all()  # the clean rows are untouched
