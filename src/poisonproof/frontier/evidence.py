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
    certify_votes,
    parse_threat,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.clusters import certify_clusters

__all__ = ["certify_evidence", "cluster_evidence", "count_evidence", "radius_evidence"]

Arrays = Mapping[str, NDArray[Any]]


def count_evidence(certificates: Certificates) -> dict[str, NDArray[Any]]:
    """Return the evidence of votes of single rows: how many rows of each class voted."""
    counts = certificates.counts.astype(np.int32)
    return {"counts": counts, "n_members": np.asarray(certificates.n_members)}


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
        ``votes`` and ``n_classes``; ``counts`` and ``n_members``; ``table``, ``clusters`` and
        ``rule``; or ``radius`` with labels.
    threat : str or Threat
        The unit of the radii.

    Examples
    --------
    >>> arrays = {"counts": np.array([[5, 2]]), "n_members": np.asarray(9)}
    >>> certify_evidence(arrays, "insert_delete").radius
    array([3])
    """
    if "votes" in arrays:
        return certify_votes(arrays["votes"], int(arrays["n_classes"]), threat)
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
    if "counts" in arrays:
        return certify_row_votes(arrays["counts"], int(arrays["n_members"]), threat)
    raise InvalidInputError(
        f"Evidence holds votes, counts, a table of clusters or radii. Got {sorted(arrays)}."
    )
