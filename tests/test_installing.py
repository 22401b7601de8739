"""The pinned versions install on every Python that the project promises."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]


def test_no_pinned_version_asks_for_a_newer_python_than_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=") + ".0"
    asked = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, pinned = line.partition("==")
        try:
            found = distribution(name)
        except PackageNotFoundError:  # of another platform
            continue
        if found.version == pinned:
            asked[name] = found.metadata.get("Requires-Python", "")
    assert len(asked) > 50
    assert [name for name, wish in asked.items() if not SpecifierSet(wish).contains(oldest)] == []
