"""The table of members is what was measured, of every classifier, and no row keeps one for ever."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from sklearn.utils import all_estimators

ROOT = Path(__file__).parents[2]
RESULT: dict[str, Any] = json.loads((ROOT / "benchmarks/results/members.json").read_text())


def test_the_page_shows_the_measured_table() -> None:
    spec = importlib.util.spec_from_file_location("members", ROOT / "benchmarks/members.py")
    assert spec is not None
    assert spec.loader is not None
    members = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(members)
    assert f"\n{members.table(RESULT)}\n\n" in (ROOT / "docs/scikit-learn.md").read_text()


def test_every_classifier_was_tried_and_is_isolated_or_says_why_not() -> None:
    assert {name for name, _ in all_estimators(type_filter="classifier")} <= set(RESULT["members"])
    for name, about in RESULT["members"].items():
        assert about["result"] == "isolated" or about["reason"], name


def test_no_hostile_row_kept_a_member_from_being_trained() -> None:
    ends = {"trained", "row refused", "member abstains"}
    for name, about in RESULT["members"].items():
        for case, (end, seconds) in about["hostile"].items():
            assert end in ends, (name, case)
            assert seconds < RESULT["limit_seconds"], (name, case)
