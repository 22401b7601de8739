"""Facts about a model in a report: its identity, its counts, and the rows worth a look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from poisonproof.certificates.result import Certificates, GridCertificates, class_indices
from poisonproof.certificates.threats import Threat, unit_noun
from poisonproof.estimators.saving import model_fingerprint
from poisonproof.estimators.training_set import seen_rows
from poisonproof.evaluation.accuracy import Tally, seen_sentence
from poisonproof.evaluation.surface import Surface
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition.grids import Grid
from poisonproof.report.samples import Sample, Samples, make_samples, visible
from poisonproof.store.manifest import environment_here


@dataclass(frozen=True)
class Identity:
    """The facts that decide a model's bits.

    Attributes
    ----------
    fingerprint : str
        The model's fingerprint, as in its manifest.
    facts : tuple of (str, str)
        What was trained and on how many rows, in words.
    environment : tuple of (str, str)
        Software and CPU that computed the certificates.
    """

    fingerprint: str
    facts: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]


def identify(classifier: Any) -> Identity:
    """Describe a fitted classifier."""
    sizes = getattr(classifier, "partition_sizes_", None)
    features = "none" if classifier.features is None else _one_line(classifier.features)
    schema = classifier.schema_
    if schema is not None:
        features = f"by the schema {schema.frozen}" if schema.frozen else "by the types of a frame"
    n_groups, declared = classifier.n_groups_, classifier.declared_classes is not None
    facts = {"Method": type(classifier).__name__}
    if sizes is None:  # training rows vote
        facts |= _settings(classifier)
    else:
        rule = classifier.partitioner_
        facts |= {"Member": _one_line(classifier._template()), "Members": f"{len(sizes):,}"}
        facts |= {"Partitioner": _one_line(getattr(rule, "base", rule))}
        if isinstance(rule, Grid):
            facts |= {"Blocks of features": str(rule.blocks), "Vote last": rule.outer}
    counted = {}
    if n_groups:
        counted = {unit_noun(classifier.partitioner_.unit).capitalize(): f"{n_groups:,}"}
    n_rows = classifier.n_rows_
    facts |= {
        "Features": features,
        "Label set": "declared" if declared else "taken from the labels",
        "Training rows": f"{n_rows:,}",
        **counted,
        "Rows left out": f"{classifier.n_dropped_:,}",
    }
    if sizes is not None:
        checked = f"{getattr(classifier, 'n_self_checked_', 0):,}"
        facts |= {"Random seed": str(classifier.random_state)}
        facts |= {"Members that failed": f"{len(classifier.failures_):,}"}
        facts |= {"Members trained twice (self-check)": checked}
    return Identity(model_fingerprint(classifier), tuple(facts.items()), _environment())


def _settings(classifier: Any) -> dict[str, str]:
    """Return the parameters that were set, in words; the page has lines of its own for others."""
    return {
        name.replace("_", " ").capitalize(): value if type(value) is str else _one_line(value)
        for name, value in classifier.get_params(deep=False).items()
        if value is not None and name not in ("classes", "features", "schema")
    }


def certificates_digest(certificates: Certificates) -> str:
    """Return the SHA-256 of what certificates say, whatever file they were stored in.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> votes = [[0, 0, 1], [1, 1, 1]]
    >>> one, other = certify_votes(votes, 2), certify_votes(votes, 2, threat="replace")
    >>> certificates_digest(one) == certificates_digest(one.with_classes(["ham", "spam"])[:])
    False
    >>> certificates_digest(one) == certificates_digest(other)
    False
    """
    classes = certificates.classes
    head = {
        "threat": certificates.threat.to_dict(),
        "members": certificates.n_members,
        "method": certificates.method,
        "classes": None if classes is None else [str(label) for label in classes],
    }
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    labels = class_indices(certificates.labels, classes, certificates.n_classes, name="labels")
    arrays = [labels, certificates.radius, certificates.counts]
    if isinstance(certificates, GridCertificates):
        digest.update(f"{certificates.outer} {certificates.rows.shape[1]}".encode())
        arrays.append(certificates.rows)
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


def _environment() -> tuple[tuple[str, str], ...]:
    found = environment_here()
    packages = [f"{name} {version}" for name, version in found["packages"].items() if version]
    return (
        ("Python", str(found["python"])),
        ("Packages", ", ".join(packages)),
        ("Linear algebra", "; ".join(found["blas"]) or "none found"),
        ("System", f"{found['system']}, {found['machine']}"),
        ("CPU instruction set", " ".join(found["instructions"])),
    )


def _one_line(thing: object) -> str:
    return " ".join(repr(thing).split())


def percent(part: int, whole: int) -> str:
    """Return a share with one decimal, rounded half up; 0 and 100 are said only of none and all."""
    if not whole:
        return "-"
    tenths = (2000 * part + whole) // (2 * whole)
    if 0 < part < whole:
        tenths = min(max(tenths, 1), 999)
    return f"{tenths // 10}.{tenths % 10} %"


@dataclass(frozen=True, eq=False)
class Evidence:
    """One model on one test set.

    Attributes
    ----------
    name : str
        What the page calls the model.
    certificates : Certificates
        Untargeted certificates of n test rows.
    y_true : ndarray of shape (n,), optional
        True labels, in the form of ``certificates.labels``. Without them the report counts
        predictions that cannot change, right or wrong.
    samples : Samples, optional
        The n test rows, to show some of them.
    partition_sizes : ndarray of int, shape (k,), optional
        Training rows per partition, or per cell of a grid.
    grid : Grid, optional
        The partitions and blocks of a grid.
    identity : Identity, optional
        Which model this is.
    places : ndarray of shape (n,), optional
        Where each test row stands in its file; by default rows are numbered from 0.
    place_unit : str, default="row"
        What the places count: rows, lines or files.
    n_groups : int, optional
        Contributors to the training rows, where certificates count them.
    seen : str, default=""
        What is known, in words, about test rows that the model was trained on.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> evidence = Evidence("tiny", certify_votes([[0, 0, 0], [1, 0, 1]], 2), np.array([0, 1]))
    >>> evidence.tally.kept.at(1), evidence.largest
    (1, 1)
    """

    name: str
    certificates: Certificates
    y_true: NDArray[Any] | None = None
    samples: Samples | None = None
    partition_sizes: NDArray[Any] | None = None
    grid: Grid | None = None
    identity: Identity | None = None
    places: NDArray[Any] | None = None
    place_unit: str = "row"
    n_groups: int | None = None
    seen: str = ""

    def __post_init__(self) -> None:
        if self.certificates.target is not None:
            raise GuaranteeError(
                "A report speaks of predictions that stay as they are, which certificates against "
                "one target label do not prove. Certify without target."
            )
        n_rows = len(self.certificates)
        if not n_rows:
            raise InvalidInputError(f"There is nothing to report: {self.name!r} has no test rows.")
        if self.samples is not None and len(self.samples) != n_rows:
            raise InvalidInputError(
                f"{self.name!r} has {n_rows} certificates but {len(self.samples)} samples."
            )

    @classmethod
    def of(
        cls,
        classifier: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        name: str = "model",
        threat: str | Threat | None = None,
        certify: Callable[..., Certificates] | None = None,
        require_declared: bool = False,
        samples: Samples | None = None,
        places: NDArray[Any] | None = None,
        place_unit: str = "row",
        seen: str | None = None,
        image_shape: tuple[int, int, int] | None = None,
    ) -> Self:
        """Certify the rows of `X` with a fitted classifier, and collect the rest.

        Rows that it was trained on are left out, where it has its training rows, unless `seen`
        says what is known of them.

        Parameters
        ----------
        classifier : DPAClassifier, NeighborVoteClassifier or another
            Fitted.
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Test rows.
        y : array-like of shape (n,), optional
            True labels.
        name : str
            What the page calls the model.
        threat, require_declared
            As in ``certify``.
        certify : callable, optional
            `certify_runoff`, for the labels and radii of a run-off.
        samples, places, place_unit, seen
            As in the attributes, where `X` alone does not say how a row looks and where it stands.
        image_shape
            How to show the rows of `X`, if they are images; see `make_samples`.
        """
        if samples is None:
            samples = make_samples(X, image_shape=image_shape)
        truth = None if y is None else np.asarray(y)
        certify = certify or type(classifier).certify
        if seen is None:
            trained_on = seen_rows(classifier, X)
            count = None if trained_on is None else int(trained_on.sum())
            seen = seen_sentence(count, len(samples))
            if trained_on is not None and 0 < int(trained_on.sum()) < len(samples):
                kept = np.flatnonzero(~trained_on)
                places = kept if places is None else np.asarray(places)[kept]
                X, samples = _safe_indexing(X, kept), samples.only(kept)
                truth = None if truth is None else truth[kept]
        rule = getattr(classifier, "partitioner_", None)
        return cls(
            name=name,
            certificates=certify(classifier, X, threat=threat, require_declared=require_declared),
            y_true=truth,
            samples=samples,
            partition_sizes=getattr(classifier, "partition_sizes_", None),
            grid=rule if isinstance(rule, Grid) else None,
            identity=identify(classifier),
            places=places,
            place_unit=place_unit,
            n_groups=classifier.n_groups_,
            seen=seen,
        )

    @cached_property
    def tally(self) -> Tally:
        """The number of rows that withstand each attack size."""
        return Tally.of(self.certificates, self.y_true)

    @cached_property
    def surface(self) -> Surface | None:
        """Of a grid, the rows that withstand each attack on rows and features at once."""
        if self.grid is None or not isinstance(self.certificates, GridCertificates):
            return None
        return Surface.of(self.certificates, self.grid.blocks, self.y_true)

    @property
    def largest(self) -> int:
        """The largest radius."""
        return int(self.certificates.radius.max())

    @property
    def n_training_units(self) -> int | None:
        """Training rows, or contributors, days, ... where attacks count those; None if unknown."""
        threat = self.certificates.threat
        if threat.by_group:
            return self.n_groups
        if threat.unit != "row" or self.partition_sizes is None:
            return None
        sizes = self.partition_sizes
        return int(sizes.sum()) if self.grid is None else self.grid.n_rows(sizes)


# The test rows worth a look: those that an attacker turns first, and those that hold longest.

_MOST_BARS = 3


@dataclass(frozen=True)
class VoteBar:
    """The votes for one label, None for abstentions: the winner, its closest rival or another."""

    label: str | None
    count: int
    role: str


@dataclass(frozen=True)
class ShownRow:
    """A test row with its votes: winner, runner-up and the next label, then abstentions."""

    place: str
    predicted: str
    truth: str | None
    radius: int
    bars: tuple[VoteBar, ...]
    sample: Sample | None
    n_voters: int
    """The length of a full bar."""
    movable: int
    """Votes that one unit of attack moves from winner to runner-up; 0 where no plain vote is."""


def extreme_rows(evidence: Evidence, count: int) -> tuple[list[ShownRow], list[ShownRow]]:
    """Return the rows with the smallest and with the largest radius, at most `count` each."""
    radius = evidence.certificates.radius
    by_radius = np.argsort(radius, kind="stable")
    least = by_radius[:count]
    most = np.argsort(-radius, kind="stable")[: min(count, len(radius) - len(least))]
    return [_shown_row(evidence, int(i)) for i in least], [
        _shown_row(evidence, int(i)) for i in most
    ]


def _shown_row(evidence: Evidence, row: int) -> ShownRow:
    certificates = evidence.certificates
    classes, n_classes = certificates.classes, certificates.n_classes
    winner, rival = (
        int(class_indices(values[row : row + 1], classes, n_classes)[0])
        for values in (certificates.labels, certificates.runner_up)
    )
    counts = certificates.counts[row]
    names = evidence.tally.labels
    others = [int(i) for i in np.argsort(-counts, kind="stable") if i not in (winner, rival)]
    bars = [VoteBar(names[winner], int(counts[winner]), "winner")]
    if rival != winner:
        bars.append(VoteBar(names[rival], int(counts[rival]), "rival"))
    bars += [
        VoteBar(names[i], int(counts[i]), "other")
        for i in others[: _MOST_BARS - len(bars)]
        if counts[i]
    ]
    given = int(counts.sum())
    n_voters = given if certificates.rows_vote else certificates.n_members
    if abstained := n_voters - given:
        bars.append(VoteBar(None, abstained, "other"))
    place = f"{row:,}" if evidence.places is None else visible(str(evidence.places[row]), 80)
    return ShownRow(
        place=f"{evidence.place_unit.capitalize()} {place}",
        predicted=names[winner],
        truth=None if evidence.y_true is None else str(np.asarray(evidence.y_true)[row]),
        radius=int(certificates.radius[row]),
        bars=tuple(bars),
        sample=None if evidence.samples is None else evidence.samples.show(row),
        n_voters=max(n_voters, 1),
        movable=certificates.threat.touches if certificates.method == "plurality" else 0,
    )
