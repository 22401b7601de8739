"""An attack is what it says: its kind, its size, the partitions it touches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition import ContentHash
from tests.guarantees.campaign import ATTACK_THREATS, Attack, RowAttacker

RNG = np.random.default_rng(0)
X, y = RNG.integers(0, 9, (200, 5)).astype(float), RNG.integers(0, 4, 200)
HASH = ContentHash(n_partitions=12)


def attacker(seed: int = 0) -> RowAttacker:
    return RowAttacker(X, y, HASH, range(4), seed)


def rows(X: Any, y: Any) -> Counter[tuple[float, ...]]:
    return Counter(tuple(row) for row in np.column_stack([X, y]).tolist())


def differences(attack: Attack) -> tuple[Counter[Any], Counter[Any]]:
    before, after = rows(X, y), rows(attack.X, attack.y)
    return before - after, after - before


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("partitions", [None, [3], [1, 2, 8]])
@pytest.mark.parametrize("kind", ATTACK_THREATS)
def test_the_rows_that_differ_are_as_many_as_the_size_says(
    kind: str, partitions: list[int] | None, seed: int
) -> None:
    attack = attacker(seed).attack(kind, 4, partitions=partitions)
    gone, new = differences(attack)
    expected = {"insert": (0, 4), "duplicate": (0, 4), "delete": (4, 0), "reorder": (0, 0)}
    if kind in expected:
        assert (gone.total(), new.total()) == expected[kind]
    else:
        assert gone.total() <= attack.size
        assert new.total() <= attack.size
    assert attack.size == (0 if kind == "reorder" else 4)
    moved = [row[:-1] for row in [*gone, *new]]
    touched = set(HASH.assign(np.array(moved)).tolist()) if moved else set()
    assert touched <= set(attack.touched.tolist())
    if partitions is not None:
        assert set(attack.touched.tolist()) <= set(partitions)


def test_relabelled_rows_keep_their_sample_and_get_another_label() -> None:
    attack = attacker().attack("relabel", 9)
    gone, new = differences(attack)
    assert sorted(row[:-1] for row in gone.elements()) == sorted(row[:-1] for row in new.elements())
    assert gone.total() == 9


def test_a_label_can_be_chosen() -> None:
    _, new = differences(attacker().attack("insert", 6, label=2))
    assert {row[-1] for row in new} == {2}


def test_rows_near_a_sample_are_near_it() -> None:
    _, new = differences(attacker().attack("insert", 6, near=X[0], partitions=[5]))
    assert all(np.abs(np.array(row[:-1]) - X[0]).max() < 4 for row in new)


def test_the_same_seed_makes_the_same_attacks() -> None:
    one, two = attacker(3).attack("replace", 5), attacker(3).attack("replace", 5)
    assert np.array_equal(one.X, two.X)
    assert np.array_equal(one.y, two.y)


def test_clean_rows_are_left_alone() -> None:
    before = X.copy(), y.copy()
    for kind in ATTACK_THREATS:
        attacker().attack(kind, 7)
    assert np.array_equal(before[0], X)
    assert np.array_equal(before[1], y)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="kind of an attack"):
        attacker().attack("bribe", 1)
