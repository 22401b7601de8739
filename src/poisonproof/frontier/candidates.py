"""The methods that are compared on a user's own rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from poisonproof.certificates import Certificates, Threat, make_threat
from poisonproof.estimators import (
    ClusterVoteClassifier,
    DPAClassifier,
    FiniteAggregationClassifier,
    LinearLabelClassifier,
    NeighborVoteClassifier,
    SSDPAClassifier,
    WeightedVoteClassifier,
    certify_runoff,
)
from poisonproof.frontier.method import Method
from poisonproof.learners.closed_form import KernelRidgeClassifier
from poisonproof.learners.clusters import AssignmentRule
from poisonproof.learners.walk_weights import WalkWeights

__all__ = ["Candidate", "Comparison", "candidates", "in_rows"]

_DEGREE = 2  # buckets per member of finite aggregation: twice the training


@dataclass(frozen=True)
class Candidate:
    """A classifier to be compared.

    Attributes
    ----------
    name, family, title, settings : str
        As in `Method`.
    classifier : classifier with `fit` and `certify`
        Not fitted.
    certify : callable, optional
        What certifies the fitted classifier's predictions instead of its own `certify`.
    """

    name: str
    family: str
    title: str
    settings: str
    classifier: Any
    certify: Callable[..., Certificates] | None = None


@dataclass(frozen=True)
class Comparison:
    """The rows on which candidates are compared, labels as class indices.

    Attributes
    ----------
    name, title : str
        Of the data.
    X_train, X_test : ndarray of shape (m, ...), (n, ...)
        Samples.
    y_train, y_test : ndarray of int
        Class indices.
    command : str
        What is written down as the origin of the results.
    """

    name: str
    title: str
    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    command: str

    def run(self, candidate: Candidate) -> Method:
        """Fit a candidate and certify all test rows."""
        classifier = candidate.classifier.fit(self.X_train, self.y_train)
        certify = candidate.certify or type(classifier).certify
        certificates: Certificates = certify(classifier, self.X_test, require_declared=True)
        classes = np.asarray(classifier.classes_)
        sizes = np.bincount(self.y_train, minlength=len(classes))
        return Method(
            f"{self.name}-{candidate.name}",
            self.name,
            self.title,
            candidate.family,
            candidate.title,
            candidate.settings,
            "nothing: all settings are reported",
            self.command,
            # Classes are 0 to C - 1: values are indices.
            replace(certificates, classes=None, threat=in_rows(certificates.threat)),
            self.y_test,
            {
                "n_train": len(self.y_train),
                "train_class_sizes": sizes.tolist(),
                "degree": getattr(classifier, "degree", 1),
            },
        )


def in_rows(threat: Threat) -> Threat:
    """Count rows instead of samples: r relabelled rows are labels of at most r samples."""
    if threat.unit != "sample":
        return threat
    return make_threat(threat.name, "row", threat.touches, threat.assumptions)


def candidates(
    n_classes: int,
    member: Any,
    partitions: Sequence[int],
    cosines: Sequence[float],
    n_jobs: int | None = None,
) -> Iterator[Candidate]:
    """Yield the methods to compare.

    Parameters
    ----------
    n_classes : int
        Number of classes, C; declared.
    member : classifier
        What a member of partition aggregation is.
    partitions : sequence of int
        Numbers of partitions, k.
    cosines : sequence of float
        Thresholds of neighbour votes.
    n_jobs : int, optional
        Worker processes. Has no influence on a result.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> [c.name for c in candidates(3, DecisionTreeClassifier(), [50], [0.9])][:5]
    ['dpa-50', 'runoff-50', 'fa-50-2', 'neighbors-0.9', 'ss-dpa-50']
    """
    classes = range(n_classes)
    kind = type(member[-1] if hasattr(member, "steps") else member).__name__
    for k in partitions:
        yield Candidate(
            f"dpa-{k}",
            "dpa",
            f"DPA, k = {k:,}",
            f"members: {kind}",
            DPAClassifier(clone(member), k, classes=classes, n_jobs=n_jobs),
        )
        yield Candidate(
            f"runoff-{k}",
            "runoff",
            f"run-off, k = {k:,}",
            f"members: {kind}",
            DPAClassifier(clone(member), k, classes=classes, n_jobs=n_jobs),
            certify_runoff,
        )
        yield Candidate(
            f"fa-{k}-{_DEGREE}",
            "finite_aggregation",
            f"finite aggregation, k = {k:,}, d = {_DEGREE}",
            f"members: {kind}",
            FiniteAggregationClassifier(clone(member), k, _DEGREE, classes=classes, n_jobs=n_jobs),
        )
    for cosine in cosines:
        yield Candidate(
            f"neighbors-{cosine:g}",
            "neighbors",
            f"neighbour votes, cosine {cosine:g}",
            "columns as they are",
            NeighborVoteClassifier(None, cosine, classes=classes),
        )
    yield from _against_flips(classes, member, kind, partitions, n_jobs)


def _against_flips(
    classes: range, member: Any, kind: str, partitions: Sequence[int], n_jobs: int | None
) -> Iterator[Candidate]:
    """Yield methods against flipped labels; they may scale columns by all samples."""
    for k in partitions:
        yield Candidate(
            f"ss-dpa-{k}",
            "ss-dpa",
            f"SS-DPA, k = {k:,}",
            f"columns scaled, members: {kind}",
            SSDPAClassifier(clone(member), StandardScaler(), k, classes=classes, n_jobs=n_jobs),
        )
        ridge = KernelRidgeClassifier("rbf", gamma=None, alpha=0.1)
        yield Candidate(
            f"flips-{k}",
            "label_flips",
            f"kernel ridge, flips counted, k = {k:,}",
            "columns scaled, rbf kernel, ridge 0.1",
            LinearLabelClassifier(ridge, StandardScaler(), k, classes=classes),
        )
    yield Candidate(
        "walks",
        "label_flips",
        "walks along the graph of neighbours",
        "columns scaled, 30 neighbours, walks of 100 steps on average",
        WeightedVoteClassifier(StandardScaler(), WalkWeights(), classes=classes),
    )
    n_classes = len(classes)
    rules: list[tuple[int, AssignmentRule]] = [
        (n_classes, "one_to_one"),
        (2 * n_classes, "onto"),
        (2 * n_classes, "local"),
    ]
    for count, rule in rules:
        words = rule.replace("_", "-")
        yield Candidate(
            f"clusters-{count}-{words}",
            "clusters_local" if rule == "local" else "clusters_assigned",
            f"{count} clusters, {words}",
            "columns scaled, k-means",
            ClusterVoteClassifier(
                StandardScaler(), count, rule, clusterer="kmeans", classes=classes
            ),
        )
