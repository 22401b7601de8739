"""What a committed result keeps of a method: enough to compute its certificates again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import (
    Certificates,
    Threat,
    certify_row_votes,
    parse_threat,
)
from poisonproof.certificates.plurality import plurality, plurality_radius
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.clusters import certify_clusters

__all__ = [
    "certify_evidence",
    "cluster_evidence",
    "count_evidence",
    "make_evidence",
    "radius_evidence",
]

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
    """Compute certificates from evidence.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        ``counts``, ``n_members`` and ``method``; ``table``, ``clusters`` and ``rule``; or
        ``radius`` with labels, runner-ups, counts and method.
    threat : str or Threat
        The unit of the radii.

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
    wanted = parse_threat(threat)
    labels, runner_up = plurality(counts)
    radius = plurality_radius(counts, labels, runner_up, n_members) // wanted.touches
    return Certificates(labels, radius, runner_up, counts, wanted, n_members)
