"""The page shows the methods that lead, and nothing else than the results say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poisonproof.evaluation.comparison import FAMILIES, Method
from poisonproof_research.frontier import (
    Curve,
    PublishedPoint,
    make_curve,
    published_points,
    write_frontier,
)
from poisonproof_research.frontier.page import curve_style, leading, method_table

POINT = PublishedPoint("toy", "insert_delete", "paper: DPA, k = 9", 0.9, 2)


def curves(*methods: Method) -> list[Curve]:
    return [make_curve(method) for method in methods]


def test_the_table_marks_the_best_of_each_column(strong: Method, accurate: Method) -> None:
    rows = method_table(curves(strong, accurate), [POINT]).splitlines()
    assert rows[2].startswith("| title of strong | 50.00 % | 29 | ")
    assert rows[3].startswith("| title of accurate | **100.00 %** | 4 | ")
    assert rows[4].startswith("| *paper: DPA, k = 9* | 90.00 % | 2 |")


def test_the_same_results_give_the_same_bytes(
    strong: Method, accurate: Method, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_frontier(curves(strong, accurate), [POINT], tmp_path / name, "the command")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["frontier-toy-insert-delete.svg", "frontier.md"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_note_stands_over_the_results_it_belongs_to(
    strong: Method, accurate: Method, tmp_path: Path
) -> None:
    note = "With outside data."
    elsewhere = [
        replace(method, dataset="toy-outside", dataset_title="Elsewhere", facts={"note": note})
        for method in (strong, accurate)
    ]
    write_frontier(curves(strong, accurate, *elsewhere), [POINT], tmp_path, "the command")
    page = (tmp_path / "frontier.md").read_text()
    assert page.count(note) == 1
    assert f"\n## Elsewhere: rows inserted or deleted\n\n{note}\n\n[![Certified" in page
    assert page.count(POINT.title) == 1


def test_settings_are_in_the_order_of_their_numbers(strong: Method, tmp_path: Path) -> None:
    methods = [replace(strong, id=k, title=f"k = {k}") for k in ("1,000", "80", "250")]
    write_frontier(curves(*methods), [], tmp_path, "the command")
    page = (tmp_path / "frontier.md").read_text()
    assert page.index("| k = 80 ") < page.index("| k = 250 ") < page.index("| k = 1,000")


def test_the_papers_points_are_those_of_table_1() -> None:
    points = published_points()
    assert {"mnist", "cifar10", "gtsrb"} <= {point.dataset for point in points}
    wanted = ("mnist", "insert_delete")
    assert [p.median for p in points if (p.dataset, p.threat) == wanted] == [447, 508]


def test_methods_lead_that_are_best_at_some_size(strong: Method, accurate: Method) -> None:
    labels = np.asarray(strong.certificates.labels)
    radius = np.where(labels == strong.y_true, 0, strong.certificates.radius)
    weak = replace(strong, certificates=replace(strong.certificates, radius=radius))
    best, quick, poor = curves(strong, accurate, weak)
    assert leading([best, quick, poor]) == [best, quick]
    assert leading([best, best]) == [best, best]
    assert leading([poor]) == [poor]


def test_a_method_leads_by_accuracy_and_median_together(strong: Method) -> None:
    """It is best at no size: one is more accurate, another certifies more from there on."""
    base = make_curve(strong)

    def curve(median: int, *right: int) -> Curve:
        return replace(base, n_test=100, median=median, reach=3, sizes=[0, 1, 2, 3], right=right)

    accurate, between = curve(-1, 99, 40, 40, 40), curve(3, 95, 55, 55, 55)
    flat, poor = curve(3, 80, 60, 60, 60), curve(3, 79, 55, 55, 55)
    assert leading([accurate, between, flat, poor]) == [accurate, between, flat]


@pytest.mark.parametrize("count", [1, 2, 8, 20])
def test_no_two_curves_share_colour_and_dash(strong: Method, count: int) -> None:
    base = make_curve(strong)
    methods = [
        replace(base, id=f"{family}-{place}", family=family)
        for family in FAMILIES
        for place in range(count)
    ]
    assert len({curve_style(method, methods) for method in methods}) == len(methods)
