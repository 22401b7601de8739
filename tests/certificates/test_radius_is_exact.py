"""The radius equals exhaustive attack on every small vote, and holds on large random ones.

The oracle uses no formula of the paper. It represents a row of votes by how many members chose
each label, and tries every other such state: the fewest votes that turn one into another is the
number of members that have to leave their label.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poisonproof.certificates import certify_votes

SMALL = [(n_classes, k) for n_classes in (1, 2, 3, 4) for k in range(1, 8)]
threats = st.sampled_from(["insert_delete", "label_flip", "replace", "replace/group"])


State = tuple[int, ...]  # votes for 0, ..., C-1 and abstentions


@cache
def states(n_classes: int, n_members: int) -> list[State]:
    """Return all ways to spread the members over the classes and the abstention."""
    free = product(range(n_members + 1), repeat=n_classes)
    return [(*counts, n_members - sum(counts)) for counts in free if sum(counts) <= n_members]


def winner(state: State) -> int:
    """Return the label with most votes, the smallest of several."""
    return min(range(len(state) - 1), key=lambda label: (-state[label], label))


def changed_votes(before: State, after: State) -> int:
    """Return how many members must change their vote, at least."""
    return sum(max(0, old - new) for old, new in zip(before, after, strict=True))


def shortest_attack(state: State, target: int | None = None) -> int | None:
    """Return the fewest changed votes that change the winner (into `target`), None if none do."""
    label = winner(state)
    sizes = [
        changed_votes(state, after)
        for after in states(len(state) - 1, sum(state))
        if (winner(after) != label if target is None else winner(after) == target)
    ]
    return min(sizes, default=None)


def votes_of(state: State) -> np.ndarray:
    """Return one row of votes with these counts, abstentions in front."""
    *counts, abstentions = state
    return np.repeat(np.arange(-1, len(counts)), [abstentions, *counts])


@pytest.mark.parametrize(("n_classes", "k"), [(1, 3), (2, 4), (3, 3)])
def test_oracle_finds_the_same_attacks_as_all_vote_rows(n_classes, k):
    rows = list(product(range(-1, n_classes), repeat=k))
    state = {
        row: (*(row.count(label) for label in range(n_classes)), row.count(-1)) for row in rows
    }
    for before in rows[:: len(rows) // 60 + 1]:
        for target in (None, *range(n_classes)):
            sizes = [
                sum(x != y for x, y in zip(before, after, strict=True))
                for after in rows
                if (
                    winner(state[after]) != winner(state[before])
                    if target is None
                    else winner(state[after]) == target
                )
            ]
            assert shortest_attack(state[before], target) == min(sizes, default=None)


@pytest.mark.parametrize(("n_classes", "k"), SMALL)
def test_radius_is_one_less_than_the_shortest_attack(n_classes, k):
    all_states = states(n_classes, k)
    votes = np.stack([votes_of(state) for state in all_states])
    certificates = certify_votes(votes, n_classes)
    replaced = certify_votes(votes, n_classes, threat="replace")
    for row, state in enumerate(all_states):
        attack = shortest_attack(state)
        assert certificates.labels[row] == winner(state)
        assert tuple(certificates.counts[row]) == state[:-1]
        if n_classes == 1:  # nothing can change the only label
            assert attack is None
            assert certificates.radius[row] == k
            continue
        assert certificates.radius[row] == attack - 1
        # A replaced row reaches two members, so ceil(attack / 2) replacements are needed.
        assert replaced.radius[row] == -(-attack // 2) - 1


@pytest.mark.parametrize(("n_classes", "k"), SMALL)
def test_targeted_radius_is_one_less_than_the_shortest_attack(n_classes, k):
    all_states = states(n_classes, k)
    votes = np.stack([votes_of(state) for state in all_states])
    for target in range(n_classes):
        radius = certify_votes(votes, n_classes, target=target).radius
        replaced = certify_votes(votes, n_classes, threat="replace", target=target).radius
        attacks = np.array([shortest_attack(state, target) for state in all_states])
        # Where the target wins already the shortest attack has size 0 and the radius is -1.
        np.testing.assert_array_equal(radius, attacks - 1)
        np.testing.assert_array_equal(replaced, -(-attacks // 2) - 1)


@pytest.mark.parametrize(("n_classes", "k"), [(3, 6), (4, 5)])
def test_runner_up_is_a_label_that_the_shortest_attack_reaches(n_classes, k):
    for state in states(n_classes, k):
        certificates = certify_votes(votes_of(state)[None], n_classes)
        runner_up, attack = int(certificates.runner_up[0]), shortest_attack(state)
        reached = {
            winner(after)
            for after in states(n_classes, k)
            if winner(after) != winner(state) and changed_votes(state, after) == attack
        }
        assert runner_up in reached


@st.composite
def vote_rows(draw):
    n_classes = draw(st.integers(2, 12))
    k = draw(st.integers(1, 300))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(n_classes + 1, draw(st.sampled_from([0.2, 1.0, 20.0]))))
    return rng.choice(np.arange(-1, n_classes), size=k, p=share), n_classes, rng


def attacked(votes, members, values):
    after = votes.copy()
    after[members] = values
    return after


@settings(max_examples=300, deadline=None)
@given(vote_rows(), threats)
def test_no_attack_within_the_radius_changes_the_label(case, threat):
    votes, n_classes, rng = case
    before = certify_votes(votes[None], n_classes, threat)
    reach = min(len(votes), int(before.radius[0]) * before.threat.touches)
    rival = int(before.runner_up[0])
    strongest = np.argsort(votes != before.labels[0], kind="stable")[:reach]
    random = rng.permutation(len(votes))[:reach]
    for members, values in (
        (strongest, rival),
        (strongest, rng.integers(-1, n_classes, reach)),
        (random, rival),
        (random, rng.integers(-1, n_classes, reach)),
    ):
        after = certify_votes(attacked(votes, members, values)[None], n_classes)
        assert after.labels[0] == before.labels[0]


@settings(max_examples=300, deadline=None)
@given(vote_rows(), threats)
def test_one_unit_more_than_the_radius_lets_the_runner_up_win(case, threat):
    votes, n_classes, _ = case
    before = certify_votes(votes[None], n_classes, threat)
    reach = (int(before.radius[0]) + 1) * before.threat.touches
    strongest = np.argsort(votes != before.labels[0], kind="stable")[:reach]
    after = certify_votes(attacked(votes, strongest, before.runner_up[0])[None], n_classes)
    assert after.labels[0] == before.runner_up[0]


def targeted_attack(votes, target, size):
    """Give the target `size` votes, each taken from the label that then stands in its way most."""
    after = votes.copy()
    for _ in range(min(size, int((votes != target).sum()))):
        others = after[after != target]
        labels, counts = np.unique(others, return_counts=True)
        strength = np.where(labels == -1, -1, 2 * counts + (labels < target))
        after[np.flatnonzero(after == labels[strength.argmax()])[0]] = target
    return after


@settings(max_examples=300, deadline=None)
@given(vote_rows(), threats)
def test_targeted_radius_is_sound_and_tight_beyond_small_votes(case, threat):
    votes, n_classes, rng = case
    target = int(rng.integers(n_classes))
    before = certify_votes(votes[None], n_classes, threat, target=target)
    radius, touches = int(before.radius[0]), before.threat.touches
    if before.labels[0] == target:
        assert radius == -1
        return
    within = targeted_attack(votes, target, radius * touches)
    beyond = targeted_attack(votes, target, (radius + 1) * touches)
    assert certify_votes(within[None], n_classes).labels[0] != target
    assert certify_votes(beyond[None], n_classes).labels[0] == target


@settings(max_examples=100, deadline=None)
@given(vote_rows())
def test_targeted_radius_is_never_below_the_untargeted_one(case):
    votes, n_classes, _ = case
    overall = certify_votes(votes[None], n_classes)
    rivals = [t for t in range(n_classes) if t != overall.labels[0]]
    repeated = np.repeat(votes[None], len(rivals), axis=0)
    radius = certify_votes(repeated, n_classes, target=rivals).radius
    assert radius.min() == overall.radius[0]
