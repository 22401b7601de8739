"""``poisonproof attack``: real attacks from the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from poisonproof import load
from poisonproof.data import ImageColumn, Schema, freeze_schema
from poisonproof.data.schema import dump_schema
from tests.cli.conftest import Cli, mails, write_csv
from tests.data.builders import SCHEMA, mail_rows
from tests.data.builders import write_csv as write_mails


@pytest.fixture
def test_rows(tmp_path: Path) -> Path:
    rows = [[a, b, kind] for a, b, _, _, kind in mails(60, 1)]
    return write_csv(tmp_path / "asked.csv", ["length", "links", "kind"], rows)


def test_a_table_a_picture_and_every_trial(
    cli: Cli, train_csv: Path, test_rows: Path, model: Path, tmp_path: Path
) -> None:
    result = cli(
        *("attack", train_csv, test_rows, "--label", "kind", "--classes", "ham,spam", "-k", 15),
        *("--targets", 2, "--limit", 40, "--kinds", "targeted-flips,partition-aware"),
        *("--out", tmp_path / "attacks.json", "--figure", tmp_path / "attacks.svg"),
    )
    assert (result.code, result.err) == (0, "")
    assert "changed 0 predictions" in " ".join(result.out.split())
    trials = json.loads((tmp_path / "attacks.json").read_text())
    assert [kind["name"] for kind in trials["kinds"]] == ["targeted-flips", "partition-aware"]
    assert (tmp_path / "attacks.svg").read_bytes().startswith(b"<?xml")
    shown = cli(
        *("report", model, test_rows, "--label", "kind", "--attacks", tmp_path / "attacks.json"),
        *("--out", tmp_path / "report.html"),
    )
    assert shown.code == 0, shown.err
    assert "Real attacks" in (tmp_path / "report.html").read_text()


def test_a_schema_lets_texts_categories_and_contributors_be_attacked(
    cli: Cli, tmp_path: Path
) -> None:
    rows = mail_rows(300)
    rows[7][1] = "many"
    data = write_mails(tmp_path / "mails.csv", rows)
    (tmp_path / "s.json").write_bytes(dump_schema(SCHEMA))
    result = cli(
        *("attack", data, "--schema", tmp_path / "s.json", "-k", 9, "--model", "naive-bayes"),
        *("--targets", 2, "--limit", 12, "--kinds", "targeted-flips,backdoor"),
        *("--out", tmp_path / "attacks.json"),
    )
    assert result.code == 0, result.err
    assert "1 row left out that did not fit" in result.err
    assert "in contributors." in " ".join(result.out.split())
    assert "changed 0 predictions" in " ".join(result.out.split())
    trials = json.loads((tmp_path / "attacks.json").read_text())
    assert {kind["threat"]["unit"] for kind in trials["kinds"]} == {"group"}


def test_a_folder_of_images_is_attacked(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label, bright in (("dark", 60), ("light", 200)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(40):
            pixels = rng.normal(bright, 20, (8, 8)).clip(0, 255).astype("uint8")
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{number}.png")
    column = ImageColumn(name="image", height=8, width=8, gray=True)
    schema = Schema(
        kind="images", columns=(column,), label="folder", classes=("dark", "light"),
        test_share=0.3,
    )  # fmt: skip
    (tmp_path / "s.json").write_bytes(dump_schema(freeze_schema(schema)))
    result = cli(
        *("attack", tmp_path / "photos", "--schema", tmp_path / "s.json", "-k", 5),
        *("--targets", 1, "--limit", 10, "--figure", tmp_path / "attacks.png"),
    )
    assert (result.code, result.err) == (0, "")
    assert "changed 0 predictions" in " ".join(result.out.split())
    assert (tmp_path / "attacks.png").read_bytes().startswith(b"\x89PNG")


def test_without_held_out_rows_the_test_rows_must_be_named(cli: Cli, tmp_path: Path) -> None:
    data = write_mails(tmp_path / "mails.csv", mail_rows(50))
    whole = freeze_schema(replace(SCHEMA, test_share=0.0))
    (tmp_path / "s.json").write_bytes(dump_schema(whole))
    result = cli("attack", data, "--schema", tmp_path / "s.json")
    assert result.code == 2
    assert "Name the test rows" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kinds", "witchcraft"), "--kinds is one of random-flips"),
        (("--method", "magic"), "--method is one of dpa, ss-dpa"),
        (("--method", "ss-dpa", "--kinds", "backdoor"), "SSDPAClassifier certifies label_flip"),
        (("--out", "a.csv"), "must end in .json"),
        (("--figure", "a.gif"), "must end in one of .png, .svg"),
        (("train.csv",), "Name the test rows"),
        (("train.csv", "asked.csv"), "Name the column with the labels"),
        (("train.csv", "asked.csv", "--label", "kind"), "The label set must be declared"),
        (("-k", "1"), "Invalid value for '--partitions'"),
        (("--schema", "s.json"), "Name the data that the schema describes"),
        (("train.csv", "--schema", "s.json", "--classes", "a,b"), "--classes: the schema"),
        (("train.csv", "--schema", "s.json"), "Cannot read s.json"),
    ],
)
def test_bad_options_are_one_line(
    cli: Cli,
    train_csv: Path,
    test_rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("attack", *arguments)
    assert result.code == 2
    assert words in " ".join(result.err.split())
    assert result.err.count("\n") == 1


def test_a_trained_model_is_attacked_as_it_is(cli: Cli, tmp_path: Path) -> None:
    data = write_mails(tmp_path / "mails.csv", mail_rows(300))
    (tmp_path / "s.json").write_bytes(dump_schema(SCHEMA))
    model = tmp_path / "model"
    train = ("train", data, "--schema", tmp_path / "s.json", "-k", 9, "--model", "naive-bayes")
    assert cli(*train, "--out", model).code == 0
    shared = ("--targets", 2, "--limit", 12, "--kinds", "targeted-flips,near-insertions")
    alone = cli(
        *("attack", data, "--schema", tmp_path / "s.json", "-k", 9, "--model", "naive-bayes"),
        *(*shared, "--out", tmp_path / "alone.json"),
    )
    assert alone.code == 0, alone.err
    result = cli("attack", data, "--trained", model, *shared, "--out", tmp_path / "trained.json")
    assert result.code == 0, result.err
    mine, other = (
        json.loads((tmp_path / name).read_text()) for name in ("trained.json", "alone.json")
    )
    assert mine["kinds"] == other["kinds"]
    assert mine["fingerprint"] == load(model).ensemble_.reader.manifest.fingerprint
    rows = mail_rows(300)
    rows[0][-1] = "spam" if rows[0][-1] == "ham" else "ham"
    others = write_mails(tmp_path / "others.csv", rows[:-5])
    refused = cli("attack", others, "--trained", model)
    assert refused.code == 2
    assert "data is not what the model was trained on" in " ".join(refused.err.split())
    again = cli("attack", data, "--trained", model, "-k", 9)
    assert "-k: the model" in " ".join(again.err.split())


def test_a_trained_model_without_a_schema_is_attacked(
    cli: Cli, train_csv: Path, test_rows: Path, model: Path, tmp_path: Path
) -> None:
    result = cli(
        *("attack", train_csv, test_rows, "--trained", model, "--label", "kind"),
        *("--targets", 1, "--limit", 10, "--kinds", "random-flips"),
    )
    assert result.code == 0, result.err
    assert "changed 0 predictions" in " ".join(result.out.split())
    assert "Name the test rows" in cli("attack", train_csv, "--trained", model).err
    assert "Name the rows that" in cli("attack", "--trained", model).err
