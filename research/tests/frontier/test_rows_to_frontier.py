"""From the members of several runs to curves of the frontier: `experiments/rows_to_frontier.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from shapes import K, make_data, write_recipes

from poisonproof_research.frontier import read_curves, read_evidence
from poisonproof_research.methods.shared_buckets import (
    certify_finite_aggregation,
    certify_shared_runoff,
    make_spread,
)
from poisonproof_research.reproduction import Options, load_recipes, run_row
from poisonproof_research.reproduction.running import read_scores

ROOT = Path(__file__).parents[3] / "research"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two runs, half of the members each, of a row whose members share buckets."""
    folder = tmp_path_factory.mktemp("shapes")
    data = make_data()
    buckets, spread = data.sums % K, make_spread(K // 2, 2)
    sizes = [np.isin(buckets, own).sum() for own in spread.buckets_of_member]
    path = write_recipes(folder / "recipes", data, smallest=min(sizes), largest=max(sizes))
    text = (path / "shapes.toml").read_text().replace('network = "mlp"', 'network = "resnet10"')
    text = text.replace("hidden = [8]", "width = 2").replace("epochs = 6", "epochs = 1")
    rows = text.split("[[row]]")
    (path / "shapes.toml").write_text(f"{rows[0]}[[row]]\ndegree = 2{rows[1]}")
    recipe = load_recipes(path)["shapes-dpa-12"]
    for name, members in (("a", range(5)), ("b", range(5, K))):
        run_row(recipe, data, folder / name, Options("cpu", members, scores=True))
    return folder


def test_members_of_several_runs_become_curves_with_their_own_certificates(home):
    command = [sys.executable, ROOT / "experiments/rows_to_frontier.py", "--home", home]
    ran = subprocess.run(
        [*command, "--from", home / "a", "--from", home / "b", "--out", home / "frontier"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    row, spread = "shapes-dpa-12", make_spread(K // 2, 2)
    scores = read_scores(home / "a" / row, 60, K, home / "b" / row).astype(np.float32)
    found = {curve.id: curve for curve in read_curves(home / "frontier" / "curves.json")}
    shared, _ = read_evidence(found[row], home / "frontier")
    votes = scores.argmax(axis=2)
    expected = certify_finite_aggregation(votes, 3, spread)
    assert np.array_equal(shared.radius, expected.radius)
    assert found[row].family == "finite_aggregation"
    assert found[row].title == "finite aggregation, ResNet-10, k = 6, d = 2"
    runoff, _ = read_evidence(found[f"{row}-runoff"], home / "frontier")
    expected = certify_shared_runoff(scores, spread)
    assert np.array_equal(runoff.radius, expected.radius)
    assert f"{row}: " in ran.stdout


def test_a_row_with_members_missing_is_left_out(home):
    command = [sys.executable, ROOT / "experiments/rows_to_frontier.py", "--home", home]
    ran = subprocess.run(
        [*command, "--from", home / "a", "--out", home / "nothing"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "shapes-dpa-12: not finished" in ran.stdout
    assert not (home / "nothing").exists()
