"""From a file of one's own to a certificate: schema, train, certify, predict."""

from __future__ import annotations

import csv
import inspect
from pathlib import Path

import numpy as np
import pytest

import poisonproof
from poisonproof.cli._app import DEFAULT_KIND, MEMBER_KINDS
from poisonproof.cli.plan import plan
from poisonproof.data import freeze_schema, load_schema
from poisonproof.data.schema import dump_schema
from tests.cli.conftest import Cli
from tests.data.builders import HEADER, SCHEMA, mail_rows, write_csv, write_parquet

TRAIN = ("-k", 12, "--model", "naive-bayes")


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "mails.csv", mail_rows(500))


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "mails.schema.json"
    path.write_bytes(dump_schema(SCHEMA))
    return path


def test_from_a_file_to_a_certificate(cli: Cli, mails: Path, tmp_path: Path) -> None:
    file, model = tmp_path / "own.json", tmp_path / "model"
    proposed = cli("schema", mails, "--label", "kind", "--groups", "user", "--out", file)
    assert proposed.code == 0, proposed.err
    assert "Whoever wrote them took part in the proposal" in words(proposed.out)
    train = ("train", mails, "--schema", file, "--label", "kind", *TRAIN, "--out", model)
    refused = cli(*train)
    assert refused.code == 2
    assert "is a proposal" in refused.err
    frozen = cli("schema", file, "--freeze")
    assert frozen.code == 0
    assert "Frozen" in frozen.out
    trained = cli(*train)
    assert trained.code == 0, trained.err
    n_groups = poisonproof.load(model).n_groups_
    half = f"of the {n_groups} contributors."
    assert "Median radius: " in words(trained.out)
    assert half in words(trained.out)
    assert "the accuracy is only as honest as the file" in words(trained.out)
    certified = cli("certify", model, mails, "--held-out", "--rows-out", tmp_path / "rows.csv")
    assert certified.code == 0, certified.err
    assert half in words(certified.out)
    with (tmp_path / "rows.csv").open() as rows:
        table = list(csv.DictReader(rows))
    lines = mails.read_text().splitlines()
    assert 0 < len(table) < 250
    assert all(lines[int(row["line"]) - 1].endswith(row["true_label"]) for row in table)
    right = np.mean([row["label"] == row["true_label"] for row in table])
    assert right > 0.9


def test_what_the_schema_proposes(cli: Cli, mails: Path, tmp_path: Path) -> None:
    assert cli("schema", mails, "--label", "kind", "--out", tmp_path / "s.json").code == 0
    schema = load_schema(tmp_path / "s.json", require_frozen=False)
    kinds = {column.name: column.type for column in schema.columns}
    assert kinds == {
        "length": "number", "links": "number", "land": "category", "body": "text", "sent": "date"
    }  # fmt: skip
    assert schema.classes == ("ham", "spam")
    assert schema.ignore == ("user",)


