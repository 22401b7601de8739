"""Real attacks with real retraining: nothing falls within its radius, and what is bare falls."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.attacks import (
    ATTACK_KINDS,
    AttackStudy,
    Backdoor,
    NearInsertions,
    PartitionAware,
    attack_study,
)
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.report.charts import render_attack_figure, surviving

X, y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 900), slice(900, 1300)


def neighbours(k: int = 25) -> DPAClassifier:
    return DPAClassifier(KNeighborsClassifier(1), k, classes=range(10))


@pytest.fixture(scope="module")
def study() -> AttackStudy:
    return attack_study(neighbours(), X[TRAIN], y[TRAIN], X[TEST], n_targets=4, limit=200, seed=1)


def test_within_the_radius_no_attack_changes_a_prediction(study: AttackStudy) -> None:
    tried, changed = study.trials_within
    assert changed == 0
    assert tried > 5 * 4 * 2
    for kind in study.kinds:
        for row in kind.rows:
            assert row.radius >= 1
            if max(row.protected.tried) >= row.radius:
                assert row.radius in row.protected.tried or row.protected.first is not None


def test_all_kinds_are_tried_on_rows_of_different_radius(study: AttackStudy) -> None:
    assert [kind.name for kind in study.kinds] == list(ATTACK_KINDS)
    for kind in study.kinds:
        assert len({row.radius for row in kind.rows}) >= 3


def test_the_certificate_is_nearly_tight_against_the_worst_real_attack(study: AttackStudy) -> None:
    """Nearest neighbours believe whoever stands closest, so one row turns one member."""
    worst = next(kind for kind in study.kinds if kind.name == PartitionAware.name)
    for row in worst.rows:
        assert row.protected.first is not None
        assert row.radius < row.protected.first <= row.radius + 3


def test_one_look_alike_turns_the_unprotected_model(study: AttackStudy) -> None:
    near = next(kind for kind in study.kinds if kind.name == NearInsertions.name)
    assert [row.unprotected.first for row in near.rows] == [1] * len(near.rows)
    assert all((row.protected.first or 999) > row.radius for row in near.rows)


def test_a_study_survives_a_file(study: AttackStudy) -> None:
    assert AttackStudy.from_dict(json.loads(json.dumps(study.to_dict()))) == study
    with pytest.raises(InvalidInputError, match="not the result of poisonproof attack"):
        AttackStudy.from_dict({"kinds": [{}]})


def test_the_picture_shows_what_was_measured(study: AttackStudy) -> None:
    two = replace(study, kinds=study.kinds[:2])
    assert render_attack_figure(two, "png", "Digits").startswith(b"\x89PNG")
    assert render_attack_figure(two, "svg", "$ _") == render_attack_figure(two, "svg", "$ _")
    for kind in study.kinds:
        shares = surviving(kind, np.arange(1, 60))
        assert (shares["protected"] >= shares["proved"]).all()


def test_semi_supervised_models_are_attacked_by_label_flips_alone() -> None:
    model = SSDPAClassifier(KNeighborsClassifier(1), n_partitions=15, classes=range(10))
    found = attack_study(model, X[:400], y[:400], X[TEST], n_targets=2, limit=60)
    assert {kind.threat.name for kind in found.kinds} == {"label_flip"}
    assert found.trials_within[1] == 0


def test_a_certificate_that_claims_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    certify = DPAClassifier.certify

    def boastful(self: Any, *arguments: Any, **options: Any) -> Any:
        honest = certify(self, *arguments, **options)
        return replace(honest, radius=honest.radius + 10)

    monkeypatch.setattr(DPAClassifier, "certify", boastful)
    found = attack_study(
        neighbours(), X[TRAIN], y[TRAIN], X[TEST], kinds=[PartitionAware()], n_targets=3, limit=60
    )
    assert found.trials_within[1] > 0


def test_a_backdoor_needs_more_rows_than_the_certificate_of_the_marked_row() -> None:
    model = DPAClassifier(GaussianNB(), 15, classes=range(10))
    found = attack_study(
        model, X[TRAIN], y[TRAIN], X[TEST], kinds=[Backdoor()], n_targets=2, limit=40
    )
    assert found.trials_within[1] == 0


def test_models_without_a_declared_label_set_and_of_contributors_are_refused() -> None:
    with pytest.raises(GuaranteeError, match="Declare the label set"):
        attack_study(DPAClassifier(GaussianNB(), 5), X[TRAIN], y[TRAIN], X[TEST])
    model = DPAClassifier(GaussianNB(), 5, partitioner="group", classes=range(10))
    with pytest.raises(InvalidInputError, match="say who contributed each row"):
        attack_study(model, X[TRAIN], y[TRAIN], X[TEST])


def test_the_documentation_quotes_the_committed_result() -> None:
    root = Path(__file__).parents[2]
    committed = json.loads((root / "benchmarks" / "results" / "attack_digits.json").read_text())
    study = AttackStudy.from_dict(committed)
    page = (root / "docs" / "attacks.md").read_text()
    assert study.trials_within[1] == 0
    for kind in study.kinds:
        firsts = (kind.median_first(which) for which in ("protected", "unprotected"))
        fell, alone = (f"> {study.limit}" if first is None else str(first) for first in firsts)
        tried, changed = kind.trials_within
        assert (
            f"| {kind.title} | {kind.median_radius} | {fell} | {alone} | {changed} of {tried} |"
        ) in page
