"""Every method by every door: the command line and Python make the same model, bit for bit."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import poisonproof
from poisonproof import (
    Certificates,
    ClusterVoteClassifier,
    DPAClassifier,
    GridClassifier,
    NeighborVoteClassifier,
    SSDPAClassifier,
    WeightedVoteClassifier,
)
from poisonproof.certificates import GridCertificates
from poisonproof.estimators import certify_runoff
from poisonproof.estimators.auditing import audit_model
from poisonproof.estimators.saving import model_fingerprint
from poisonproof.estimators.storing import update_model
from poisonproof.evaluation.surface import Surface
from poisonproof.exceptions import InvalidInputError, MemberWarning
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
    "grid": (
        "-k 8 --blocks lattice:4 --image-shape 8x8 --keep-data",
        GridClassifier(n_partitions=8, blocks="lattice:4", image_shape=(8, 8), classes=NAMES),
    ),
    "grid --outer features": (
        "-k 6 --blocks 5 --model ridge --keep-data",
        GridClassifier(RidgeClassifier(), 6, 5, "features", classes=NAMES),
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
        grid = isinstance(read, GridCertificates)
        assert read.method == (f"grid_{read.outer}_runoff" if grid else "runoff")
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


def test_a_grid_says_what_it_withstands_of_rows_and_features(files, cli, monkeypatch):
    monkeypatch.chdir(files)

    def run(words: str) -> str:
        said = cli(*words.split())
        assert said.code == 0, said.err
        return " ".join(said.out.split())

    options, clf = DOORS["grid"]
    said = run(f"train train.npz --classes {CLASSES} --method grid {options} --out model")
    assert "Trained 8 x 4 = 32 members (scaled-kernel) on 400 rows" in said
    assert "Blocks of features: 4 of pixels (lattice, image of 8 x 8)." in said
    certificates = clf.fit(X[TRAIN], Y[TRAIN]).certify(X[TEST])
    surface = Surface.of(certificates, clf.partitioner_.blocks, Y[TEST])
    said = run(
        "certify model test.npz --label y --features 1 --rows-out r.npz --summary-out s.json"
    )
    assert surface.sentence() in said
    assert "Pixels changed" in said
    assert np.load("r.npz")["radius"].tolist() == certificates.rows[:, 1].tolist()
    assert json.loads((files / "s.json").read_text())["surface"] == surface.to_json()
    for f in (0, 1, 4):
        run(f"predict model test.npz --label y --features {f} --out p.npz")
        expected = certificates.rows[:, f] if f < certificates.rows.shape[1] else [-1] * 40
        assert np.load("p.npz")["radius"].tolist() == list(expected)
    assert surface.sentence() in run("report model test.npz --label y --out r.html")
    assert "32 members on 400 rows" in run("audit model")
    for words, message in {
        "predict model test.npz --label y --votes-out v.npz": "vote in two steps",
        "attack train.npz test.npz --label y --trained model": "can be attacked",
        "train train.npz --classes NAMES --method grid --blocks words:4 --out n": "Blocks of words",
        "train train.npz --classes NAMES --method grid --blocks 65 --out n": "there are 64",
        "train train.npz --classes NAMES --method grid --model nin --out n": "Use Python",
        "train train.npz --classes NAMES --method grid --image-shape 1x8x8 --out n": "HEIGHTxWIDTH",
        "train train.npz --classes NAMES --method grid --outer both --out n": "rows, features",
        "train train.npz --classes NAMES --method grid --stream --out n": "in memory",
        "train train.npz --classes NAMES --blocks 4 --out n": "--blocks is for --method grid",
    }.items():
        refused = cli(*words.replace("NAMES", CLASSES).split())
        assert refused.code == 2, words
        assert message in " ".join(refused.err.split())


def test_a_block_with_few_rows_is_named(files, cli, monkeypatch):
    monkeypatch.chdir(files)
    table = X[TRAIN].copy()
    table[:, :16] = 3.0  # as the border of an image
    table[100:, 16:32] = np.nan
    np.savez("blank.npz", X=table, y=Y[TRAIN])
    options = (
        "--method grid -k 40 --blocks bands:4 --image-shape 8x8 --model naive-bayes --out blank"
    )
    said = cli(*f"train blank.npz --classes {CLASSES} --outer features {options}".split())
    assert said.code == 0, said.err
    err = " ".join(said.err.split())
    assert "In block 0 most rows fall into few partitions: 39 of 40 partitions have none." in err
    members = GridClassifier(
        GaussianNB(), 40, "bands:4", "features", image_shape=(8, 8), classes=NAMES
    )
    with pytest.warns(MemberWarning, match="In block 0 most rows|Block 1 has 100"):
        members.fit(table, Y[TRAIN])
    assert "Block 1 has 100 of 400 rows" in err
    assert "Trained 40 x 4 = 160 members (naive-bayes) on 400 rows" in " ".join(said.out.split())


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