def test_one_poisoned_cell_does_not_turn_the_proposal(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    rows = mail_rows(200)
    rows[5][HEADER.index("links")] = "=cmd|' /C calc'!A0"
    path = write_csv(tmp_path / "m.csv", rows)
    result = cli("schema", path, "--label", "kind", "--out", tmp_path / "s.json")
    schema = load_schema(tmp_path / "s.json", require_frozen=False)
    assert {column.name: column.type for column in schema.columns}["links"] == "number"
    assert "1 cell is not a number" in words(result.out.replace("│", " ").replace("┃", " "))


def test_parquet_trains_the_model_that_csv_trains(
    cli: Cli, mails: Path, schema: Path, tmp_path: Path
) -> None:
    parquet = write_parquet(tmp_path / "mails.parquet", mail_rows(500))
    for data, out in ((mails, "a"), (parquet, "b")):
        result = cli("train", data, "--schema", schema, *TRAIN, "--out", tmp_path / out)
        assert result.code == 0, result.err
    first, second = (poisonproof.load(tmp_path / name) for name in "ab")
    assert first.ensemble_.digests() == second.ensemble_.digests()


def test_unfit_rows_are_left_out_alone_and_reported(
    cli: Cli, mails: Path, schema: Path, tmp_path: Path
) -> None:
    assert cli("train", mails, "--schema", schema, *TRAIN, "--out", tmp_path / "a").code == 0
    dirty = tmp_path / "dirty.csv"
    dirty.write_text(
        mails.read_text() + "1,x,DE,hi,,u1,ham\n1,1,DE,hi,,u1,eggs\n1,1e999,DE,a,,b,ham\n"
    )
    result = cli("train", dirty, "--schema", schema, *TRAIN, "--out", tmp_path / "b")
    assert "Left out 3 rows that did not fit; the first: line 502" in words(result.out)
    first, second = (poisonproof.load(tmp_path / name) for name in "ab")
    assert first.ensemble_.digests() == second.ensemble_.digests()
    stopped = cli(
        *("train", dirty, "--schema", schema, *TRAIN, "--invalid-rows", "raise"),
        *("--out", tmp_path / "c"),
    )
    assert stopped.code == 2
    assert "line 502" in stopped.err


def test_new_rows_need_neither_labels_nor_contributors(
    cli: Cli, mails: Path, schema: Path, tmp_path: Path
) -> None:
    assert cli("train", mails, "--schema", schema, *TRAIN, "--out", tmp_path / "m").code == 0
    new = write_csv(
        tmp_path / "new.csv", [row[:5] for row in mail_rows(30, seed=1)], header=HEADER[:5]
    )
    result = cli("predict", tmp_path / "m", new, "--out", tmp_path / "p.csv")
    assert result.code == 0, result.err
    with (tmp_path / "p.csv").open() as file:
        found = list(csv.DictReader(file))
    truth = [row[-1] for row in mail_rows(30, seed=1)]
    assert np.mean([row["label"] == kind for row, kind in zip(found, truth, strict=True)]) > 0.9
    assert [int(row["line"]) for row in found] == list(range(2, 32))
    lines = new.read_text().splitlines()
    lines[4] = ",".join("?" * len(lines[4].split(",")))
    new.write_text("\n".join(lines) + "\n")
    assert cli("predict", tmp_path / "m", new, "--out", tmp_path / "p.csv").code == 0
    with (tmp_path / "p.csv").open() as file:
        again = list(csv.DictReader(file))
    assert [int(row["line"]) for row in again] == list(range(2, 32))
    rejected = again.pop(3)
    assert (rejected["line"], rejected["label"], rejected["radius"]) == ("5", "", "-1")
    assert rejected["rejected"]
    assert again == found[:3] + found[4:]
    model = poisonproof.load(tmp_path / "m")
    assert {int(row["radius"]) for row in again} <= set(range(len(model.partition_sizes_)))
    labelled = write_csv(
        tmp_path / "test.csv", [[*row[:5], row[-1]] for row in mail_rows(30, seed=1)],
        header=[*HEADER[:5], "kind"],
    )  # fmt: skip
    result = cli("certify", tmp_path / "m", labelled, "--label", "kind")
    assert result.code == 0, result.err
    assert "of the 30 test rows are classified correctly" in words(result.out)


def test_an_npz_file_trains(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 4, 4)) + y[:, np.newaxis, np.newaxis]
    np.savez(tmp_path / "d.npz", X=X, y=y)
    assert cli("schema", tmp_path / "d.npz", "--out", tmp_path / "s.json").code == 0
    assert cli("schema", tmp_path / "s.json", "--freeze").code == 0
    train = ("train", tmp_path / "d.npz", "--schema", tmp_path / "s.json", *TRAIN)
    result = cli(*train, "--out", tmp_path / "m")
    assert result.code == 0, result.err
    assert "Always predicting the commonest class gets" in words(result.out)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--classes", "ham,spam"), "--classes: the schema"),
        (("--features", "links"), "--features: the schema"),
        (("--label", "body"), "declares 'kind'"),
        (("--groups", "body"), "--groups: the schema"),
    ],
)
def test_options_against_the_schema_or_the_proof_are_refused(
    cli: Cli, mails: Path, schema: Path, tmp_path: Path, options: tuple[object, ...], expected: str
) -> None:
    result = cli("train", mails, "--schema", schema, *options, "--out", tmp_path / "m")
    assert result.code == 2
    assert expected in result.err
    assert not (tmp_path / "m").exists()


