"""``train`` and ``predict``: from files to a model and its labels."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

import poisonproof
from poisonproof.cli._app import MEMBER_KINDS
from tests.cli.conftest import Cli, mails, write_csv

IMAGE_NETWORKS = ("nin", "resnet10")
DECLARED = ("--label", "kind", "--classes", "ham,spam")


def labels_of(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return [row["label"] for row in csv.DictReader(file)]


def test_the_model_is_what_the_library_trains(cli: Cli, model: Path, test_csv: Path) -> None:
    rows = mails(400, 0)
    X = np.array([[float(a), float(b)] for a, b, *_ in rows])
    y = np.array([kind for *_, kind in rows])
    clf = poisonproof.DPAClassifier(GaussianNB(), n_partitions=20, classes=["ham", "spam"])
    expected = clf.fit(X, y)
    loaded = poisonproof.load(model)
    assert loaded.ensemble_.digests() == expected.ensemble_.digests()
    assert list(loaded.feature_names_in_) == ["length", "links"]
    assert loaded.get_params()["n_jobs"] is None


def test_rows_in_another_order_give_the_same_model(
    cli: Cli, model: Path, train_csv: Path, tmp_path: Path
) -> None:
    header, *lines = train_csv.read_text().splitlines()
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("\n".join([header, *reversed(lines)]))
    arguments = ("train", shuffled, *DECLARED, "-k", 20, "--model", "naive-bayes")
    assert cli(*arguments, "-j", 2, "--out", tmp_path / "other").code == 0
    first, second = (poisonproof.load(path) for path in (model, tmp_path / "other"))
    assert first.ensemble_.digests() == second.ensemble_.digests()


def test_the_report_says_what_was_trained_and_what_comes_next(
    cli: Cli, train_csv: Path, tmp_path: Path
) -> None:
    result = cli("train", train_csv, *DECLARED, "--out", tmp_path / "m")
    text = " ".join(result.out.split())
    assert "Trained 50 members (scaled-kernel) on 400 rows" in text
    assert "2 features, 2 declared classes" in text
    assert "Next: poisonproof certify" in text
    assert text.endswith("--label kind")
    assert result.err == ""


def test_partitions_without_rows_are_told(cli: Cli, train_csv: Path, tmp_path: Path) -> None:
    result = cli("train", train_csv, *DECLARED, "-k", 900, "--out", tmp_path / "m")
    assert re.search(r"\d+ partitions without rows: their members abstain", result.out)
    result = cli("train", train_csv, *DECLARED, "-k", 5, "--out", tmp_path / "few")
    assert "without rows" not in result.out
    one_row = tmp_path / "one.csv"
    one_row.write_text("".join(train_csv.read_text().splitlines(keepends=True)[:2]))
    result = cli("train", one_row, *DECLARED, "-k", 2, "--out", tmp_path / "one")
    assert "1 partition without rows: its member abstains." in " ".join(result.out.split())


@pytest.mark.parametrize("name", [kind for kind in MEMBER_KINDS if kind not in IMAGE_NETWORKS])
def test_every_kind_of_member_trains_saves_and_predicts(
    cli: Cli, train_csv: Path, test_csv: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "m"
    trained = cli("train", train_csv, *DECLARED, "-k", 10, "--model", name, "--out", out)
    assert trained.code == 0, trained.err
    result = cli("predict", out, test_csv, "--label", "kind", "--out", tmp_path / "p.csv")
    assert result.code == 0, result.err
    truth = [kind for *_, kind in mails(100, 1)]
    right = np.mean(np.array(labels_of(tmp_path / "p.csv")) == truth)
    assert right > 0.85


def test_a_member_without_its_package_is_named_in_one_line(
    cli: Cli, train_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    result = cli("train", train_csv, *DECLARED, "--model", "lightgbm", "--out", tmp_path / "m")
    assert result.code == 2
    assert "lightgbm is not installed" in result.err
    assert "poisonproof[boosting]" in result.err
    assert not (tmp_path / "m").exists()


def test_features_are_found_by_name_in_any_order(
    cli: Cli, model: Path, tmp_path: Path, test_csv: Path
) -> None:
    rows = mails(100, 1)
    other = write_csv(tmp_path / "o.csv", ["length", "links"], [[a, b] for a, b, *_ in rows])
    assert cli("predict", model, other, "--out", tmp_path / "a.csv").code == 0
    asked = ("predict", model, test_csv, "--label", "kind", "--out", tmp_path / "b.csv")
    assert cli(*asked).code == 0
    assert labels_of(tmp_path / "a.csv") == labels_of(tmp_path / "b.csv")


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet"])
def test_labels_are_written_in_every_format(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"p.{suffix}"
    assert cli("predict", model, test_csv, "--label", "kind", "--out", out).code == 0
    if suffix == "csv":
        found = labels_of(out)
    elif suffix == "npz":
        found = np.load(out)["label"].tolist()
    else:
        found = pytest.importorskip("pyarrow.parquet").read_table(out)["label"].to_pylist()
    assert len(found) == 100
    assert set(found) == {"ham", "spam"}


def test_parquet_and_npz_train_the_model_that_csv_trains(
    cli: Cli, model: Path, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = mails(400, 0)
    X = np.array([[float(a), float(b)] for a, b, *_ in rows])
    y = [kind for *_, kind in rows]
    pq.write_table(
        pa.table({"length": X[:, 0], "links": X[:, 1], "kind": y}), tmp_path / "t.parquet"
    )
    np.savez(tmp_path / "t.npz", x_train=X.reshape(400, 2, 1), y_train=np.array(y))
    shared = ("--classes", "ham,spam", "-k", 20, "--model", "naive-bayes")
    files = {
        "t.parquet": ("--label", "kind"),
        "t.npz": ("--x-key", "x_train", "--y-key", "y_train"),
    }
    expected = poisonproof.load(model).ensemble_.digests()
    for name, columns in files.items():
        out = tmp_path / f"from-{name}"
        assert cli("train", tmp_path / name, *columns, *shared, "--out", out).code == 0
        assert poisonproof.load(out).ensemble_.digests() == expected


def test_groups_weights_and_declared_features(cli: Cli, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", ["a", "b", "who", "w", "kind"], mails(300, 0))
    result = cli(
        *("train", path, *DECLARED, "--features", "a", "--groups", "who", "--weights", "w"),
        *("-k", 10, "--out", tmp_path / "m"),
    )
    assert result.code == 0, result.err
    loaded = poisonproof.load(tmp_path / "m")
    assert type(loaded.partitioner_).__name__ == "GroupHash"
    assert list(loaded.feature_names_in_) == ["a"]


def test_ss_dpa_certifies_label_flips(
    cli: Cli, train_csv: Path, test_csv: Path, tmp_path: Path
) -> None:
    arguments = ("train", train_csv, *DECLARED, "--method", "ss-dpa", "-k", 10)
    assert cli(*arguments, "--out", tmp_path / "m").code == 0
    result = cli("certify", tmp_path / "m", test_csv, "--label", "kind")
    assert "Samples relabelled" in result.out


def test_rows_that_do_not_fit_are_left_out_alone_when_asked(
    cli: Cli, train_csv: Path, model: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(train_csv.read_text() + "1,oops,ham\n1,1e999,ham\n1,1,eggs\n1,,ham\n1,2\n")
    result = cli(
        *("train", bad, *DECLARED, "-k", 20, "--model", "naive-bayes", "--invalid-rows", "drop"),
        *("--out", tmp_path / "m"),
    )
    assert result.code == 0, result.err
    assert "Left out 5 rows" in result.out
    first, second = (poisonproof.load(path) for path in (model, tmp_path / "m"))
    assert first.ensemble_.digests() == second.ensemble_.digests()


def test_more_members_than_rows_is_allowed_but_said(
    cli: Cli, train_csv: Path, tmp_path: Path
) -> None:
    result = cli("train", train_csv, *DECLARED, "-k", 1000, "--out", tmp_path / "m")
    assert result.code == 0
    assert "n_partitions=1000 is too large for these training rows" in result.err


def test_networks_take_an_image_shape_and_epochs_and_other_models_refuse_them(
    cli: Cli, tmp_path: Path
) -> None:
    X, y = load_digits(return_X_y=True)
    np.savez(tmp_path / "digits.npz", X=X[:300].reshape(-1, 8, 8), y=y[:300])
    common = ["train", tmp_path / "digits.npz", "--label", "y", "-k", 3, "--out", tmp_path / "m"]
    common += ["--classes", ",".join(map(str, range(10)))]
    for name in IMAGE_NETWORKS:
        network = ["--model", name, "--image-shape", "1x8x8", "--epochs", 1]
        result = cli(*common, *network, "--overwrite")
        assert result.code == 0, result.err
        assert f"3 members ({name})" in result.out
    refused = cli(*common, "--model", "tree", "--epochs", 1)
    assert refused.code == 2
    assert "--epochs is for networks" in refused.err
    refused = cli(*common, "--model", "nin", "--image-shape", "28x28")
    assert refused.code == 2
    assert "CHANNELSxHEIGHTxWIDTH" in refused.err


def test_another_model_is_replaced_only_if_told_so(cli: Cli, model: Path, train_csv: Path) -> None:
    same = ("train", train_csv, *DECLARED, "-k", 20, "--model", "naive-bayes", "--out", model)
    assert cli(*same).code == 0
    before = poisonproof.load(model).ensemble_.digests()
    for other in (["--seed", 1], ["--features", "links"], ["--model", "logistic"], ["--stream",
                  "--seed", 2]):  # fmt: skip
        result = cli(*same, *other)
        assert result.code == 2
        assert "holds another model" in " ".join(result.err.split())
        assert "--overwrite" in result.err
        assert poisonproof.load(model).ensemble_.digests() == before
    assert cli(*same, "--seed", 1, "--overwrite").code == 0
    assert poisonproof.load(model).random_state == 1


def test_a_model_of_other_columns_is_replaced_only_if_told_so(
    cli: Cli, train_csv: Path, tmp_path: Path
) -> None:
    def train(column: str, *more: object) -> int:
        columns = ("--features", column, "-k", 5, "--out", tmp_path / "m")
        return cli("train", train_csv, *DECLARED, *columns, *more).code

    assert [train("links"), train("links"), train("length"), train("length", "--overwrite")] == [
        0, 0, 2, 0
    ]  # fmt: skip
    assert list(poisonproof.load(tmp_path / "m").feature_names_in_) == ["length"]
