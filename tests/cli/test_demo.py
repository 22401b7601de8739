"""``demo``: runs without torch or a download, and says in words what it proved."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def shown(cli: Cli, tmp_path: Path) -> str:
    result = cli("demo", "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert result.err == ""
    return result.out


def test_the_demo_prints_what_it_proved_and_writes_everything(shown: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = json.loads((out / "results.json").read_text())
    assert results["median_radius"] >= 12
    assert results["clean_accuracy"] > 0.9
    words = f"inserts or deletes any {results['median_radius']} training images."
    proved = f"keep their correct label even if an attacker {words}"
    assert proved in " ".join(shown.split())
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_without_matplotlib_the_demo_runs_and_names_the_extra(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = cli("demo", "--out", tmp_path / "out")
    assert result.code == 0
    assert "pip install 'poisonproof[report]'" in result.err
    assert not (tmp_path / "out" / "curve.png").exists()
    assert (tmp_path / "out" / "results.json").exists()
