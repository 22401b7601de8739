"""The page says who is best where, and nothing else than the results say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from poisonproof.evaluation.comparison import Method
from poisonproof_research.frontier import (
    PublishedPoint,
    make_curve,
    published_points,
)
from poisonproof_research.frontier import write_frontier as write_page
from poisonproof_research.frontier.figures import curve
from poisonproof_research.frontier.page import attack_sizes, best_ranges, method_table


def write_frontier(methods, points, out, command):
    return write_page([make_curve(method) for method in methods], points, out, command)


POINT = PublishedPoint("toy", "insert_delete", "paper: DPA, k = 9", 0.9, 2)


def test_the_best_method_of_every_attack_size_is_named(strong: Method, accurate: Method) -> None:
    methods = [make_curve(strong), make_curve(accurate)]
    for best in best_ranges(methods, floor=0.1):
        for size in range(best.first, best.last + 1):
            shares = [float(method.certified(size)) for method in methods]
            assert float(best.method.certified(size)) >= max(shares) - 0.001
    spans = [(best.first, best.last, best.method.id) for best in best_ranges(methods, floor=0.1)]
    assert spans[0][2] == "accurate"
    assert spans[-1][2] == "strong"
    assert [first for first, _, _ in spans[1:]] == [last + 1 for _, last, _ in spans[:-1]]


def test_the_table_marks_the_best_of_each_column(strong: Method, accurate: Method) -> None:
    table = method_table([make_curve(strong), make_curve(accurate)], [POINT], [0, 10])
    rows = table.splitlines()
    assert rows[2] == "| 1 | title of strong | 50.00 % | 29 | **50.00 %** |"
    assert rows[3] == "| 2 | title of accurate | **100.00 %** | 4 | 0.00 % |"
    assert rows[4] == "|  | *paper: DPA, k = 9* | 90.00 % | 2 |  |"


def test_attack_sizes_are_round_and_end_where_little_is_left(strong: Method) -> None:
    sizes = attack_sizes([make_curve(strong)])
    assert sizes[0] == 0
    assert sizes[-1] <= strong.reach
    assert all(size % 5 == 0 for size in sizes)


def test_the_staircase_shows_the_certified_accuracy_of_every_size(strong: Method) -> None:
    sizes, shares, style = curve(make_curve(strong))
    assert style == "steps-post"
    every = np.arange(strong.reach + 2)
    shown = shares[np.searchsorted(sizes, every, side="right") - 1]
    assert np.array_equal(shown, strong.certified(every))
    few, values, style = curve(make_curve(strong), most=2)
    assert style == "default"
    assert np.array_equal(values, strong.certified(few))


def test_the_same_results_give_the_same_bytes(
    strong: Method, accurate: Method, tmp_path: Path
) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
        write_frontier([strong, accurate], [POINT], folder, "poisonproof-research frontier")
    names = sorted(path.name for path in folders[0].iterdir())
    assert names == ["frontier-toy-insert-delete.svg", "frontier.md"]
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    page = (folders[0] / "frontier.md").read_text()
    for text in ("title of strong", "*paper: DPA"):
        assert text in page


def test_a_note_stands_over_the_results_it_belongs_to(
    strong: Method, accurate: Method, tmp_path: Path
) -> None:
    note = "With outside data."
    elsewhere = [
        replace(method, dataset="toy-outside", dataset_title="Elsewhere", facts={"note": note})
        for method in (strong, accurate)
    ]
    write_frontier(
        [strong, accurate, *elsewhere], [POINT], tmp_path, "poisonproof-research frontier"
    )
    page = (tmp_path / "frontier.md").read_text()
    assert page.count(note) == 1
    assert f"\n## Elsewhere: rows inserted or deleted\n\n{note}\n\n[![Certified" in page
    assert page.count(POINT.title) == 1


def test_the_papers_points_are_those_of_table_1() -> None:
    points = {(point.dataset, point.threat): point for point in published_points()}
    assert {"mnist", "cifar10", "gtsrb"} <= {dataset for dataset, _ in points}
    best = [
        p.median for p in published_points() if (p.dataset, p.threat) == ("mnist", "insert_delete")
    ]
    assert best == [447, 508]


def test_methods_that_never_lead_are_folded_away_under_their_numbers(
    strong: Method, accurate: Method, tmp_path: Path
) -> None:
    weak = replace(
        strong, certificates=replace(strong.certificates, radius=strong.certificates.radius // 4)
    )
    copies = [replace(weak, id=f"weak-{i}", title=f"weak {i}") for i in range(40)]
    write_frontier([strong, accurate, *copies], [POINT], tmp_path, "command")
    page = (tmp_path / "frontier.md").read_text()
    before, _, folded = page.partition('<details markdown="1">')
    folded, _, _ = folded.partition("</details>")
    assert "| title of strong |" in before
    assert "| title of strong |" not in folded
    for copy in copies:
        assert f"| {copy.title} |" not in before
        assert f"| {copy.title} |" in folded
