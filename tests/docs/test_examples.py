"""Every example runs, says something, and is listed."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*/*.py"))
SLOW = {"reports.py"}
CASES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.name in SLOW))
    for path in SCRIPTS
]


@pytest.mark.parametrize("script", CASES)
def test_the_example_runs(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 1


def test_the_gallery_lists_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert len(SCRIPTS) >= 8
    assert len({script.parent for script in SCRIPTS}) == 3
    for script in SCRIPTS:
        assert f"`{script.name}`" in page
        assert f"`{script.parent.name}`" in page
