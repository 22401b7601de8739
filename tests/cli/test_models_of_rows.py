"""The commands on models in which single rows vote."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from poisonproof import ClusterVoteClassifier, NeighborVoteClassifier, WeightedVoteClassifier

X, Y = load_digits(return_X_y=True)


@pytest.fixture
def files(tmp_path):
    few = slice(0, 300)
    NeighborVoteClassifier(threshold=0.85, classes=range(10)).fit(X[few], Y[few]).save(
        tmp_path / "neighbors"
    )
    ClusterVoteClassifier(classes=range(10)).fit(X[few], Y[few]).save(tmp_path / "clusters")
    WeightedVoteClassifier(classes=range(10)).fit(X[few], Y[few]).save(tmp_path / "weighted")
    rows = np.column_stack([X[500:520], Y[500:520]]).astype(int)
    header = ",".join([*(f"c{i}" for i in range(64)), "label"])
    np.savetxt(tmp_path / "t.csv", rows, "%d", ",", header=header, comments="")
    return tmp_path


@pytest.mark.parametrize("name", ["neighbors", "clusters", "weighted"])
def test_rows_are_labelled_and_certified(files, name, cli):
    said = cli("predict", files / name, files / "t.csv", "--label", "label")
    assert said.code == 0, said.err
    assert "300 training rows" in " ".join(said.out.split())
    said = cli("certify", files / name, files / "t.csv", "--label", "label")
    assert said.code == 0, said.err
    assert "members" not in said.out  # there are none that could answer alone
    said = cli("certify", files / name, files / "t.csv", "--ignore", "label")
    assert said.code == 0, said.err
    assert "training rows" in " ".join(said.out.split())
    assert cli("audit", files / name).code == 0


def test_labels_may_be_words(files, cli):
    words = np.array([f"digit {y}" for y in Y])
    model = NeighborVoteClassifier(threshold=0.85, classes=sorted(set(words)))
    model.fit(X[:300], words[:300]).save(files / "words")
    out = files / "labels.csv"
    said = cli("predict", files / "words", files / "t.csv", "--ignore", "label", "--out", out)
    assert said.code == 0, said.err
    found = np.genfromtxt(out, delimiter=",", names=True, dtype=None, encoding=None)
    assert found["label"].tolist() == model.predict(X[500:520]).tolist()


def test_what_such_models_cannot_do_is_said_in_one_line(files, cli):
    out = files / "votes.npz"
    said = cli(
        "predict", files / "neighbors", files / "t.csv", "--label", "label", "--votes-out", out
    )
    assert said.code == 2
    assert "single rows vote" in " ".join(said.err.split())
    assert not out.exists()
    said = cli("update", files / "clusters", "--remove", files / "t.csv", "--label", "label")
    assert said.code == 2
    assert "Train it again on the rows as they are now" in " ".join(said.err.split())
