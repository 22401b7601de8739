"""``certify``: certificates from a model and rows, and from a vote file alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import poisonproof
from poisonproof.evaluation import summarize
from poisonproof.exceptions import StoreError
from tests.cli.conftest import Cli, mails, write_csv


def test_certificates_are_those_of_the_library(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.csv"
    assert cli("certify", model, test_csv, "--label", "kind", "--out", out).code == 0
    X = np.array([[float(a), float(b)] for a, b, *_ in mails(100, 1)])
    loaded = poisonproof.load(model)
    del loaded.feature_names_in_
    assert poisonproof.Certificates.load(out).equals(loaded.certify(X))


def test_the_certified_accuracy_is_printed_in_words_and_written(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path
) -> None:
    out, summary_out = tmp_path / "c.csv", tmp_path / "s.json"
    result = cli(
        *("certify", model, test_csv, "--label", "kind"),
        *("--out", out, "--summary-out", summary_out),
    )
    truth = [kind for *_, kind in mails(100, 1)]
    expected = summarize(poisonproof.Certificates.load(out), truth)
    assert json.loads(summary_out.read_text()) == expected.to_dict() | {"n_trained_on": None}
    text = " ".join(result.out.split())
    for sentence in expected.sentences():
        assert sentence in text
    assert expected.median_radius is not None
    assert expected.median_radius >= 5
    assert max(len(line) for line in result.out.splitlines()) <= 80


def test_without_labels_the_share_of_fixed_predictions_is_printed(
    cli: Cli, model: Path, test_csv: Path
) -> None:
    result = cli("certify", model, test_csv, "--ignore", "kind")
    assert "Predictions that cannot change" in result.out
    assert "100 predictions by a vote of 20 members" in result.out


def test_threat_and_target_are_passed_on(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.csv"
    arguments = ("certify", model, test_csv, "--ignore", "kind", "--threat", "replace")
    assert cli(*arguments, "--target", "spam", "--out", out).code == 0
    certificates = poisonproof.Certificates.load(out)
    assert certificates.threat.code == "replace"
    assert certificates.target is not None
    assert set(certificates.target.tolist()) == {"spam"}


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv"])
def test_a_vote_file_alone_is_enough(cli: Cli, tmp_path: Path, suffix: str) -> None:
    votes = np.random.default_rng(0).integers(-1, 3, size=(40, 15)).astype(np.int16)
    path = tmp_path / f"v.{suffix}"
    if suffix == "npz":
        np.savez(path, votes=votes)
    elif suffix == "npy":
        np.save(path, votes)
    else:
        np.savetxt(path, votes, fmt="%d", delimiter=",")
    out = tmp_path / "c.csv"
    arguments = ("certify", "--votes", path, "--n-classes", 3, "--threat", "label_flip")
    assert cli(*arguments, "--out", out).code == 0
    expected = poisonproof.certify_votes(votes, 3, threat="label_flip")
    assert poisonproof.Certificates.load(out).equals(expected)


def test_the_votes_of_predict_certify_as_the_model_does(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path
) -> None:
    votes, first, second = (tmp_path / name for name in ("v.npz", "a.csv", "b.csv"))
    assert cli("predict", model, test_csv, "--label", "kind", "--votes-out", votes).code == 0
    assert cli("certify", model, test_csv, "--label", "kind", "--out", first).code == 0
    assert cli("certify", "--votes", votes, "--classes", "ham,spam", "--out", second).code == 0
    assert first.read_bytes() == second.read_bytes()


def test_a_model_of_the_library_certifies_only_with_declared_classes(
    cli: Cli, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    np.savez(tmp_path / "t.npz", X=X, y=y.astype(float))
    for declared, code in ((None, 2), ([0, 1], 0)):
        clf = poisonproof.DPAClassifier(DecisionTreeClassifier(), n_partitions=5, classes=declared)
        clf.fit(X, y).save(tmp_path / "m", overwrite=True)
        result = cli("certify", tmp_path / "m", tmp_path / "t.npz", "--label", "y")
        assert result.code == code
        assert ("Declare it: classes=" in result.err) == (code == 2)


def test_nothing_is_written_if_one_of_the_files_fails(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: poisonproof.Certificates, path: Path) -> None:
        raise StoreError("Cannot write: No space left on device.")

    names = ("certificates.csv", "rows.csv", "summary.json")
    out, rows, summary = (tmp_path / name for name in names)
    rows.write_text("before")
    monkeypatch.setattr(poisonproof.Certificates, "save", fails)
    result = cli(
        *("certify", model, test_csv, "--label", "kind", "--out", out, "--rows-out", rows),
        *("--summary-out", summary),
    )
    assert result.code != 0
    assert rows.read_text() == "before"
    assert not out.exists()
    assert not summary.exists()


@pytest.mark.parametrize("write", [str, lambda v: str(v).lower(), lambda v: str(int(v))])
def test_labels_of_a_boolean_model_are_read_however_truth_is_written(
    cli: Cli, tmp_path: Path, write: Callable[[bool], str]
) -> None:
    X = np.random.default_rng(0).normal(size=(120, 2))
    y = X[:, 0] > 0
    model = poisonproof.DPAClassifier(n_partitions=5, classes=[False, True]).fit(X, y)
    model.save(tmp_path / "model")
    rows = [[*row, write(value)] for row, value in zip(X.tolist(), y.tolist(), strict=True)]
    data = write_csv(tmp_path / "rows.csv", ["a", "b", "hot"], rows)
    summary, labels = tmp_path / "summary.json", tmp_path / "labels.csv"
    found = cli(
        *("certify", tmp_path / "model", data, "--label", "hot", "--summary-out", summary),
        *("--rows-out", tmp_path / "certified.csv"),
    )
    assert found.code == 0, found.err
    expected = summarize(model.certify(X), y)
    known = json.loads(json.dumps(expected.to_dict())) | {"n_trained_on": None}
    assert json.loads(summary.read_text()) == known
    said = cli("predict", tmp_path / "model", data, "--label", "hot", "--out", labels)
    assert said.code == 0, said.err
    predicted = [line.split(",")[1] for line in labels.read_text().splitlines()[1:]]
    certified = (tmp_path / "certified.csv").read_text().splitlines()[1:]
    assert predicted == [line.split(",")[1] for line in certified]
    assert set(predicted) == {"False", "True"}


SEEN = "The model was trained on 40 of the 140 rows. These are not test rows"


@pytest.fixture
def with_seen_rows(train_csv: Path, test_csv: Path, tmp_path: Path) -> Path:
    """40 rows that were trained on, one label of them changed, before 100 that were not."""
    trained = train_csv.read_text().splitlines()[:41]
    trained[1] = trained[1].rpartition(",")[0] + ",ham"
    rows = [",".join(line.split(",")[::-1]) for line in test_csv.read_text().splitlines()[1:]]
    path = tmp_path / "both.csv"
    path.write_text("\n".join([*trained, *rows]) + "\n")
    return path


def trained(cli: Cli, train_csv: Path, out: Path, *options: object) -> Path:
    named = ("--label", "kind", "--classes", "ham,spam", "-k", 5, "--model", "naive-bayes")
    assert cli("train", train_csv, *named, "--out", out, "--no-self-check", *options).code == 0
    return out


def test_rows_that_were_trained_on_are_no_test_rows(
    cli: Cli, train_csv: Path, test_csv: Path, with_seen_rows: Path, tmp_path: Path
) -> None:
    model = trained(cli, train_csv, tmp_path / "model", "--keep-data")
    alone = cli("certify", model, test_csv, "--label", "kind")
    files = {name: tmp_path / name for name in ("certificates.csv", "summary.json")}
    both = cli(
        *("certify", model, with_seen_rows, "--label", "kind"),
        *("--out", files["certificates.csv"], "--summary-out", files["summary.json"]),
    )
    assert SEEN in " ".join(both.out.split())
    assert both.out.splitlines()[: len(alone.out.splitlines())] == alone.out.splitlines()
    assert len(poisonproof.Certificates.load(files["certificates.csv"])) == 140
    summary = json.loads(files["summary.json"].read_text())
    assert (summary["n_rows"], summary["n_trained_on"]) == (100, 40)
    page = tmp_path / "r.html"
    report = cli("report", model, with_seen_rows, "--label", "kind", "--out", page)
    assert SEEN in " ".join(report.out.split())
    assert SEEN in page.read_text()
    assert "100 test rows" in page.read_text()
    every = cli("certify", model, train_csv, "--label", "kind")
    assert "was trained on all 400 rows" in " ".join(every.out.split())


def test_a_model_that_keeps_no_rows_says_that_it_cannot_tell(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path
) -> None:
    words = "trained on some of these rows cannot be checked: it does not keep its training rows."
    for command in (("certify",), ("report", "--out", tmp_path / "r.html")):
        found = cli(*command, model, test_csv, "--label", "kind")
        assert (found.code, found.err) == (0, "")
        assert words in " ".join(found.out.split())


def test_an_attack_leaves_out_rows_that_are_trained_on(
    cli: Cli, train_csv: Path, with_seen_rows: Path, tmp_path: Path
) -> None:
    named = ("--label", "kind", "--classes", "ham,spam", "-k", 5, "--model", "naive-bayes")
    few = ("--targets", 1, "--kinds", "random-flips", "--limit", 4)
    found = cli("attack", train_csv, with_seen_rows, *named, *few)
    assert SEEN in " ".join(found.out.split())


def test_a_held_out_row_that_another_contributor_gave_to_training_is_no_test_row(
    cli: Cli, tmp_path: Path
) -> None:
    rows = [[a, b, f"user{i}", kind] for i, (a, b, _, _, kind) in enumerate(mails(300, 0))]
    copies = [[a, b, f"copy of {user}", kind] for a, b, user, kind in rows[:150]]
    data = write_csv(tmp_path / "mails.csv", ["a", "b", "user", "kind"], [*rows, *copies])
    schema, model = tmp_path / "s.json", tmp_path / "model"
    named = ("--label", "kind", "--groups", "user", "--out", schema)
    assert cli("schema", data, *named).code == 0
    assert cli("schema", schema, "--freeze").code == 0
    fast = ("-k", 5, "--model", "naive-bayes", "--no-self-check")
    assert cli("train", data, "--schema", schema, *fast, "--out", model).code == 0
    found = " ".join(cli("certify", model, data, "--held-out").out.split())
    assert "These are not test rows; the numbers refer to the other" in found
