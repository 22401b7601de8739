"""The page says which goals are reached, and of the others what holds them back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poisonproof.certificates import certify_votes
from poisonproof.evaluation.comparison import Method
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.clusters import certify_clusters
from poisonproof_research.frontier import Change, Goal, read_folder, read_goals, write_frontier
from poisonproof_research.frontier.goals import cluster_agreement, shortfall
from poisonproof_research.frontier.page import aims_section

from .conftest import make_method

ROOT = Path(__file__).parents[2]


def goal(radius: int, clean: float, *changes: Change) -> Goal:
    return Goal("toy", "Toy", "insert_delete", radius, clean, changes)


def test_a_goal_is_reached_by_one_method_or_not_at_all(strong: Method, accurate: Method) -> None:
    """One method has the median, the other the accuracy: neither has both."""
    both = goal(20, 0.9)
    assert not both.reached_by(strong)
    assert not both.reached_by(accurate)
    text = aims_section([both, goal(20, 0.5)], [strong, accurate])
    rows = [line for line in text.splitlines() if line.startswith("| Toy")]
    assert "**no**" in rows[0]
    assert "4 at 100.00 % (title of accurate); 29 at 50.00 % (title of strong)" in rows[0]
    assert "| yes | 29 at 50.00 % (title of strong) |" in rows[1]


def test_changes_are_told_where_both_results_are_there(strong: Method, accurate: Method) -> None:
    there = Change("other votes", "accurate", "strong")
    missing = Change("never run", "accurate", "nobody")
    text = aims_section([goal(20, 0.9, there, missing)], [strong, accurate])
    assert "| other votes | 100.00 % to 50.00 % | 4 to 29 | 0.00 % to 50.00 % |" in text
    assert "never run" not in text


def test_what_was_tried_for_a_goal_that_is_reached_is_folded(
    strong: Method, accurate: Method
) -> None:
    there = Change("other votes", "accurate", "strong")
    text = aims_section([goal(20, 0.5, there)], [strong, accurate])
    _, tried = text.split("<summary>Toy, rows inserted or deleted, 20 at 50 %: what was tried")
    assert "| other votes | 100.00 % to 50.00 % | 4 to 29 | 0.00 % to 50.00 % |" in tried
    assert "holds" not in text
    assert "<details" not in aims_section([goal(20, 0.5)], [strong, accurate])


def test_what_had_been_seen_stands_beside_the_goal(strong: Method) -> None:
    told = replace(goal(20, 0.5), seen="all of it")
    rows = aims_section([told, goal(99, 0.5)], [strong]).splitlines()
    assert "| data | attack | goal | reached | best | known of the test rows before |" in rows
    assert any(row.startswith("| Toy") and row.endswith("| all of it |") for row in rows)
    assert "known" not in aims_section([goal(20, 0.5)], [strong])


def test_a_goal_without_any_result_says_so(strong: Method) -> None:
    elsewhere = replace(goal(1, 0.1), dataset="other", title="Other")
    text = aims_section([elsewhere], [strong])
    assert "no method has been measured here" in text
    assert "No method has been measured on this data" in text


def spread_votes(k: int, right: int, n: int = 40) -> Method:
    """Return a method whose first half of rows is always right, the other half seldom."""
    y = np.arange(n) % 4
    hard = np.arange(n) >= n // 2
    correct = np.where(hard, right, k)
    votes = np.where(np.arange(k) < correct[:, None], y[:, None], (y[:, None] + 1) % 4)
    return make_method("halves", "dpa", certify_votes(votes, 4), y)


def test_the_shortfall_tells_limit_accuracy_and_agreement_in_error() -> None:
    method = spread_votes(k=40, right=16)
    lack = shortfall(method, goal(15, 0.9))
    assert lack.right == pytest.approx((40 + 16) / 80)
    assert lack.limit == 19  # label 0 alone would withstand 20
    # Evenly spread, 28 of 40 votes are right on every row and 4 go to each wrong label.
    assert lack.spread == 11
    # The hard rows need a majority for the accuracy: just above half of their votes.
    assert lack.needed is not None
    assert 0.75 <= lack.needed <= 0.80
    assert shortfall(method, goal(21, 0.9)).needed is None


def test_the_needed_share_is_the_smallest_that_reaches_the_goal() -> None:
    method, wanted = spread_votes(k=40, right=16), goal(3, 1.0)
    lack = shortfall(method, wanted)
    assert not wanted.reached_by(method)
    assert lack.needed is not None
    assert lack.right < lack.needed < 0.80


def test_the_conclusion_follows_the_numbers() -> None:
    method = spread_votes(k=40, right=16)
    same_rows = aims_section([goal(5, 0.9)], [method])
    assert "wrong on the same test rows" in same_rows
    too_few = aims_section([goal(15, 0.9)], [method])
    assert "how often votes are right" in too_few
    too_small = aims_section([goal(50, 0.9)], [method])
    assert "the kind of vote" in too_small


def test_clusters_say_how_pure_they_are() -> None:
    table = np.array([[8, 2], [1, 9]])
    certificates = certify_clusters(table, np.array([0, 1, 1, 0]), "one_to_one")
    method = make_method("pure", "clusters_assigned", certificates, [0, 1, 1, 1])
    assert cluster_agreement(method) == pytest.approx(17 / 20)
    wanted = replace(goal(9, 0.9), threat="label_flip")
    assert "| title of pure | 85.00 % | 75.00 % |" in aims_section([wanted], [method])


def test_goals_are_read_from_the_folder_of_results(strong: Method, tmp_path: Path) -> None:
    assert read_goals([tmp_path]) == []
    (tmp_path / "goals.toml").write_text(
        "[[goal]]\ndataset = 'toy'\ntitle = 'Toy'\nthreat = 'insert_delete'\nradius = 29\n"
        "clean_percent = 50.0\nseen = 'nothing'\n"
    )
    (found,) = read_goals([tmp_path])
    assert found == replace(goal(29, 0.5), seen="nothing")
    write_frontier([strong], [], tmp_path, "poisonproof compare", [found])
    assert "## What was aimed at" in (tmp_path / "frontier.md").read_text()
    (tmp_path / "goals.toml").write_text("[[goal]]\ndataset = 'toy'\n")
    with pytest.raises(InvalidInputError, match=r"goals\.toml does not hold goals"):
        read_goals([tmp_path])


@pytest.mark.parametrize("dataset", ["cifar10", "gtsrb"])
def test_the_committed_page_says_what_the_committed_results_give(
    dataset: str, tmp_path: Path
) -> None:
    """If this fails after results were added: make frontier."""
    folders = [ROOT / "experiments/results", ROOT / "experiments/frontier"]
    for home in (home for folder in folders for home in folder.glob(f"{dataset}-*")):
        (tmp_path / home.name).symlink_to(home)
    goals = [wanted for wanted in read_goals(folders) if wanted.dataset == dataset]
    methods = read_folder(tmp_path)
    assert {change.before for wanted in goals for change in wanted.changes} & {
        method.id for method in methods
    }
    page = (ROOT / "docs/beyond/frontier.md").read_text().splitlines()
    assert set(aims_section(goals, methods).splitlines()) <= set(page)
