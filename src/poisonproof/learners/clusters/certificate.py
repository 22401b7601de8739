"""Certificates of cluster votes against flipped labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import TRUSTED_SAMPLES, Certificates, Threat, make_threat
from poisonproof.certificates.threats import parse_threat
from poisonproof.exceptions import GuaranteeError
from poisonproof.learners.clusters.assignment import AssignmentRule, assignment_radius

__all__ = ["certify_clusters"]


def certify_clusters(
    table: NDArray[Any],
    clusters: NDArray[Any],
    rule: AssignmentRule = "local",
    threat: str | Threat = "label_flip",
    target: int | None = None,
) -> Certificates:
    """Certify the labels that an assignment of clusters to classes gives to test rows.

    Parameters
    ----------
    table : ndarray of int, shape (K, C)
        Training rows of every cluster by label.
    clusters : ndarray of int, shape (n,)
        The cluster of every test row.
    rule : {"local", "one_to_one", "onto"}
        Which assignments are admissible; see `best_assignment`.
    threat : str or Threat
        Label flips, the only threat against which clusters stand.
    target : int, optional
        Certify against this label only.

    Returns
    -------
    Certificates
        With class indices as labels. `counts` are those of the row's cluster.

    Assumes
    -------
    Clusters are a function of the samples alone, which the attacker cannot touch.

    Examples
    --------
    >>> certificates = certify_clusters(np.array([[5, 2], [1, 6]]), np.array([0, 1]), "one_to_one")
    >>> certificates.labels, certificates.radius
    (array([0, 1]), array([4, 4]))
    """
    wanted = parse_threat(threat)
    if wanted.name != "label_flip" or wanted.unit != "row":
        raise GuaranteeError(
            "Clusters are learned from all samples, so they certify rows relabelled only, but "
            f"{wanted.plural} were asked. Use DPAClassifier or NeighborVoteClassifier."
        )
    labels, radius, runner_up = assignment_radius(table, rule, target)
    return Certificates(
        labels[clusters],
        radius[clusters],
        runner_up[clusters],
        np.asarray(table, dtype=np.int64)[clusters],
        make_threat("label_flip", "row", 2, (*wanted.assumptions, TRUSTED_SAMPLES)),
        int(table.sum()),
        target=None if target is None else np.full(len(clusters), target),
        method="row_votes" if rule == "local" else "cluster_assignment",
    )
