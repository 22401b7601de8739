"""The tables of result pages, and that of members, show the committed results, row by row."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from sklearn.utils import all_estimators

ROOT = Path(__file__).parents[2]
CURVES = json.loads((ROOT / "research/results/curves.json").read_text())["curves"]
RESULTS = {curve["id"]: curve for curve in CURVES}
METHOD = re.compile(r"^\| .* \| (\S+) % \| (\S+) \| .* \| `(\S+)` \|$", re.M)
PAPER = re.compile(r"^\| `(\S+)` \| (\S+) \| \S+ \| (\S+) \| \S+ \| (\S+) \| \S+ \|$", re.M)


@pytest.mark.parametrize(("page", "rows"), [("mnist", 18), ("cifar10", 28), ("gtsrb", 18)])
def test_every_row_of_a_dataset_is_a_committed_result(page: str, rows: int) -> None:
    found = METHOD.findall((ROOT / f"docs/results/{page}.md").read_text())
    assert len(found) == rows
    for correct, median, name in found:
        curve = RESULTS[name]
        assert correct == f"{100 * curve['right'][0] / curve['n_test']:.2f}", name
        assert median == ("none" if curve["median"] is None else f"{curve['median']:,}"), name


def test_every_row_of_the_paper_is_a_committed_result() -> None:
    found = PAPER.findall((ROOT / "docs/results/paper.md").read_text())
    assert len(found) == 16
    for name, correct, members, median in found:
        outcome = json.loads((ROOT / f"research/results/{name}/result.json").read_text())["outcome"]
        assert float(correct) == round(outcome["clean_percent"], 2), name
        assert float(members) == round(outcome["base_percent"], 2), name
        counted = outcome["median_radius"]
        assert median == ("none" if counted is None else str(counted + 1)), name


def test_every_measured_row_of_the_page_on_methods_is_a_committed_result() -> None:
    committed = {(100 * c["right"][0] / c["n_test"], c["median"]) for c in CURVES}
    tables = ROOT / "research/experiments/closed_form/default_member.json"
    for name, members in json.loads(tables.read_text())["results"].items():
        for member in members.values():
            if isinstance(member, dict):
                committed.add((100 * member["clean_accuracy"], member["median_radius"], name))
    shown = {
        (f"{correct:.{1 if name else 2}f}", f"{median:,}", *name)
        for correct, median, *name in committed
        if median is not None
    }
    page = (ROOT / "docs/which-method.md").read_text().partition("## What was measured")[2]
    found = re.findall(r"^\| (.*?) \| .*?(k = \S+)? \| (\S+) % \| (\S+) \|$", page, re.M)
    assert len(found) == 22
    for data, k, correct, median in found:
        name = f"{data.partition(',')[0]}, {k}"
        assert shown & {(correct, median), (correct, median, name)}, (data, correct, median)


def test_the_table_of_walks_is_the_committed_result() -> None:
    page = (ROOT / "docs/tutorials/real-data.md").read_text()
    found = re.findall(
        r"^\| \[(.+)\]\(#\S+\) \| .+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.M
    )
    walks = json.loads((ROOT / "benchmarks/results/walks.json").read_text())["walks"]
    keys = ("commands", "scripts", "seconds", "edits_by_hand")
    assert found == [(walk["job"], *(str(round(walk[key])) for key in keys)) for walk in walks]
    assert [walk["job"] for walk in walks] == re.findall(r"^## (.+)$", page, re.M)
    assert max(walk["commands"] for walk in walks if "flatter" in walk["job"]) <= 6


GRIDS = {
    "MNIST, 64 x 16 lattice": "MNIST, rows and features",
    "MNIST, features alone, 53 blocks of hashed pixels": "MNIST, features alone",
    "CIFAR-10, features alone, 64 lattices": "CIFAR-10, 1 x lattice:64",
    "CIFAR-10, features alone, 121 lattices": "CIFAR-10, 1 x lattice:121",
    "CIFAR-10, 5 x 16 lattice": "CIFAR-10, 5 x lattice:16",
    "diamonds (dear or cheap), 50 x 8 columns": "diamonds, rows outside",
    "diamonds, features outside": "diamonds, features outside",
    "penguins (species), 9 x 5 columns": "penguins, rows outside",
    "SST-2, 1 x 8 blocks of words": "SST-2, 1 x 8",
    "SST-2, 10 x 8 blocks of words": "SST-2, 10 x 8",
}


def test_the_table_of_grids_is_the_committed_result() -> None:
    page = (ROOT / "docs/backdoors.md").read_text().partition("## How strong it is")[2]
    found = re.findall(r"^\| (.+) \| ([\d.]+) % \| (.+) \| (\d+) \w+ \|$", page, re.M)
    assert [title for title, *_ in found] == list(GRIDS)
    runs = json.loads((ROOT / "benchmarks/results/grids.json").read_text())
    for title, clean, withstood, of_correct in found:
        run = runs[GRIDS[title]]
        run = run.get("runoff", run)
        assert abs(float(clean) - 100 * run["clean"]) <= 0.051, title
        assert int(of_correct) == run["median_features_of_correct"], title
        for attack in withstood.partition(" (")[0].split("; "):
            first, *second = map(int, re.findall(r"\d+", attack))
            if second:
                assert run["median_rows"][second[0]] == first, (title, attack)
            elif "row" in attack:
                assert run["median_rows"][0] == first, (title, attack)
            else:
                assert run["median_features"] == first, (title, attack)


MEMBERS: dict[str, Any] = json.loads((ROOT / "benchmarks/results/members.json").read_text())


def test_the_page_shows_the_measured_table() -> None:
    spec = importlib.util.spec_from_file_location("members", ROOT / "benchmarks/members.py")
    assert spec is not None
    assert spec.loader is not None
    members = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(members)
    assert f"\n{members.table(MEMBERS)}\n\n" in (ROOT / "docs/scikit-learn.md").read_text()


def test_every_classifier_was_tried_and_is_isolated_or_says_why_not() -> None:
    assert {name for name, _ in all_estimators(type_filter="classifier")} <= set(MEMBERS["members"])
    for name, about in MEMBERS["members"].items():
        assert about["result"] == "isolated" or about["reason"], name


def test_no_hostile_row_kept_a_member_from_being_trained() -> None:
    ends = {"trained", "row refused", "member abstains"}
    for name, about in MEMBERS["members"].items():
        for case, (end, seconds) in about["hostile"].items():
            assert end in ends, (name, case)
            assert seconds < MEMBERS["limit_seconds"], (name, case)
