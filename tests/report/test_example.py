"""The example that makes the report pages of the documentation."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from poisonproof.attacks import AttackStudy

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "going-further" / "reports.py"
PAGES = {"digits.html", "models.html", "spam.html"}


@pytest.mark.slow
def test_the_example_makes_the_three_pages(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, "--out", tmp_path], check=True, timeout=300)
    assert {page.name for page in tmp_path.iterdir()} == PAGES
    assert "Real attacks" in (tmp_path / "digits.html").read_text()


def test_the_site_is_built_with_reports_of_this_code() -> None:
    pytest.importorskip("mkdocs")
    from mkdocs.config import load_config
    from mkdocs.structure.files import Files

    hook = runpy.run_path(str(ROOT / "docs" / "hooks.py"))
    config = load_config(str(ROOT / "mkdocs.yml"), hooks=[], plugins=[])
    config.plugins._current_plugin = "hooks"  # as in a build: who makes the files
    files = hook["on_files"](Files([]), config)
    pages = {Path(file.src_uri).name: file.content_string for file in files}
    assert set(pages) >= PAGES
    study = AttackStudy.from_dict(json.loads(hook["ATTACKS"].read_text()))
    assert f"{study.trials_within[0]:,}" in pages["digits.html"]
    assert "owned" in pages["spam.html"]
    assert '<script>document.title = "owned"' not in pages["spam.html"]
    linked = (ROOT / "docs" / "report.md").read_text()
    assert all(f"assets/reports/{name}" in linked for name in PAGES)
