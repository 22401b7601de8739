"""Bad input: one clear line, exit code 2, nothing written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import poisonproof.cli._screen as output
from poisonproof.cli._app import run
from tests.cli.conftest import Cli, Result

Files = dict[Path, bytes]
Refused = Callable[..., Result]

TRAIN = ("--label", "kind", "--classes", "ham,spam")


def snapshot(folder: Path) -> Files:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def refused(cli: Cli, tmp_path: Path) -> Refused:
    """Run a command that must fail with one line, exit code 2, and leave every file as it was."""

    def call(*arguments: object, words: str) -> Result:
        before = snapshot(tmp_path)
        result = cli(*arguments)
        assert result.code == 2, result
        assert result.err.startswith("Error: ")
        assert result.err.count("\n") == 1, result.err
        assert "Traceback" not in result.err + result.out
        assert words in result.err, result.err
        assert result.out == ""
        assert snapshot(tmp_path) == before
        return result

    return call


def edited(path: Path, text: str) -> Path:
    """Return a copy of a CSV file with lines appended."""
    copy = path.with_name("edited.csv")
    copy.write_text(path.read_text() + text)
    return copy


@pytest.mark.parametrize("name", ["none.csv", "none.parquet", "none.npz"])
def test_missing_file(refused: Refused, tmp_path: Path, name: str) -> None:
    refused(
        *("train", tmp_path / name, *TRAIN, "--out", tmp_path / "m"),
        words=f"There is no file {tmp_path / name}.",
    )


def test_wrong_column(refused: Refused, train_csv: Path, tmp_path: Path) -> None:
    refused(
        *("train", train_csv, "--label", "kynd", "--classes", "ham,spam", "--out", tmp_path / "m"),
        words="has no column 'kynd'. Its columns are 'length', 'links', 'kind'.",
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1,2,eggs", "the label 'eggs' is not one of the declared classes 'ham', 'spam'"),
        ("1,two,ham", "column 'links': 'two' is not a number."),
        ("1,1e400,ham", "column 'links' is infinite or too large for a float64"),
    ],
    ids=["label outside the classes", "no number", "too large a number"],
)
def test_a_bad_row_is_named_by_its_line(
    refused: Refused, train_csv: Path, tmp_path: Path, line: str, words: str
) -> None:
    arguments = ("train", edited(train_csv, f"{line}\n"), *TRAIN, "--out", tmp_path / "m")
    refused(*arguments, words=f"line 402: {words}")


def test_classes_that_are_not_declared(refused: Refused, train_csv: Path, tmp_path: Path) -> None:
    refused(
        *("train", train_csv, "--label", "kind", "--out", tmp_path / "m"),
        words="The label set must be declared, for example --classes ham,spam.",
    )


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ("ham", "At least two"),
        ("ham,ham", "twice"),
        ("ham,,spam", "names separated by commas"),
        ("ham,x\udcff", r"The class 'x\udcff' is not UTF-8 text."),
    ],
    ids=["one", "twice", "empty", "no text"],
)
def test_classes_that_are_no_label_set(
    refused: Refused, train_csv: Path, tmp_path: Path, classes: str, words: str
) -> None:
    arguments = ("train", train_csv, "--label", "kind", "--classes", classes)
    refused(*arguments, "--out", tmp_path / "m", words=words)


def test_missing_value_where_the_member_cannot_take_it(
    refused: Refused, train_csv: Path, model: Path, tmp_path: Path
) -> None:
    holed = edited(train_csv, "1,,ham\n")
    words = "line 402: column 'links' is missing, which this kind of model cannot take"
    refused(
        *("train", holed, *TRAIN, "--model", "naive-bayes", "--out", tmp_path / "m"), words=words
    )
    refused("predict", model, holed, "--label", "kind", "--out", tmp_path / "p.csv", words=words)


def test_feature_count_that_differs_from_training(
    refused: Refused, model: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "t.npz", X=np.zeros((3, 5)))
    refused(
        *("predict", model, tmp_path / "t.npz", "--out", tmp_path / "p.csv"),
        words="has 5 features per row, but the model was trained on 2.",
    )
    (tmp_path / "few.csv").write_text("length\n1\n")
    refused("predict", model, tmp_path / "few.csv", words="has no column 'links'")
    (tmp_path / "many.csv").write_text("length,links,more\n1,2,3\n")
    refused("predict", model, tmp_path / "many.csv", words="the column 'more', which the model")


def test_votes_out_of_range(refused: Refused, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([[0, 1], [1, 7]]))
    refused(
        *("certify", "--votes", tmp_path / "v.npy", "--n-classes", 3, "--out", tmp_path / "c.csv"),
        words="votes[1, 1] is 7; a vote is a class index from 0 to 2",
    )


@pytest.mark.parametrize("n_classes", [0, -1])
def test_a_number_of_classes_that_makes_no_sense(
    refused: Refused, tmp_path: Path, n_classes: int
) -> None:
    np.save(tmp_path / "v.npy", np.array([[0, 1]]))
    arguments = ("certify", "--votes", tmp_path / "v.npy")
    refused(*arguments, "--n-classes", n_classes, words="--n-classes must be at least 1")
    refused(*arguments, words="--votes needs the number of classes")
    refused(*arguments, "--classes", "a,b", "--n-classes", 3, words="--classes lists 2")


def test_truncated_parquet(refused: Refused, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "t.parquet"
    table = pa.table({"a": list(range(100)), "kind": ["ham", "spam"] * 50})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    path.write_bytes(path.read_bytes()[:-50])
    refused(
        *("train", path, *TRAIN, "--out", tmp_path / "m"), words="is not a readable Parquet file"
    )


@pytest.mark.parametrize("name", ["e.csv", "e.parquet", "e.npz"])
def test_empty_file(refused: Refused, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    refused("train", tmp_path / name, *TRAIN, "--out", tmp_path / "m", words="is empty")
    if name != "e.parquet":
        refused("certify", "--votes", tmp_path / name, "--n-classes", 2, words="is empty")


def test_no_place_to_write(
    refused: Refused, train_csv: Path, test_csv: Path, model: Path, tmp_path: Path
) -> None:
    below_a_file = train_csv / "inside"
    words = "is not a directory"
    refused("train", train_csv, *TRAIN, "--out", below_a_file, words=words)
    refused("demo", "--out", below_a_file, words=words)
    asked = (model, test_csv, "--label", "kind", "--out", train_csv / "p.csv")
    refused("predict", *asked, words=words)
    refused("certify", *asked, words=words)
    refused("certify", *asked[:-1], tmp_path / "no" / "p.csv", words=words)


def test_no_permission_to_write(
    refused: Refused, train_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tests may run as root, who may write anywhere.
    monkeypatch.setattr(output.os, "access", lambda path, mode: not mode & os.W_OK)
    arguments = ("train", train_csv, *TRAIN, "--out", tmp_path / "m")
    refused(*arguments, words=f"no permission to write in {tmp_path}")


def test_a_disk_that_fails_while_writing_leaves_nothing(
    refused: Refused,
    model: Path,
    test_csv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output.os, "fsync", full)
    arguments = ("predict", model, test_csv, "--label", "kind", "--out", tmp_path / "p.csv")
    refused(*arguments, words="No space left on device")


def test_out_exists_and_is_not_a_model(refused: Refused, train_csv: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    for path in (tmp_path / "photos", train_csv):
        refused(
            "train", train_csv, *TRAIN, "--out", path, words="exists and is not a poisonproof model"
        )


def test_unknown_suffix(
    refused: Refused, model: Path, train_csv: Path, test_csv: Path, tmp_path: Path
) -> None:
    (tmp_path / "t.xlsx").write_bytes(train_csv.read_bytes())
    words = "must end in one of .csv, .tsv, .parquet, .npz, .npy"
    refused("train", tmp_path / "t.xlsx", *TRAIN, "--out", tmp_path / "m", words=words)
    asked = (model, test_csv, "--label", "kind", "--out", tmp_path / "p.txt")
    refused("predict", *asked, words="must end in one of .csv, .parquet, .npz")
    refused("certify", *asked, words="must end in .csv")


def test_out_would_replace_the_input(refused: Refused, model: Path, test_csv: Path) -> None:
    asked = (model, test_csv, "--label", "kind", "--out", test_csv)
    refused("predict", *asked, words="would replace the input")
    refused("certify", *asked, words="would replace the input")


def test_model_that_is_none(refused: Refused, test_csv: Path, tmp_path: Path) -> None:
    refused("predict", tmp_path / "none", test_csv, words="There is no model")
    refused("predict", test_csv, test_csv, words="is not a poisonproof model")
    refused("certify", tmp_path, test_csv, words="is not a poisonproof model")


@pytest.mark.parametrize("command", ["update", "audit"])
def test_contributors_that_a_model_does_not_read(
    refused: Refused, model: Path, train_csv: Path, command: str
) -> None:
    rows = ("--data", train_csv, *(("--add", train_csv) if command == "update" else ()))
    options = ("--label", "kind", "--groups", "links")
    refused(command, model, *rows, *options, words="this model certifies rows")


def test_damaged_model(refused: Refused, model: Path, test_csv: Path) -> None:
    members = max((model / "objects").iterdir(), key=lambda path: path.stat().st_size)
    members.write_bytes(members.read_bytes()[:-10])
    refused("predict", model, test_csv, "--label", "kind", words="is damaged")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--method", "magic"),
            "--method is one of dpa, neighbors, ss-dpa, clusters, walks, grid. Got 'magic'.",
        ),
        (("--model", "oracle"), "--model is one of scaled-kernel, tree"),
        (("--invalid-rows", "hide"), "--invalid-rows is one of raise, drop."),
        (("--partitioner", "sorted"), "--partitioner of dpa is one of content, pixel_sum, group."),
        (("--partitioner", "group"), "--partitioner group needs --groups COLUMN"),
        (("--partitioner", "content", "--groups", "links"), "use --partitioner group"),
        (("-k", "0"), "Invalid value for '--partitions'"),
        (("--features", "length,length"), "names the column 'length' twice"),
        (("--model", "logistic", "--weights", "links"), "takes no weights"),
        (("--model", "neighbors", "--weights", "links"), "takes no weights"),
    ],
)
def test_options_that_make_no_sense(
    refused: Refused, train_csv: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    refused("train", train_csv, *TRAIN, *options, "--out", tmp_path / "m", words=words)


def test_threats_that_nothing_proves(
    refused: Refused, model: Path, test_csv: Path, tmp_path: Path
) -> None:
    asked = ("certify", model, test_csv, "--label", "kind")
    refused(*asked, "--threat", "replace/group", words="counts its certificates in rows")
    refused(*asked, "--threat", "theft", words="The threat is one of insert_delete")
    refused(*asked, "--target", "ham", words="--label and --target exclude each other")
    refused(
        *asked[:3], "--ignore", "kind", "--target", "eggs", words="--target is one of ham, spam"
    )
    refused(*asked[:3], "--summary-out", tmp_path / "s.json", words="needs the true labels")
    refused("certify", words="Name a model and a data file, or a vote file")
    refused(*asked, "--n-classes", 2, words="--n-classes: a model already says that")


def test_votes_stand_alone(refused: Refused, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([[0, 1]]))
    votes = ("certify", "--votes", tmp_path / "v.npy", "--n-classes", 2)
    refused("certify", model, *votes[1:], words="leave out MODEL")
    refused(*votes, "--label", "kind", words="leave out --label")
    refused(*votes, "--target", 5, words="--target is one of 0, 1. Got '5'.")


def test_the_folder_is_left_clean_when_training_is_interrupted(
    train_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("poisonproof.cli.train._fit", interrupt)
    before = snapshot(tmp_path)
    assert run(["train", str(train_csv), *TRAIN, "--out", str(tmp_path / "m")]) == 130
    assert snapshot(tmp_path) == before
