"""A result file gives back the certificates it was made from, or says what is wrong."""

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
    read_folder,
    read_method,
    write_method,
)


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
    found = {method.id: method for method in read_folder(tmp_path)}
    assert list(found) == ["accurate", "grouped", "scored", "strong"]
    for method in (strong, accurate, scored, grouped):
        again = found[method.id].certificates
        assert np.array_equal(again.radius, method.certificates.radius)
        assert np.array_equal(again.labels, method.certificates.labels)
        assert again.method == method.certificates.method


def test_evidence_of_another_method_is_refused(
    strong: Method, accurate: Method, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match="does not give the method's radii"):
        write_method(strong, make_evidence(accurate.certificates), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_broken_result_is_named(strong: Method, tmp_path: Path) -> None:
    home = write_method(strong, make_evidence(strong.certificates), tmp_path)
    (home / "evidence.npz").write_bytes(b"nothing")
    with pytest.raises(InvalidInputError, match="strong"):
        read_method(home)


def test_committed_results_are_whole() -> None:
    folder = Path(__file__).parents[2] / "experiments" / "frontier"
    for method in read_folder(folder):
        assert len(method.certificates) == len(method.y_true)
        assert method.clean > 0.5
