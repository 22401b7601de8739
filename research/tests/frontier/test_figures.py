"""Every curve of the picture can be told from every other one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from poisonproof.evaluation.comparison import FAMILIES, Method
from poisonproof_research.frontier import Curve, make_curve, write_frontier
from poisonproof_research.frontier.figures import curve_style, frontier_svg, mark_places
from poisonproof_research.frontier.figures import leading as leading_curves


def curves(methods: list[Method]) -> list[Curve]:
    return [make_curve(method) for method in methods]


def leading(methods: list[Method]) -> list[bool]:
    return leading_curves(curves(methods))


@pytest.mark.parametrize("count", [1, 2, 8, 20])
def test_no_two_curves_share_colour_and_dash(strong: Method, count: int) -> None:
    methods = [
        replace(strong, id=f"{family}-{place}", family=family)
        for family in FAMILIES
        for place in range(count)
    ]
    styles = {curve_style(method, methods) for method in methods}
    assert len(styles) == len(methods)


def test_neighbours_in_the_legend_differ_in_more_than_a_shade(strong: Method) -> None:
    methods = [replace(strong, id=str(place)) for place in range(12)]
    dashes = [curve_style(method, methods)[1] for method in methods]
    assert all(one != two for one, two in pairwise(dashes))


def test_numbers_stand_on_their_own_curve_and_apart_from_others() -> None:
    x = np.linspace(0, 1, 50)
    curves = [np.column_stack([x, (1 - x) ** power]) for power in (0.6, 1.0, 1.6, 2.5, 4.0)]
    places = np.array(mark_places(curves, [np.array([0.5, 0.5])]))
    for place, own in zip(places, curves, strict=True):
        gaps = [np.hypot(*(curve - place).T).min() for curve in curves]
        assert np.hypot(*(own - place).T).min() == min(gaps)
        assert min(gaps) < 0.02
        assert np.hypot(*(place - [0.5, 0.5])) > 0.03
    between = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    assert between[~np.eye(5, dtype=bool)].min() > 0.05


def test_equal_curves_have_numbers_at_different_places(strong: Method) -> None:
    corners = np.array([[0.0, 0.9], [1.0, 0.1]])
    one, two = mark_places([corners, corners])
    assert np.hypot(one[0] - two[0], one[1] - two[1]) > 0.05
    assert frontier_svg(curves([strong, strong]), [], "twice", "rows").startswith(b"<?xml")


def test_settings_are_in_the_order_of_their_numbers(strong: Method, tmp_path: Path) -> None:
    methods = [replace(strong, id=k, title=f"k = {k}") for k in ("1,000", "80", "250")]
    write_frontier(curves(methods), [], tmp_path, "poisonproof-research frontier")
    page = (tmp_path / "frontier.md").read_text()
    assert (
        page.index("| 1 | k = 80 ") < page.index("| 2 | k = 250 ") < page.index("| 3 | k = 1,000")
    )


def test_methods_lead_that_are_best_at_some_size(strong: Method, accurate: Method) -> None:
    labels = np.asarray(strong.certificates.labels)
    radius = np.where(labels == strong.y_true, 0, strong.certificates.radius)
    weak = replace(strong, certificates=replace(strong.certificates, radius=radius))
    assert leading([strong, accurate, weak]) == [True, True, False]
    assert leading([strong, strong]) == [True, True]
    assert leading([weak]) == [True]


def test_a_method_leads_by_accuracy_and_median_together(strong: Method) -> None:
    """It is best at no size: one is more accurate, another certifies more from there on."""
    right = np.zeros(100, dtype=np.int64)

    def method(clean: int, *radii: tuple[int, int]) -> Method:
        labels = (np.arange(100) >= clean).astype(np.int64)
        radius = np.concatenate([np.full(n, r) for r, n in radii])
        counts = np.repeat(strong.certificates.counts[:1], 100, axis=0)
        found = replace(
            strong.certificates, labels=labels, radius=radius, runner_up=1 - labels, counts=counts
        )
        return replace(strong, y_true=right, certificates=found)

    accurate = method(99, (3, 40), (0, 60))
    between = method(95, (3, 55), (0, 45))
    flat = method(80, (3, 60), (0, 40))
    poor = method(79, (3, 55), (0, 45))
    assert leading([accurate, between, flat, poor]) == [True, True, True, False]


def test_curves_that_never_lead_are_grey_where_there_are_many(strong: Method) -> None:
    labels = np.asarray(strong.certificates.labels)
    radius = np.where(labels == strong.y_true, 0, strong.certificates.radius)
    weak = replace(strong, certificates=replace(strong.certificates, radius=radius))
    grey = b"stroke: #cccccc"
    assert frontier_svg(curves([strong, *[weak] * 11]), [], "few", "rows").count(grey) == 0
    assert frontier_svg(curves([strong, *[weak] * 12]), [], "crowd", "rows").count(grey) >= 12