def test_a_plan_is_made_on_trusted_rows(cli: Cli, schema: Path, tmp_path: Path) -> None:
    trusted = write_csv(tmp_path / "trusted.csv", mail_rows(300, seed=7))
    plan = ("plan", trusted, "--schema", schema, "--model", "tree,naive-bayes", "--expected-rows")
    result = cli(*plan, 4000)
    assert result.code == 0, result.err
    assert "Proposed: k =" in words(result.out)
    assert "Always predicting the commonest class" in words(result.out)
    assert "Recall" in result.out
    assert "outside the proof" in words(result.out)
    assert "in contributors; wrong predictions count as none" in words(result.out)
    few = cli(*plan, 40000, "--wanted-radius", 50)
    assert "With 59 contributors no radius exceeds 29." in words(few.err)
    wanted = cli(*plan, 40000, "--wanted-radius", 50, "--expected-contributors", 400)
    assert "40,000 training rows of 400 contributors" in words(wanted.out)
    assert "a median radius of at least 50" in words(wanted.out)
    assert "No method is expected" in cli(*plan, 100, "--wanted-radius", 5000).err
    assert "Missing option '--schema'" in cli("plan", trusted).err


def test_a_plan_compares_what_train_takes_by_default() -> None:
    compared = inspect.signature(plan).parameters["models"].default.split(",")
    assert compared[0] == DEFAULT_KIND
    assert set(compared) <= set(MEMBER_KINDS)


def test_a_changed_schema_is_noticed(cli: Cli, mails: Path, schema: Path, tmp_path: Path) -> None:
    schema.write_text(schema.read_text().replace('"spam", "ham"', '"ham", "spam", "eggs"'))
    result = cli("train", mails, "--schema", schema, *TRAIN, "--out", tmp_path / "m")
    assert result.code == 2
    assert "changed after it was frozen" in result.err


def test_the_schema_inside_a_model_is_the_frozen_one(
    cli: Cli, mails: Path, schema: Path, tmp_path: Path
) -> None:
    assert cli("train", mails, "--schema", schema, *TRAIN, "--out", tmp_path / "m").code == 0
    assert poisonproof.load(tmp_path / "m").schema == freeze_schema(SCHEMA)


@pytest.mark.parametrize("threat", ["insert_delete", "label_flip"])
def test_a_plan_chooses_the_method_and_its_command_trains_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threat: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    middles = np.array([[9.0, 1.0], [1.0, 9.0], [9.0, 9.0]])
    truth = rng.integers(3, size=900)
    X = middles[truth] + rng.normal(size=(900, 2))
    table = [f"{x},{y},{'abc'[i]}\n" for (x, y), i in zip(X, truth, strict=True)]
    Path("all.csv").write_text("x,y,kind\n" + "".join(table))
    said = cli("schema", "all.csv", "--label", "kind", "--out", "s.json")
    assert said.code == 0, said.err
    assert cli("schema", "s.json", "--freeze").code == 0
    result = cli("plan", "all.csv", "--schema", "s.json", "--threat", threat)
    assert result.code == 0, result.err
    if threat == "label_flip":
        assert "its radii are multiplied by" in words(result.out)
        assert "clusters" in words(result.out)
    _, _, command = words(result.out).partition("Next: poisonproof ")
    assert f"--threat {threat} --method" in command
    trained = cli(*command.replace("DATA", "all.csv").split())
    assert trained.code == 0, trained.err
    assert "Recall" in trained.out
