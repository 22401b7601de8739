"""Two hundred attacks with real refits: certificates hold, and they are not empty words."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier, certify_votes
from tests.guarantees.campaign import Campaign, Reference, RowAttacker, Trial, standard_scenarios

from .data import data

N_ATTACKS = 200


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    return list(Campaign(standard_scenarios(), seed=20240501).run(N_ATTACKS))


def test_no_attack_within_the_radius_changes_a_certified_prediction(trials: list[Trial]) -> None:
    broken = [trial.number for trial in trials if len(trial.damage.broken)]
    assert not broken, f"trials {broken} changed a certified prediction"


def test_no_attack_changes_a_bit_of_an_untouched_member(trials: list[Trial]) -> None:
    leaked = [trial.number for trial in trials if len(trial.damage.leaked)]
    assert not leaked, f"trials {leaked} changed a member outside the touched partitions"


def test_the_campaign_is_as_hard_as_it_claims(trials: list[Trial]) -> None:
    assert sum(t.attack.size == t.radius > 0 for t in trials) >= N_ATTACKS / 2
    assert set(Counter(trial.aim for trial in trials)) == {"anywhere", "largest", "voters", "empty"}
    assert {trial.attack.kind for trial in trials} == {
        "insert", "delete", "duplicate", "relabel", "replace", "reorder",
    }  # fmt: skip
    assert {trial.n_jobs for trial in trials} == {1, 2}
    assert len({(t.scenario.data, t.scenario.member) for t in trials}) == 12
    assert sum(trial.damage.certified for trial in trials) > 20 * N_ATTACKS
    assert sum(trial.damage.changed for trial in trials) > N_ATTACKS


def test_reordering_alone_changes_nothing(trials: list[Trial]) -> None:
    for trial in trials:
        if trial.attack.kind == "reorder":
            assert trial.damage.changed == 0
            assert len(trial.damage.turned) == 0


def test_radius_plus_one_rows_do_turn_predictions() -> None:
    """Tightness with real refits: nearest neighbours believe whoever stands closest."""
    digits = data("digits")
    model = DPAClassifier(KNeighborsClassifier(1), 15, classes=range(10))
    model.fit(digits.X, digits.y)
    reference = Reference.of(model, digits.X_test)
    certificates = model.certify(digits.X_test)
    turned = 0
    for target in range(10):
        radius, label = int(certificates.radius[target]), int(certificates.labels[target])
        voters = np.flatnonzero(reference.votes[target] == label)
        attacker = RowAttacker(digits.X, digits.y, model.partitioner_, range(10), seed=target)
        for size in (radius, radius + 1):
            attack = attacker.attack(
                "insert",
                size,
                partitions=voters[:size].tolist(),
                near=digits.X_test[target],
                label=int(certificates.runner_up[target]),
            )
            poisoned = DPAClassifier(KNeighborsClassifier(1), 15, classes=range(10))
            poisoned.fit(attack.X, attack.y)
            damage = reference.compare(poisoned, digits.X_test, attack)
            assert damage.holds
            if size == radius:
                assert target not in damage.turned
        turned += target in damage.turned
    assert turned >= 8


def test_radius_plus_one_votes_always_turn_a_prediction() -> None:
    """Tightness on the votes of a real ensemble, for every test row."""
    digits = data("digits")
    model = DPAClassifier(KNeighborsClassifier(1), 15, classes=range(10))
    model.fit(digits.X, digits.y)
    votes, certificates = model.votes(digits.X_test), model.certify(digits.X_test)
    for row, (label, rival) in enumerate(
        zip(certificates.labels, certificates.runner_up, strict=True)
    ):
        voters = np.flatnonzero(votes[row] == label)
        for more, turns in ((0, False), (1, True)):
            attacked = votes[row].copy()
            attacked[voters[: certificates.radius[row] + more]] = rival
            after = certify_votes(attacked[None], 10).labels[0]
            assert (after != label) == turns
