"""Every method by every door: the command line and Python make the same model, bit for bit."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import poisonproof
from poisonproof import (
    Certificates,
    ClusterVoteClassifier,
    DPAClassifier,
    NeighborVoteClassifier,
    SSDPAClassifier,
    WeightedVoteClassifier,
)
from poisonproof.estimators import certify_runoff
from poisonproof.estimators.auditing import audit_model
from poisonproof.estimators.saving import model_fingerprint
from poisonproof.estimators.storing import update_model
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.closed_form import RidgeClassifier, ScaledKernelClassifier
from poisonproof.members.weights import WalkWeights
from poisonproof.report.evidence import Evidence, certificates_digest


class OwnTree(DecisionTreeClassifier):
    """A member of the user's own."""


X, Y = load_digits(return_X_y=True)
Y = Y.astype(str)
CLASSES = ",".join(map(str, range(10)))
NAMES = sorted(set(Y))
TRAIN, TEST, MORE = slice(0, 400), slice(500, 540), slice(400, 403)
DOORS = {
    "dpa": ("-k 12 --keep-data", DPAClassifier(n_partitions=12, classes=NAMES)),
    "dpa --threat label_flip": (
        "-k 12 --model ridge --keep-data",
        DPAClassifier(RidgeClassifier(), 12, classes=NAMES),
    ),
    "ss-dpa": (
        "-k 12 --scale --keep-data",
        SSDPAClassifier(ScaledKernelClassifier(), StandardScaler(), 12, classes=NAMES),
    ),
    "neighbors": ("--cosine 0.85", NeighborVoteClassifier(threshold=0.85, classes=NAMES)),
    "clusters": (
        "--clusters 14 --assignment onto --clusterer kmeans --scale",
        ClusterVoteClassifier(StandardScaler(), 14, "onto", clusterer="kmeans", classes=NAMES),
    ),
    "walks": (
        "--neighbors 20 --scale",
        WeightedVoteClassifier(StandardScaler(), WalkWeights(20), classes=NAMES),
    ),
}


@pytest.fixture
def files(tmp_path):
    for name, rows in {"train": TRAIN, "test": TEST, "more": MORE}.items():
        np.savez(tmp_path / f"{name}.npz", X=X[rows], y=Y[rows])
    return tmp_path


@pytest.mark.parametrize("method", DOORS)
def test_the_command_line_and_python_make_the_same_model(method, files, cli, monkeypatch):
    monkeypatch.chdir(files)
    options, classifier = DOORS[method]

    def run(*words: str) -> str:
        said = cli(*" ".join(words).split())
        assert said.code == 0, said.err
        return " ".join(said.out.split())

    trained = run("train train.npz --classes", CLASSES, "--method", method, options, "--out model")
    clf = classifier.fit(X[TRAIN], Y[TRAIN])
    found = model_fingerprint(clf)
    assert found in trained
    clf.save("saved", **({"keep_data": True} if "--keep-data" in options else {}))
    assert model_fingerprint(poisonproof.load("model")) == found

    for path in ("model", "saved"):
        run("certify", path, "test.npz --label y --out certificates.csv")
        run("predict", path, "test.npz --label y --out labels.npz")
        read, certificates = Certificates.load("certificates.csv"), clf.certify(X[TEST])
        assert read.radius.tolist() == certificates.radius.tolist()
        assert np.load("labels.npz")["label"].tolist() == clf.predict(X[TEST]).tolist()
        assert found in run("report", path, "test.npz --label y --out report.html")
        audited = run("audit", path, "--data train.npz --label y --sample 3 --out audit.json")
        assert "nothing wrong" in audited
        assert json.loads((files / "audit.json").read_text())["fingerprint"] == found
    assert Evidence.of(clf, X[TEST], Y[TEST]).identity.fingerprint == found
    audited = audit_model("saved", (X[TRAIN], Y[TRAIN]), sample=3)
    assert audited.passed
    assert audited.fingerprint == found

    if hasattr(clf, "votes"):
        run("certify model test.npz --label y --election runoff --out certificates.csv")
        read = Certificates.load("certificates.csv")
        for one in (clf, poisonproof.load("saved")):
            assert read.radius.tolist() == certify_runoff(one, X[TEST]).radius.tolist()
        assert read.method == "runoff"
        run("predict model test.npz --label y --election runoff --out labels.npz")
        assert np.load("labels.npz")["label"].tolist() == read.labels.tolist()
        assert np.load("labels.npz")["radius"].tolist() == read.radius.tolist()
        said = run("report model test.npz --label y --election runoff --out report.html")
        assert certificates_digest(read) in said
        assert "--election runoff" in (files / "report.html").read_text()

    if method in ("clusters", "walks"):
        said = cli("update", "model", "--add", "more.npz", "--label", "y")
        assert said.code == 2
        assert "Train it again" in " ".join(said.err.split())
        for refused in (clf.update, partial(update_model, "saved")):
            with pytest.raises(InvalidInputError, match="Train it again"):
                refused(add=(X[MORE], Y[MORE]))
        assert model_fingerprint(poisonproof.load("saved")) == found
        return
    run("update model --add more.npz --label y --out receipt.json")
    after = model_fingerprint(clf.update(add=(X[MORE], Y[MORE])))
    receipt = json.loads((files / "receipt.json").read_text())
    assert (receipt["fingerprint_before"], receipt["fingerprint_after"]) == (found, after)
    assert len(receipt["added"]) == 3
    assert update_model("saved", add=(X[MORE], Y[MORE])).fingerprint_after == after
    assert update_model("saved", remove=(X[MORE], Y[MORE])).fingerprint_after == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--method clusters --cosine 0.5", "--cosine is for --method neighbors"),
        ("--method walks -k 20", "-k: training rows vote in --method walks"),
        ("--method ss-dpa --threat insert_delete", "Use one of dpa, neighbors"),
        ("--method voting", "--method is one of dpa, neighbors, ss-dpa, clusters, walks"),
        ("--threat theft", "theft"),
        ("--method neighbors --groups who", "has no members"),
        ("--method neighbors --stream", "has no members"),
    ],
)
def test_options_that_do_not_go_together_are_named(words, message, files, cli):
    said = cli(
        "train", files / "train.npz", "--classes", CLASSES, *words.split(), "--out", files / "model"
    )
    assert said.code == 2
    assert message in " ".join(said.err.split())
    assert not (files / "model").exists()


def test_types_that_are_not_always_loaded_are_trusted_by_name(files, cli, monkeypatch):
    monkeypatch.chdir(files)
    own = "tests.cli.test_every_door.OwnTree"
    DPAClassifier(OwnTree(max_depth=4), 6, classes=NAMES).fit(X[TRAIN], Y[TRAIN]).save(
        "model", keep_data=True
    )
    for words in (
        "certify model test.npz --label y",
        "predict model test.npz --label y",
        "report model test.npz --label y --out report.html",
        "audit model --sample 2",
        "update model --add more.npz --label y",
    ):
        refused = cli(*words.split())
        assert refused.code == 2
        assert f"--trusted {own}" in " ".join((refused.err + refused.out).split())
        taken = cli(*words.split(), "--trusted", own)
        assert taken.code == 0, taken.err


def test_a_number_in_the_place_of_the_member_is_pointed_out():
    with pytest.raises(InvalidInputError, match=r"Did you mean n_partitions=50\?"):
        DPAClassifier(50).fit(X[TRAIN], Y[TRAIN])
