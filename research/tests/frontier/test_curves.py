"""A curve and its evidence give back what they were made from, or say what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poisonproof.certificates import certify_scores
from poisonproof.evaluation.comparison import Method
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.clusters import certify_clusters
from poisonproof_research.frontier import (
    cluster_evidence,
    make_evidence,
    read_curves,
    read_evidence,
    write_method,
)
from poisonproof_research.frontier.curves import GRID

RESULTS = Path(__file__).parents[2] / "results"


def test_methods_come_back_with_the_same_certificates(
    strong: Method, accurate: Method, tmp_path: Path
) -> None:
    table, clusters = np.array([[5, 2], [1, 6]]), np.array([0, 1, 1, 0])
    rule = "one_to_one"
    grouped = replace(
        accurate,
        id="grouped",
        family="clusters_assigned",
        certificates=certify_clusters(table, clusters, rule),  # type: ignore[arg-type]
    )
    scores = np.random.default_rng(0).random((4, 9, 2))
    scored = replace(accurate, id="scored", certificates=certify_scores(scores))
    for method in (strong, accurate, scored):
        write_method(method, make_evidence(method.certificates), tmp_path)
    write_method(grouped, cluster_evidence(table, clusters, rule), tmp_path)
    found = {curve.id: curve for curve in read_curves(tmp_path / "curves.json")}
    assert sorted(found) == ["accurate", "grouped", "scored", "strong"]
    for method in (strong, accurate, scored, grouped):
        again, y_true = read_evidence(found[method.id], tmp_path)
        assert np.array_equal(again.radius, method.certificates.radius)
        assert np.array_equal(again.labels, method.certificates.labels)
        assert np.array_equal(y_true, method.y_true)
        assert again.method == method.certificates.method


def test_a_curve_is_exact_at_the_sizes_it_keeps_and_never_above_the_truth_between(
    strong: Method, tmp_path: Path
) -> None:
    write_method(strong, make_evidence(strong.certificates), tmp_path)
    (curve,) = read_curves(tmp_path / "curves.json")
    every = np.arange(strong.reach + 3)
    assert np.array_equal(curve.certified(curve.sizes), strong.certified(curve.sizes))
    assert (curve.certified(every) <= strong.certified(every)).all()
    assert (curve.clean, curve.median, curve.reach) == (strong.clean, strong.median, strong.reach)


def test_evidence_of_another_method_is_refused(
    strong: Method, accurate: Method, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match="does not give the method's radii"):
        write_method(strong, make_evidence(accurate.certificates), tmp_path)
    assert not list(tmp_path.iterdir())


def test_broken_evidence_is_named(strong: Method, tmp_path: Path) -> None:
    write_method(strong, make_evidence(strong.certificates), tmp_path).write_bytes(b"nothing")
    (curve,) = read_curves(tmp_path / "curves.json")
    with pytest.raises(InvalidInputError, match="strong"):
        read_evidence(curve, tmp_path)


def test_committed_evidence_gives_the_committed_curves() -> None:
    curves = {curve.id: curve for curve in read_curves(RESULTS / "curves.json")}
    kept = sorted(path.stem for path in (RESULTS / "frontier").glob("*.npz"))
    assert len(curves) > 400
    assert set(kept) <= curves.keys()
    for name in kept:
        curve = curves[name]
        certificates, y_true = read_evidence(curve, RESULTS)
        right = certificates.radius[np.asarray(certificates.labels) == y_true]
        held = [int((right >= size).sum()) for size in curve.sizes]
        assert held == list(curve.right)
        assert set(GRID) & set(range(curve.reach + 1)) <= set(curve.sizes)
