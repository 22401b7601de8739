"""The methods that are compared on a user's own rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sklearn.base import clone
from sklearn.ensemble import BaseEnsemble
from sklearn.preprocessing import StandardScaler
from sklearn.tree import BaseDecisionTree

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
from poisonproof.learners.averaging import SeedAverage
from poisonproof.learners.closed_form import KernelRidgeClassifier
from poisonproof.learners.clusters import AssignmentRule
from poisonproof.learners.walk_weights import WalkWeights

__all__ = ["Candidate", "candidates", "in_rows"]

_THREATS = ("insert_delete", "label_flip")
_COPIES = 4  # of a member, averaged: four times the training
_CLUSTERERS = {
    "kmeans": ("k-means", "k-means"),
    "spectral": ("spectral", "cuts of the graph of 30 neighbours"),
    "mixture": ("Gaussian", "mixture of axis-aligned Gaussians"),
}
"""What clusterers are called in titles and in settings."""


@dataclass(frozen=True)
class Candidate:
    """A way to certify the predictions of a classifier, to be compared with others.

    Attributes
    ----------
    name, family, title, settings : str
        As in `Method`.
    classifier : classifier with `fit` and `certify`
        Not fitted. Candidates that follow each other may share one, which is then fitted once.
    certify : callable, optional
        What certifies the fitted classifier's predictions instead of its own `certify`.
    threat : str, optional
        What the attacker does; by default the first threat that the classifier certifies.
    """

    name: str
    family: str
    title: str
    settings: str
    classifier: Any
    certify: Callable[..., Certificates] | None = None
    threat: str | None = None


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
    degree: int = 2,
    n_jobs: int | None = None,
) -> Iterator[Candidate]:
    """Yield the methods to compare, those that share a classifier one after the other.

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
    degree : int, default=2
        How many members a row reaches in finite aggregation, d: d times the training.
    n_jobs : int, optional
        Worker processes. Has no influence on a result.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> [c.name for c in candidates(3, GaussianNB(), [50], [0.9])][:5]
    ['dpa-50', 'dpa-50-label-flip', 'runoff-50', 'runoff-50-label-flip', 'fa-50-2']
    """
    classes = range(n_classes)
    for k in partitions:
        yield from _disjoint(classes, member, k, n_jobs)
        sizes = f"k = {k:,}, d = {degree}"
        shared = FiniteAggregationClassifier(
            clone(member), k, degree, classes=classes, n_jobs=n_jobs
        )
        yield from _elections(
            Candidate(
                f"fa-{k}-{degree}",
                "finite_aggregation",
                f"finite aggregation, {sizes}",
                f"members: {_kind(member)}",
                shared,
            ),
            f"fa-runoff-{k}-{degree}",
            f"run-off on shared buckets, {sizes}",
        )
    for cosine in cosines:
        votes = NeighborVoteClassifier(None, cosine, classes=classes)
        yield from _by_threat(
            Candidate(
                f"neighbors-{cosine}",
                "neighbors",
                f"neighbour votes, cosine {cosine}",
                "columns as they are",
                votes,
            )
        )
    yield from _against_flips(classes, member, partitions, n_jobs)
    yield from _clusters(classes)


def _disjoint(classes: range, member: Any, k: int, n_jobs: int | None) -> Iterator[Candidate]:
    """Yield votes of members on partitions of their own: one each, or copies that are averaged."""
    ways = [(member, "", "")]
    if _draws(member):
        average = SeedAverage(clone(member), _COPIES)
        ways.append((average, "average-", f"{_COPIES} seeds averaged, "))
    for template, short, words in ways:
        yield from _elections(
            Candidate(
                f"dpa-{short}{k}",
                "dpa",
                f"DPA, {words}k = {k:,}",
                f"members: {words}{_kind(member)}",
                DPAClassifier(clone(template), k, classes=classes, n_jobs=n_jobs),
            ),
            f"runoff-{short}{k}",
            f"run-off, {words}k = {k:,}",
        )


def _against_flips(
    classes: range, member: Any, partitions: Sequence[int], n_jobs: int | None
) -> Iterator[Candidate]:
    """Yield methods against flipped labels; they may scale columns by all samples."""
    for k in partitions:
        yield from _elections(
            Candidate(
                f"ss-dpa-{k}",
                "ss-dpa",
                f"SS-DPA, k = {k:,}",
                f"columns scaled, members: {_kind(member)}",
                SSDPAClassifier(clone(member), StandardScaler(), k, classes=classes, n_jobs=n_jobs),
            ),
            f"ss-runoff-{k}",
            f"SS-DPA, run-off, k = {k:,}",
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


def _clusters(classes: range) -> Iterator[Candidate]:
    """Yield cluster votes; samples are clustered once for all rules that name as many clusters."""
    few, many = len(classes), 2 * len(classes)
    rules: dict[int, list[AssignmentRule]] = {few: ["one_to_one"], many: ["onto", "local"]}
    for clusterer, (kind, settings) in _CLUSTERERS.items():
        for count, names in rules.items():
            votes = ClusterVoteClassifier(
                StandardScaler(), count, names[0], clusterer=clusterer, classes=classes
            )
            for rule in names:
                words = rule.replace("_", "-")
                yield Candidate(
                    f"{clusterer}-{count}-{words}",
                    "clusters_local" if rule == "local" else "clusters_assigned",
                    f"{count} {kind} clusters, {words}",
                    f"columns scaled, {settings}",
                    votes,
                    partial(_certify_assigned, rule),
                )


def _certify_assigned(
    rule: AssignmentRule, fitted: ClusterVoteClassifier, X: Any, **options: Any
) -> Certificates:
    """Certify by another rule: the clusters, and the labels counted in them, are the same."""
    other = copy(fitted)
    other.assignment = rule
    return other.certify(X, **options)


def _elections(vote: Candidate, name: str, title: str) -> Iterator[Candidate]:
    """Yield a vote, and the run-off `name` among its members."""
    runoff = replace(vote, name=name, family="runoff", title=title, certify=certify_runoff)
    yield from _by_threat(vote)
    yield from _by_threat(runoff)


def _by_threat(candidate: Candidate) -> Iterator[Candidate]:
    """Yield a candidate against every threat compared that its classifier certifies."""
    certified = [threat for threat in candidate.classifier.threats if threat in _THREATS]
    for place, threat in enumerate(certified):
        name, settings = candidate.name, candidate.settings
        if place:
            name, settings = f"{name}-label-flip", f"{settings}; against flipped labels"
        yield replace(candidate, name=name, settings=settings, threat=threat)


def _kind(member: Any) -> str:
    return type(_last_step(member)).__name__


def _draws(member: Any) -> bool:
    """Say whether a member draws random numbers, cheaply enough for copies of it: a tree does."""
    return isinstance(_last_step(member), BaseDecisionTree | BaseEnsemble)


def _last_step(member: Any) -> Any:
    return member[-1] if hasattr(member, "steps") else member
