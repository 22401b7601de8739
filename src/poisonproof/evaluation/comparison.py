"""Methods that can be compared on the same rows, and their certificates under a threat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import import_module
from itertools import groupby
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat, make_threat
from poisonproof.estimators.certifying import certify_runoff
from poisonproof.estimators.cluster_votes import ClusterVoteClassifier
from poisonproof.estimators.dpa import DPAClassifier, SSDPAClassifier
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.estimators.weighted_votes import WeightedVoteClassifier
from poisonproof.evaluation.accuracy import Radii, Summary, radius_if_correct, summarize
from poisonproof.exceptions import InvalidInputError, PoisonproofError
from poisonproof.members.clusters import AssignmentRule
from poisonproof.members.weights import WalkWeights
from poisonproof.progress import Progress

FAMILIES = {
    "dpa": "#1b6ca8",
    "ss-dpa": "#1f9aa5",
    "finite_aggregation": "#b07d10",
    "runoff": "#7b4fa3",
    "neighbors": "#cc4b24",
    "clusters_local": "#6a8f2f",  # each cluster by itself
    "clusters_assigned": "#17603a",  # all together
    "label_flips": "#b0427e",  # flips counted within members
}
"""Kinds of votes in the order of pages, with colours distinguishable with colour blindness."""


@dataclass(frozen=True)
class Method:
    """The certificates of one method on a test set, and its settings.

    `facts` is what else the result file says, such as seconds, and a ``note`` above the results.
    """

    id: str
    dataset: str
    dataset_title: str
    family: str
    title: str
    settings: str
    chosen_on: str
    command: str
    certificates: Certificates
    y_true: NDArray[Any]
    facts: dict[str, Any]
    train: str = ""
    """The command that trains it, if there is one."""
    python: str = ""
    """The line of Python that trains and certifies it: of `train` and `test`, read by `schema`."""

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise InvalidInputError(
                f"{self.id}: the family is one of {', '.join(FAMILIES)}. Got {self.family!r}."
            )

    @property
    def threat(self) -> str:
        """The code of the threat."""
        return self.certificates.threat.code

    @cached_property
    def radii(self) -> Radii:
        """The radii of the rows that are classified correctly."""
        return Radii.of(radius_if_correct(self.certificates, self.y_true))

    @cached_property
    def summary(self) -> Summary:
        """Accuracy, classes and medians."""
        return summarize(self.certificates, self.y_true)

    @property
    def clean(self) -> float:
        """Accuracy without an attack."""
        return float(self.radii.shares(0))

    @property
    def median(self) -> int | None:
        """The largest attack size with a certified accuracy of at least one half."""
        return self.radii.median()

    @property
    def reach(self) -> int:
        """The largest attack size that any correct test row withstands."""
        return int(self.radii.values.max(initial=0))

    def certified(self, sizes: Any) -> NDArray[np.float64]:
        """Return the certified accuracy at each attack size."""
        return self.radii.shares(sizes)


# The methods that are compared on a user's own rows.

_THREATS = ("insert_delete", "label_flip")
_CLUSTERERS = {
    "kmeans": ("k-means", "k-means"),
    "spectral": ("spectral", "cuts of the graph of 30 neighbours"),
    "mixture": ("Gaussian", "mixture of axis-aligned Gaussians"),
}
"""Names of clusterers in titles and in settings."""


@dataclass(frozen=True)
class Candidate:
    """A way to certify: by `certify`, if it is given, else by the classifier's own method."""

    name: str
    family: str
    title: str
    settings: str
    classifier: Any
    certify: Callable[..., Certificates] | None = None
    threat: str | None = None
    rule: AssignmentRule | None = None

    @property
    def trained(self) -> Any:
        """The unfitted classifier that certifies so by itself."""
        found = clone(self.classifier)
        return found if self.rule is None else found.set_params(assignment=self.rule)

    @property
    def certified_threat(self) -> str:
        """The threat that is certified."""
        return self.threat or str(self.classifier.threats[0])


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
    """Yield the methods to compare, those that share a classifier one after the other."""
    classes = range(n_classes)
    for k in partitions:
        yield from _disjoint(classes, member, k, n_jobs)
    for cosine in cosines:
        votes = NeighborVoteClassifier(None, cosine, classes=classes)
        name, title = f"neighbors-{cosine}", f"neighbour votes, cosine {cosine}"
        yield from _by_threat(Candidate(name, "neighbors", title, "columns as they are", votes))
    yield from _against_flips(classes, member, partitions, n_jobs)
    yield from _clusters(classes)


def _disjoint(classes: range, member: Any, k: int, n_jobs: int | None) -> Iterator[Candidate]:
    """Yield elections among members on partitions of their own."""
    classifier = DPAClassifier(clone(member), k, classes=classes, n_jobs=n_jobs)
    vote = Candidate(f"dpa-{k}", "dpa", f"DPA, k = {k:,}", f"members: {_kind(member)}", classifier)
    yield from _elections(vote, f"runoff-{k}", f"run-off, k = {k:,}")


def _against_flips(
    classes: range, member: Any, partitions: Sequence[int], n_jobs: int | None
) -> Iterator[Candidate]:
    """Yield methods against flipped labels; they may scale columns by all samples."""
    for k in partitions:
        votes = SSDPAClassifier(clone(member), StandardScaler(), k, classes=classes, n_jobs=n_jobs)
        settings = f"columns scaled, members: {_kind(member)}"
        vote = Candidate(f"ss-dpa-{k}", "ss-dpa", f"SS-DPA, k = {k:,}", settings, votes)
        yield from _elections(vote, f"ss-runoff-{k}", f"SS-DPA, run-off, k = {k:,}")
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
                    rule=rule,
                )


