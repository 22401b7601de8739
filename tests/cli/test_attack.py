"""``poisonproof attack``: real attacks from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, mails, write_csv


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
    assert "Attacked for real" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kinds", "witchcraft"), "--kinds is one of random-flips"),
        (("--method", "magic"), "--method is one of dpa, ss-dpa"),
        (("--method", "ss-dpa", "--kinds", "backdoor"), "SSDPAClassifier certifies label_flip"),
        (("--out", "a.csv"), "must end in one of .json"),
        (("--figure", "a.gif"), "must end in one of .png, .svg"),
        (("train.csv",), "Name the test rows"),
        (("train.csv", "asked.csv"), "Name the column with the labels"),
        (("train.csv", "asked.csv", "--label", "kind"), "The label set must be declared"),
        (("-k", "1"), "Invalid value for '--partitions'"),
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
