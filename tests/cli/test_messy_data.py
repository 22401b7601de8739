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