def _certify_assigned(
    rule: AssignmentRule, fitted: ClusterVoteClassifier, X: Any, **options: Any
) -> Certificates:
    """Certify by another rule: the clusters, and the labels counted in them, are the same."""
    other = copy(fitted)
    other.assignment = rule
    return other.certify(X, **options)


def _elections(vote: Candidate, name: str, title: str) -> Iterator[Candidate]:
    """Yield a vote, and the run-off `name` among its members; between two classes they agree."""
    yield from _by_threat(vote)
    if len(vote.classifier.classes) > 2:
        runoff = replace(vote, name=name, family="runoff", title=title, certify=certify_runoff)
        yield from _by_threat(runoff)


def _by_threat(candidate: Candidate) -> Iterator[Candidate]:
    """Yield a candidate against every threat compared that its classifier certifies."""
    certified = [threat for threat in candidate.classifier.threats if threat in _THREATS]
    for place, threat in enumerate(certified):
        name = f"{candidate.name}-label-flip" if place else candidate.name
        yield replace(candidate, name=name, threat=threat)


def _kind(member: Any) -> str:
    return type(member[-1] if hasattr(member, "steps") else member).__name__


# The user's rows, and what a candidate certifies on them.


@dataclass(frozen=True)
class Comparison:
    """The rows on which candidates are compared, and the command that does it."""

    name: str
    title: str
    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    command: str
    names: Sequence[str] = ()

    def fit(self, classifier: Any) -> Any:
        """Return a copy of a classifier, fitted on the training rows."""
        return clone(classifier).fit(self.X_train, self.y_train)

    def run(self, candidate: Candidate, fitted: Any) -> Method:
        """Certify all test rows with the candidate's classifier, which `fit` has fitted."""
        certify = candidate.certify or type(fitted).certify
        certificates: Certificates = certify(
            fitted, self.X_test, threat=candidate.threat, require_declared=True
        )
        # Classes are 0 to C - 1: values are indices.
        certificates = replace(certificates, classes=None, threat=in_rows(certificates.threat))
        names, truth = list(self.names), self.y_test
        if names:
            certificates, truth = certificates.with_classes(names), np.asarray(names)[truth]
        sizes = np.bincount(self.y_train, minlength=len(fitted.classes_))
        return Method(
            f"{self.name}-{candidate.name}",
            self.name,
            self.title,
            candidate.family,
            candidate.title,
            candidate.settings,
            "nothing: all settings are reported",
            self.command,
            certificates,
            truth,
            {"n_train": len(self.y_train), "train_class_sizes": sizes.tolist()},
            python=self._python(candidate),
        )

    def run_all(
        self, chosen: Sequence[Candidate], left_out: Callable[[str], None], progress: Progress
    ) -> Iterator[tuple[Candidate, Method, float]]:
        """Fit each classifier once; yield what all that share it certify, and the seconds it took.

        `left_out` is told once what cannot be run, and why.
        """
        for classifier, sharing in groupby(chosen, key=attrgetter("classifier")):
            group, problems = list(sharing), dict[str, list[str]]()
            started = perf_counter()
            fitted, fitting = None, 0.0
            for candidate in group:
                try:
                    if fitted is None:
                        fitted = self.fit(classifier)
                        fitting = perf_counter() - started
                    started = perf_counter()
                    method = self.run(candidate, fitted)
                except (PoisonproofError, ValueError) as error:
                    failed = [candidate] if fitted is not None else group
                    titles = [candidate.title for candidate in failed]
                    problems.setdefault(str(error), []).extend(titles)
                    if fitted is None:
                        break
                else:
                    yield candidate, method, fitting + perf_counter() - started
            for reason, titles in problems.items():
                left_out(f"Left out: {'; '.join(dict.fromkeys(titles))}. {reason}")
            progress.advance(len(group))

    def _python(self, candidate: Candidate) -> str:
        """Return the line that trains and certifies a candidate."""
        named = candidate.trained.set_params(classes=None, schema=_Schema())
        if "n_jobs" in named.get_params(deep=False):
            named.set_params(n_jobs=None)
        with config_context(print_changed_only=True):
            fit = f"clf = {' '.join(repr(named).split())}.fit(train)"
        how = "certify_runoff(clf, test" if candidate.family == "runoff" else "clf.certify(test"
        return f"{fit}; {how}, threat={candidate.certified_threat!r})"


class _Schema:
    """Stands for the user's schema where a classifier is printed."""

    def __repr__(self) -> str:
        return "schema"


def imports(things: Iterable[Any]) -> list[str]:
    """Return the lines that import the classes of which these estimators are made.

    >>> imports([SSDPAClassifier(None, StandardScaler())])
    ['from poisonproof import SSDPAClassifier', 'from sklearn.preprocessing import StandardScaler']
    """
    made = (value for thing in things for value in (thing, *thing.get_params().values()))
    names: dict[str, set[str]] = {}
    for kind in {type(value) for value in made} - {type(None)}:
        if kind.__module__ != "builtins":
            names.setdefault(_home(kind), set()).add(kind.__name__)
    return [
        f"from {home} import {', '.join(sorted(found))}" for home, found in sorted(names.items())
    ]


def _home(kind: type) -> str:
    """Return the first package on the way to a class that exports it."""
    parts = kind.__module__.split(".")
    homes = (".".join(parts[: length + 1]) for length in range(len(parts)))
    return next(home for home in homes if getattr(import_module(home), kind.__name__, None) is kind)
