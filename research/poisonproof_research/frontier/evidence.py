"""Evidence of a result beside its curve, from which its certificates are computed again."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import ArrayLike, NDArray

import poisonproof
from poisonproof.certificates.plurality import certify_row_votes
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat, parse_threat
from poisonproof.evaluation.comparison import Method
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.clusters import certify_clusters
from poisonproof_research.reproduction.outcome import (
    certify_counts,
    certify_result,
    read_result,
)
from poisonproof_research.reproduction.recipe import load_recipes


def run_facts(y_train: ArrayLike, seconds: Mapping[str, float], **more: Any) -> dict[str, Any]:
    """Return size and classes of the training set, times and software, for `Method.facts`.

    Examples
    --------
    >>> facts = run_facts([0, 2, 2], {"all": 1.23}, note="small")
    >>> facts["train_class_sizes"], facts["seconds"], facts["note"]
    ([1, 0, 2], {'all': 1.2}, 'small')
    """
    labels = np.asarray(y_train)
    return {
        "n_train": len(labels),
        "train_class_sizes": np.bincount(labels).tolist(),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "software": {
            "poisonproof": poisonproof.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        **more,
    }


# What a committed result keeps of a method: enough to compute its certificates again.

Arrays = Mapping[str, NDArray[Any]]


def make_evidence(certificates: Certificates) -> dict[str, NDArray[Any]]:
    """Return the smallest evidence of certificates: counts where they are enough, else radii."""
    if certificates.method in ("plurality", "row_votes"):
        return count_evidence(certificates)
    return radius_evidence(certificates)


def count_evidence(certificates: Certificates) -> dict[str, NDArray[Any]]:
    """Return how many members, or single rows, voted for each class: enough for their radii."""
    return {
        "counts": certificates.counts.astype(np.int32),
        "n_members": np.asarray(certificates.n_members),
        "method": np.asarray(certificates.method),
    }


def cluster_evidence(
    table: NDArray[Any], clusters: NDArray[Any], rule: str
) -> dict[str, NDArray[Any]]:
    """Return the evidence of cluster votes: labels by cluster, and clusters of test rows."""
    return {
        "table": np.asarray(table, dtype=np.int32),
        "clusters": np.asarray(clusters, dtype=np.int16),
        "rule": np.asarray(rule),
    }


def radius_evidence(certificates: Certificates) -> dict[str, NDArray[Any]]:
    """Return labels, radii and counts themselves, where votes or scores are too large to keep."""
    return {
        "labels": np.asarray(certificates.labels, dtype=np.int16),
        "radius": certificates.radius.astype(np.int32),
        "runner_up": np.asarray(certificates.runner_up, dtype=np.int16),
        "counts": certificates.counts.astype(np.int32),
        "n_members": np.asarray(certificates.n_members),
        "method": np.asarray(certificates.method),
    }


def certify_evidence(arrays: Arrays, threat: str | Threat) -> Certificates:
    """Compute certificates from vote counts, labels counted by cluster, or radii as they are.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 1], [1, 1, 1, 1]], n_classes=2)
    >>> certify_evidence(make_evidence(certificates), certificates.threat).equals(certificates)
    True
    """
    if "table" in arrays:
        rule: Any = str(arrays["rule"])
        return certify_clusters(arrays["table"], arrays["clusters"], rule, threat)
    if "radius" in arrays:
        return Certificates(
            arrays["labels"].astype(np.int64),
            arrays["radius"].astype(np.int64),
            arrays["runner_up"].astype(np.int64),
            arrays["counts"],
            parse_threat(threat),
            int(arrays["n_members"]),
            method=str(arrays["method"]),
        )
    if "counts" not in arrays:
        raise InvalidInputError(
            f"Evidence holds counts, a table of clusters or radii. Got {sorted(arrays)}."
        )
    counts, n_members = arrays["counts"], int(arrays["n_members"])
    if str(arrays["method"]) == "row_votes":
        return certify_row_votes(counts, n_members, threat)
    return certify_counts(counts, n_members, threat)


# Rows of the paper's table that were made again, as methods of the frontier.


def read_rows_of_paper(folder: Path) -> list[Method]:
    """Return the finished rows of table 1 of the paper, one folder each, as methods."""
    found = [_row(path.parent) for path in sorted(folder.glob("*/result.json"))]
    return [method for method in found if method is not None]


def _row(home: Path) -> Method | None:
    recipe = load_recipes().get(home.name)
    if recipe is None or recipe.table != "table1":
        return None
    result = read_result(home)
    if not result.is_complete:
        return None
    words = "the paper's members, trained again"
    return Method(
        recipe.id,
        recipe.data.name,
        recipe.data.title,
        recipe.method,
        f"{recipe.method.upper()}, {recipe.learner['network']}, k = {recipe.n_partitions:,}",
        f"{words}, {recipe.partitioner} partitions",
        "the paper",
        f"python -m poisonproof_research reproduce table1 --rows {recipe.id}",
        certify_result(result),
        result.labels,
        {"n_train": recipe.data.n_train},
    )
