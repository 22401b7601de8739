"""A messy export from the command line: what is pointed at, and what was left out and why."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli
from tests.data.test_proposing_messy import messy


def test_rare_and_look_alike_labels_are_pointed_at(cli: Cli, tmp_path: Path) -> None:
    said = " ".join(cli("schema", messy(tmp_path / "m.csv"), "--label", "verdict").out.split())
    assert "classes: Good, bad, 'bad ', good." in said
    assert "Rare, a mistake? Label Good (4 rows), 'bad ' (4 rows)." in said
    assert "The labels 'Good' and 'good' differ in spaces or capitals only" in said
    assert "The labels 'bad' and 'bad ' differ in spaces or capitals only" in said


def test_what_was_left_out_is_counted_by_what_was_wrong(cli: Cli, tmp_path: Path) -> None:
    data, schema = messy(tmp_path / "m.csv"), tmp_path / "s.json"
    options = ("--label", "verdict", "--classes", "good,bad", "--ignore", "id,day")
    assert cli("schema", data, *options, "--out", schema).code == 0
    assert cli("schema", schema, "--freeze").code == 0
    with data.open("a") as file:
        file.write('700,2023-01-01,"five",good\n')
    trained = cli("train", data, "--schema", schema, "-k", 5, "--out", tmp_path / "model")
    assert trained.code == 0, trained.err
    assert "Because of: the label 8, column 'stars' 1." in " ".join(trained.out.split())
