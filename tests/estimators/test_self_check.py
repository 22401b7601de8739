"""Some members of every stored model are trained again in a fresh process and must be the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

import poisonproof
from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.data import DataSource, Schema
from poisonproof.estimators import fit_stream
from poisonproof.estimators import self_check as checking
from poisonproof.exceptions import GuaranteeError, SelfCheckError
from poisonproof.networks import TorchLearner
from tests.cli.conftest import Cli, cli  # noqa: F401
from tests.guarantees.learners import (
    Clock,
    EndsElsewhere,
    RacingThreads,
    RandomVotes,
    StringOrder,
    SystemRandom,
)

X, y = load_digits(return_X_y=True)


@pytest.mark.usefixtures("self_check")
@pytest.mark.parametrize(
    ("learner", "found"),
    [
        (Clock(), "its state differs"),
        (RacingThreads(), "its state differs"),
        (RandomVotes(), "its votes on these rows differ"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_learner_that_is_no_function_of_its_rows_makes_no_model(
    learner: Any, found: str, tmp_path: Path
) -> None:
    classifier = DPAClassifier(learner, n_partitions=10, classes=range(10))
    with pytest.raises(GuaranteeError, match=rf"a {type(learner).__name__}, .*{found}"):
        classifier.fit_into(tmp_path / "model", X, y)
    assert not hasattr(classifier, "ensemble_")
    assert {path.name for path in (tmp_path / "model").iterdir()} <= {"lock", "objects"}


@pytest.mark.usefixtures("self_check")
def test_streamed_members_that_draw_from_the_system_make_no_model(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    pd.DataFrame(X[:400]).rename(columns=str).assign(label=y[:400]).to_csv(rows, index=False)
    source = DataSource(rows, Schema(label="label", classes=tuple(map(str, range(10)))))
    classifier = DPAClassifier(SystemRandom(), n_partitions=5, classes=source.schema.classes)
    with pytest.raises(GuaranteeError, match="a SystemRandom"):
        fit_stream(classifier, tmp_path / "model", source)
    assert not (tmp_path / "model" / "manifest.json").exists()


def test_members_that_depend_on_string_hashes_are_found_by_fit_if_it_is_asked_to() -> None:
    classifier = DPAClassifier(StringOrder(), n_partitions=10, classes=range(10))
    with pytest.raises(GuaranteeError, match="a StringOrder"):
        classifier.fit(X, y, self_check=True)
    assert not hasattr(classifier, "ensemble_")


@pytest.mark.parametrize(
    "classifier",
    [
        SSDPAClassifier(LogisticRegression(max_iter=50), PCA(8), n_partitions=20),
        DPAClassifier(TorchLearner("mlp", epochs=2, hidden=(16,)), n_partitions=20),
    ],
    ids=["ss-dpa on learned features", "networks"],
)
def test_honest_members_are_the_same_in_another_process(classifier: Any) -> None:
    classifier.set_params(classes=range(10)).fit(X, y, self_check=True)
    assert classifier.n_self_checked_ == 1


@pytest.mark.usefixtures("self_check")
def test_members_of_a_stopped_training_are_checked_each_from_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[int, Any]] = []

    def stop(recipe: Any, shards: dict[int, Any]) -> Any:
        sent.append(shards)
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "_in_fresh_process", stop)
    classifier = DPAClassifier(n_partitions=120, classes=range(10))
    for _ in range(2):  # the second time no member is missing
        with pytest.raises(KeyboardInterrupt):
            classifier.fit_into(tmp_path / "model", X, y)
    assert [list(shards) for shards in sent] == [sorted(sent[0], reverse=True)] * 2
    assert len(sent[0]) == 3  # 2 % of 120, rounded up
    for index, shard in sent[0].items():
        assert shard.digest() == classifier.partition_digests_[index]


@pytest.mark.usefixtures("self_check")
def test_a_failure_of_the_machine_keeps_the_members_and_says_nothing_about_them(
    tmp_path: Path,
) -> None:
    learner = EndsElsewhere(os.getpid(), str(tmp_path))
    classifier = DPAClassifier(learner, n_partitions=10, classes=range(10))
    with pytest.raises(SelfCheckError, match="could not run: its process was killed by SIGKILL"):
        classifier.fit_into(tmp_path / "model", X, y)
    assert (tmp_path / "trained").read_text() == "10"
    classifier.fit_into(tmp_path / "model", X, y, self_check=False)
    assert (tmp_path / "trained").read_text() == "10"  # none was trained again


@pytest.mark.usefixtures("self_check")
def test_the_command_line_checks_unless_told_not_to(cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    pd.DataFrame(X[:200]).rename(columns=str).assign(label=y[:200]).to_csv(
        tmp_path / "rows.csv", index=False
    )
    command = ["train", tmp_path / "rows.csv", "--label", "label", "-k", 5]
    command += ["--classes", ",".join(map(str, range(10)))]
    checked = cli(*command, "--out", tmp_path / "one")
    assert checked.code == 0
    assert "Self-check: 1 member trained again in a fresh process" in checked.out
    unchecked = cli(*command, "--out", tmp_path / "two", "--no-self-check")
    assert "Self-check: no member was trained again" in unchecked.out
    assert poisonproof.load(tmp_path / "one").n_self_checked_ == 1
    assert poisonproof.load(tmp_path / "two").n_self_checked_ == 0
