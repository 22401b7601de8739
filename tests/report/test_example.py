"""The example that makes the pages in the documentation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_example_makes_the_three_pages(tmp_path: Path) -> None:
    script = ROOT / "examples" / "going-further" / "reports.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, timeout=300)
    assert {page.name for page in tmp_path.iterdir()} == {"digits.html", "models.html", "spam.html"}
    for page in tmp_path.iterdir():
        committed = (ROOT / "docs" / "assets" / "reports" / page.name).read_text()
        # Styles and scripts in the documentation are those of the code, whatever the numbers.
        head = committed[: committed.index("<title>")]
        assert page.read_text().startswith(head)
