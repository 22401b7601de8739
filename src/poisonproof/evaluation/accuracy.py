"""Certified accuracy: certificates compared with the labels of a test set.

Accuracy measured on rows of an untrusted source is itself untrusted; the certificates are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.result import Certificates, class_indices
from poisonproof.certificates.threats import Threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError


def certified_accuracy(
    certificates: Certificates, y_true: ArrayLike, sizes: ArrayLike
) -> NDArray[np.float64]:
    """Return the share of rows that are correct and certified, at each attack size.

    Parameters
    ----------
    certificates : Certificates
        Untargeted certificates of n test rows.
    y_true : array-like of shape (n,)
        True labels, in the form of ``certificates.labels``.
    sizes : int or array-like of int
        Attack sizes in units of ``certificates.threat``.

    Returns
    -------
    ndarray of the shape of `sizes`
        Shares from 0 to 1.

    Guarantee
    ---------
    No attack of a given size pushes the accuracy on these rows below its value here.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0]], n_classes=2)
    >>> certified_accuracy(certificates, [0, 1], sizes=[0, 1, 2, 3])
    array([1. , 0.5, 0.5, 0. ])
    """
    return Radii.of(radius_if_correct(certificates, y_true)).shares(sizes)


def clean_accuracy(certificates: Certificates, y_true: ArrayLike) -> float:
    """Return the accuracy without an attack.

    Parameters
    ----------
    certificates : Certificates
        Untargeted certificates of n test rows.
    y_true : array-like of shape (n,)
        True labels, in the form of ``certificates.labels``.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> clean_accuracy(certify_votes([[0, 0, 1], [1, 1, 1]], n_classes=2), [0, 0])
    0.5
    """
    return float(certified_accuracy(certificates, y_true, 0))


def median_radius(certificates: Certificates, y_true: ArrayLike) -> int | None:
    """Return the largest attack size with a certified accuracy of at least one half.

    None if fewer than half of the rows are correct at all. Compared in rows, never in rounded
    shares.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0]], n_classes=2)
    >>> median_radius(certificates, [0, 1]), median_radius(certificates, [0, 0])
    (2, 2)
    >>> median_radius(certificates, [1, 0]) is None
    True
    """
    return Radii.of(radius_if_correct(certificates, y_true)).median()


def base_accuracy(certificates: Certificates, y_true: ArrayLike) -> float:
    """Return the mean accuracy of the single members; an abstention counts as wrong.

    A member is right on a row when it is one of those that voted for the true label, so the vote
    counts are enough.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> base_accuracy(certify_votes([[0, 0, 1, -1], [1, 1, 1, 0]], n_classes=2), [0, 1])
    0.625
    """
    truth = _true_indices(certificates, y_true)
    right = int(certificates.counts[np.arange(len(truth)), truth].sum(dtype=np.int64))
    return right / (len(truth) * certificates.n_members)


def protected_share(certificates: Certificates, sizes: ArrayLike) -> NDArray[np.float64]:
    """Return the share of predictions, right or wrong, that each attack size cannot change.

    Needs no test labels. For targeted certificates it is the share of predictions that an attack
    of that size cannot turn into the target.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> protected_share(certify_votes([[0, 0, 0, 0], [1, 1, 1, 1]], n_classes=2), [1, 2])
    array([1. , 0.5])
    """
    _check_rows(certificates)
    return Radii.of(certificates.radius).shares(sizes)


def radius_if_correct(certificates: Certificates, y_true: ArrayLike) -> NDArray[np.int64]:
    """Return the radius of every row whose label is correct, and -1 elsewhere."""
    if certificates.target is not None:
        raise GuaranteeError(
            "Targeted certificates do not prove that a correct label stays: the attack may end in "
            "a label other than the target. Certify without target, or use protected_share."
        )
    truth = _true_indices(certificates, y_true)
    labels = class_indices(
        certificates.labels, certificates.classes, certificates.n_classes, name="labels"
    )
    return np.where(labels == truth, certificates.radius, -1)


def check_sizes(sizes: ArrayLike) -> NDArray[np.int64]:
    """Return attack sizes as integers, or raise if one is negative or no integer."""
    array = np.asarray(sizes)
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidInputError(f"Attack sizes are integers. Got {sizes!r} of dtype {array.dtype}.")
    if int(array.min()) < 0:
        raise InvalidInputError(f"Attack sizes start at 0. Got {int(array.min())}.")
    return array.astype(np.int64)


def _true_indices(certificates: Certificates, y_true: ArrayLike) -> NDArray[np.int64]:
    _check_rows(certificates)
    truth = class_indices(y_true, certificates.classes, certificates.n_classes)
    n_rows = len(certificates.labels)
    if len(truth) != n_rows:
        raise InvalidInputError(
            f"y_true must have one label per certificate ({n_rows}). Got {len(truth)}."
        )
    return truth


def _check_rows(certificates: Certificates) -> None:
    if len(certificates.labels) == 0:
        raise InvalidInputError("There are no rows to evaluate: the certificates are empty.")


# How many test rows withstand each attack size, in all and class by class.


@dataclass(frozen=True, eq=False)
class Radii:
    """The radii that count among those of `n_rows` rows, sorted; the others withstand nothing."""

    values: NDArray[np.int64]
    n_rows: int

    @classmethod
    def of(cls, radius: NDArray[np.int64]) -> Self:
        """Keep the radii that are not -1."""
        return cls(np.sort(radius[radius >= 0]), len(radius))

    def at(self, size: int) -> int:
        """Return how many rows withstand an attack of `size` units."""
        return int(len(self.values) - np.searchsorted(self.values, size, side="left"))

    def shares(self, sizes: ArrayLike) -> NDArray[np.float64]:
        """Return the share of rows that withstand each attack size."""
        places = np.searchsorted(self.values, check_sizes(sizes), side="left")
        return (len(self.values) - places) / self.n_rows

    def median(self) -> int | None:
        """Return the largest size that at least half of the rows withstand."""
        half = (self.n_rows + 1) // 2
        return int(self.values[-half]) if 0 < half <= len(self.values) else None

    def runs(self) -> list[int]:
        """Return radius, count, radius, count, ...: a short form for the page."""
        radius, count = np.unique(self.values, return_counts=True)
        return [int(number) for pair in zip(radius, count, strict=True) for number in pair]


@dataclass(frozen=True, eq=False)
class Tally:
    """The radii of one test set, in all and class by class."""

    kept: Radii
    """Rows with the correct label, or all of them where no true label is known."""
    fixed: Radii
    """Every prediction, right or wrong."""
    labels: tuple[str, ...]
    by_class: tuple[Radii, ...]
    """`kept`, by true class; by predicted class where no true label is known."""

    @classmethod
    def of(cls, certificates: Certificates, y_true: ArrayLike | None) -> Self:
        """Count the certificates of a test set."""
        radius = certificates.radius
        kept = radius if y_true is None else radius_if_correct(certificates, y_true)
        member_of = certificates.labels if y_true is None else np.asarray(y_true)
        classes = certificates.classes
        values: Any = range(certificates.n_classes) if classes is None else classes.tolist()
        return cls(
            kept=Radii.of(kept),
            fixed=Radii.of(radius),
            labels=tuple(str(value) for value in values),
            by_class=tuple(Radii.of(kept[member_of == value]) for value in values),
        )

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have rows."""
        return float(np.mean([found.shares(0) for found in self.by_class if found.n_rows]))

    def to_json(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        return {
            "kept": [self.kept.n_rows, self.kept.runs()],
            "fixed": [self.fixed.n_rows, self.fixed.runs()],
            "classes": [[radii.n_rows, radii.runs()] for radii in self.by_class],
        }


# All of it for one model, in numbers and in words.


@dataclass(frozen=True)
class ClassRecall:
    """The test rows of one class: how many are classified correctly, and stay so.

    Attributes
    ----------
    label : str
        The class.
    n_rows : int
        Its test rows.
    recall : float
        The share of them that is classified correctly.
    certified : float
        The share that stays correct under attacks of the model's median radius.
    median_radius : int or None
        Largest attack size that at least half of them withstand.
    """

    label: str
    n_rows: int
    recall: float
    certified: float
    median_radius: int | None


LEAST_LEARNED = 0.1
"""Below this share of avoided errors a summary says that a model has learned next to nothing."""

LITTLE_LEARNED = (
    "The model is hardly better than that, so the attacks it withstands say little: a model that "
    "always predicts one class withstands every attack."
)


@dataclass(frozen=True)
class Summary:
    """The evaluation of one model on one test set.

    Attributes
    ----------
    threat : Threat
        The unit of every attack size below.
    n_rows, n_members, n_classes : int
        Test rows, members and classes.
    clean_accuracy : float
        Accuracy without an attack.
    base_accuracy : float
        Mean accuracy of the single members.
    majority_share : float
        Accuracy of always predicting the commonest true label.
    balanced_accuracy : float
        Mean recall of the classes that have test rows.
    median_radius : int or None
        Largest attack size with a certified accuracy of at least one half.
    median_of_all : int
        Largest attack size that at least half of the predictions, right or wrong, withstand.
    classes : tuple of ClassRecall
        Each class that has test rows.
    sizes, certified : tuple
        Attack sizes and the certified accuracy at each.
    members_vote : bool
        Whether there are members that could predict alone: not where single rows vote, or all
        rows once, nor in a grid, where members elect those that vote.
    """

    threat: Threat
    n_rows: int
    n_members: int
    n_classes: int
    clean_accuracy: float
    base_accuracy: float
    majority_share: float
    balanced_accuracy: float
    median_radius: int | None
    median_of_all: int
    classes: tuple[ClassRecall, ...]
    sizes: tuple[int, ...]
    certified: tuple[float, ...]
    members_vote: bool = True

    def sentences(self, n_groups: int | None = None) -> tuple[str, ...]:
        """Return the summary in plain words; the training rows are of `n_groups` units."""
        alone = (
            f"; one of the {self.n_members:,} members alone gets {_percent(self.base_accuracy)} "
            "right on average"
        )
        return (
            f"{_percent(self.clean_accuracy)} of the {self.n_rows:,} test rows are classified "
            f"correctly{alone if self.members_vote else ''}.",
            *self.standing,
            *self._medians(n_groups),
            *(f"Assumed: {sentence}." for sentence in self.threat.assumptions),
        )

    @property
    def standing(self) -> tuple[str, ...]:
        """In words, what the accuracy is to be held against, and whether it is hardly better."""
        base = (
            f"Always predicting the commonest class gets {_percent(self.majority_share)} right. "
            f"The balanced accuracy is {_percent(self.balanced_accuracy)}."
        )
        return (base,) if self.worthy else (base, LITTLE_LEARNED)

    @property
    def worthy(self) -> bool:
        """Whether the model is clearly better than always predicting the commonest class."""
        return self.learned >= LEAST_LEARNED

    @property
    def learned(self) -> float:
        """The share of the errors of always predicting the commonest class that are avoided."""
        base = self.majority_share
        return (self.clean_accuracy - base) / (1 - base) if base < 1 else 1.0

    def _medians(self, n_groups: int | None) -> tuple[str, ...]:
        words = median_sentence(self.threat, self.median_radius, n_groups=n_groups)
        if not self.median_radius:
            return (words,)
        both = f"{self.median_of_all:,} (all predictions), {self.median_radius:,} (stay correct)"
        return (f"Median radius: {both}. {words}",)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        values = {**vars(self), "threat": self.threat.to_dict()}
        curve = zip(values.pop("sizes"), values.pop("certified"), strict=True)
        del values["members_vote"]
        values["classes"] = [vars(found) for found in self.classes]
        shares = [{"size": size, "accuracy": share} for size, share in curve]
        return {**values, "certified_accuracy": shares}

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def summarize(
    certificates: Certificates, y_true: ArrayLike, sizes: ArrayLike | None = None
) -> Summary:
    """Evaluate certificates on a test set.

    Parameters
    ----------
    certificates : Certificates
        Untargeted certificates of n test rows.
    y_true : array-like of shape (n,)
        True labels, in the form of ``certificates.labels``.
    sizes : array-like of int, optional
        Attack sizes to report; by default those of `default_sizes`.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0, 0], [1, 1, 1, 0, 0]], n_classes=2)
    >>> print(summarize(certificates, [0, 1]))
    100.0 % of the 2 test rows are classified correctly; one of the 5 members alone gets 80.0 %
    right on average.
    Always predicting the commonest class gets 50.0 % right. The balanced accuracy is 100.0 %.
    Median radius: 2 (all predictions), 2 (stay correct). At least half of the test rows keep
    their correct label even if any 2 rows are inserted or deleted.
    """
    attacks = default_sizes(certificates) if sizes is None else check_sizes(sizes)
    attacks = np.atleast_1d(attacks)
    tally, single = Tally.of(certificates, y_true), base_accuracy(certificates, y_true)
    n_classes, radii = certificates.n_classes, tally.kept
    median = radii.median()
    classes = tuple(
        ClassRecall(
            label,
            found.n_rows,
            float(found.shares(0)),
            float(found.shares(median or 0)),
            found.median(),
        )
        for label, found in zip(tally.labels, tally.by_class, strict=True)
        if found.n_rows
    )
    return Summary(
        threat=certificates.threat,
        n_rows=radii.n_rows,
        n_members=certificates.n_members,
        n_classes=n_classes,
        clean_accuracy=float(radii.shares(0)),
        base_accuracy=single,
        majority_share=majority_share(y_true),
        balanced_accuracy=tally.balanced_accuracy,
        median_radius=median,
        median_of_all=tally.fixed.median() or 0,
        classes=classes,
        sizes=tuple(attacks.tolist()),
        certified=tuple(radii.shares(attacks).tolist()),
        members_vote=certificates.n_members > 1
        and not certificates.rows_vote
        and not certificates.method.startswith("grid_"),
    )


def median_sentence(
    threat: Threat,
    median: int | None,
    kept: str = "test rows keep their correct label",
    n_groups: int | None = None,
) -> str:
    """Return in words which attacks at least half of the test rows withstand."""
    if median is None:
        return (
            "Fewer than half of the test rows are classified correctly, so no attack size leaves "
            "half of them correct."
        )
    if median == 0:
        return (
            "No attack size is proved to leave half of the test rows correct: already "
            f"{threat.count(1)} might not."
        )
    attack = f"any {threat.clause(median)}"
    if n_groups is not None:
        attack = f"an attacker controls any {median:,} of the {n_groups:,} {threat.noun(n_groups)}"
    return f"At least half of the {kept} even if {attack}."


def default_sizes(certificates: Certificates) -> NDArray[np.int64]:
    """Return 0, 1, 2, 5, 10, 20, 50, ... up to the largest radius.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> default_sizes(certify_votes([[0] * 25], n_classes=2))
    array([ 0,  1,  2,  5, 10])
    """
    return np.array(round_sizes(int(certificates.radius.max(initial=0))), dtype=np.int64)


def round_sizes(largest: int) -> list[int]:
    """Return 0, 1, 2, 5, 10, 20, 50, ... up to `largest`."""
    sizes = [m * 10**e for e in range(len(str(largest))) for m in (1, 2, 5)]
    return [0, *(size for size in sizes if size <= largest)]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# What a finished run proves, for a reader who does not know the paper.

SAME_SOURCE = (
    "The test rows come from the same file as the training rows: the attack sizes are proved all "
    "the same, but the accuracy is only as honest as the file."
)


def majority_share(y_true: ArrayLike) -> float:
    """Return the accuracy of a classifier that always predicts the commonest label.

    >>> majority_share(["ham", "spam", "ham", "ham"])
    0.75
    """
    counts = np.unique(np.asarray(y_true), return_counts=True)[1]
    return float(counts.max() / counts.sum())


def closing_sentences(
    certificates: Certificates, *, n_groups: int | None = None
) -> tuple[str, ...]:
    """Return what was proved, in words.

    Parameters
    ----------
    certificates : Certificates
        Untargeted certificates of the test rows.
    n_groups : int, optional
        Contributors to the training rows, if they are known.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0] * 9, [1] * 9], n_classes=2)
    >>> print(*closing_sentences(certificates))
    At least half of the test rows keep their label, right or wrong, even if any 4 rows are
    inserted or deleted.
    """
    size, threat = Radii.of(certificates.radius).median(), certificates.threat
    if not size:
        unit = "dishonest contributor" if threat.unit == "group" else f"poisoned {threat.noun(1)}"
        return (
            "Fewer than half of the test rows are proved to keep their label against "
            f"even one {unit}. More members (-k), more rows or better features help.",
        )
    known = n_groups if threat.by_group else None
    return (median_sentence(threat, size, "test rows keep their label, right or wrong,", known),)


def seen_sentence(n_seen: int | None, n_rows: int) -> str:
    """Return how many of `n_rows` rows a model was trained on, in words; None is unknown.

    Examples
    --------
    >>> print(seen_sentence(3, 100))
    The model was trained on 3 of the 100 rows. These are not test rows; the numbers refer to the
    other 97.
    """
    if n_seen is None:
        return (
            "Whether the model was trained on some of these rows cannot be checked: it does not "
            "keep its training rows."
        )
    if n_seen == 0:
        return f"The model was trained on none of the {n_rows:,} rows."
    if n_seen == n_rows:
        return (
            f"The model was trained on all {n_rows:,} rows. These are not test rows: accuracy "
            "on them says nothing about other rows."
        )
    return (
        f"The model was trained on {n_seen:,} of the {n_rows:,} rows. These are not test rows; "
        f"the numbers refer to the other {n_rows - n_seen:,}."
    )
