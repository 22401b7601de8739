"""Public names and pinned versions: adding a name is a decision, losing one breaks users."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.specifiers import SpecifierSet

import poisonproof


def test_the_public_names_are_these() -> None:
    assert sorted(poisonproof.__all__) == [
        "Certificates", "ClusterVoteClassifier", "DPAClassifier",
        "GridClassifier", "NeighborVoteClassifier",
        "SSDPAClassifier", "WeightedVoteClassifier", "certify_scores", "certify_votes", "load",
    ]  # fmt: skip
    assert all(hasattr(poisonproof, name) for name in poisonproof.__all__)
    assert {*poisonproof.__all__, "TorchLearner"} <= set(dir(poisonproof))
    assert poisonproof.TorchLearner("mlp").network == "mlp"


def test_certificates_need_numpy_alone() -> None:
    code = (
        "import sys, poisonproof; poisonproof.certify_votes([[0, 1, 1]], 2);"
        "others = 'sklearn', 'scipy', 'torch', 'joblib', 'safetensors', 'pandas';"
        "print([module for module in others if module in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


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
