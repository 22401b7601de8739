"""Ensembles on the same partitions that vote as one: a partition has one vote in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.runoff import certify_scores
from poisonproof.certificates.threats import Threat
from poisonproof.estimators.certifying import VotingMembers, member_scores
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.members.committee import standardized

COMMON_ROWS = (
    "all ensembles of the committee are given the same rows, in the same number format and under "
    "the same identities"
)
"""Assumption of `certify_committee` about rows that are not there yet."""

_LARGEST = 1e150
"""Scores beyond this are cut off, so that sums of squares are finite. Closed-form members score
classes of which they have no rows below minus this."""


def certify_committee(
    classifiers: Sequence[VotingMembers],
    X: Any,
    method: str = "runoff",
    threat: str | Threat | None = None,
    target: Any = None,
    *,
    require_declared: bool = False,
) -> Certificates:
    """Let several fitted ensembles vote together, and certify the outcome.

    All members of a partition, one per ensemble, have one common vote: the sum of their scores,
    each of mean 0 and deviation 1 over the classes. Unlike in `Committee` every ensemble is
    trained by its own engine, networks on a GPU beside closed-form members on a CPU.

    Parameters
    ----------
    classifiers : sequence of DPAClassifier or SSDPAClassifier
        Fitted, of one kind, on the same rows with the same partitioner and label set; each may
        have its own `features`.
    X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
        Samples, the same for all.
    method : {"runoff", "plurality"}
        As in `certify_scores`.
    threat, target, require_declared
        As in `DPAClassifier.certify`.

    Returns
    -------
    Certificates
        With class values as labels.

    Raises
    ------
    GuaranteeError
        If a row could reach one vote through one ensemble and another vote through another.

    Guarantee
    ---------
    As in `certify_scores`: one unit of attack reaches the members of as many partitions as in any
    one of the ensembles, and these are the same partitions in all.

    Assumes
    -------
    Rows that an attacker inserts are given to all ensembles alike: the same numbers, rounded the
    same way, and the same contributors by the same names. That rows and partitions were the same
    so far is checked.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from poisonproof import DPAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> kernels = DPAClassifier(n_partitions=20, classes=range(10)).fit(X[:1500], y[:1500])
    >>> bayes = DPAClassifier(GaussianNB(), n_partitions=20, classes=range(10))
    >>> bayes = bayes.fit(X[:1500], y[:1500])
    >>> certificates = certify_committee([kernels, bayes], X[1500:])
    >>> certificates.method, bool(certificates.radius.max() >= 9)
    ('runoff', True)
    """
    classifiers = list(classifiers)
    resolved = _common_threat(classifiers, threat, require_declared)
    first = classifiers[0]
    certificates = certify_scores(
        _joint_scores(classifiers, X),
        method=method,
        threat=resolved,
        target=first._class_index(target),
    )
    return certificates.with_classes(first.classes_)


def _common_threat(
    classifiers: list[VotingMembers], threat: str | Threat | None, require_declared: bool
) -> Threat:
    """Return the threat that all certify, with everything that any of them assumes."""
    if not classifiers or not all(isinstance(one, VotingMembers) for one in classifiers):
        raise InvalidInputError(
            "A committee needs fitted ensembles: a list of DPAClassifier or SSDPAClassifier. "
            f"Got {[type(one).__name__ for one in classifiers]}."
        )
    threats = [one._resolve_threat(threat, require_declared) for one in classifiers]
    for number, other in enumerate(classifiers[1:], start=1):
        if difference := _difference(classifiers[0], other):
            raise GuaranteeError(
                f"ensembles 0 and {number} of the committee have {difference}, so that a row "
                "could reach several votes. Fit them on the same rows, with the same partitioner, "
                "n_partitions and classes."
            )
    sentences = dict.fromkeys(line for threat in threats for line in threat.assumptions)
    common = (COMMON_ROWS,) if len(classifiers) > 1 else ()
    return replace(threats[0], assumptions=(*sentences, *common))


def _difference(one: VotingMembers, other: VotingMembers) -> str:
    """Say what keeps two ensembles from voting as one; nothing if nothing does."""
    if type(one) is not type(other):
        return f"different kinds ({type(one).__name__}, {type(other).__name__})"
    if not np.array_equal(one.classes_, other.classes_):
        return "different label sets"
    if one.partitioner_.spec() != other.partitioner_.spec():
        return "different partitioners"
    if one.partition_digests_ != other.partition_digests_:
        return "different rows in their partitions"
    return ""


def _joint_scores(classifiers: Sequence[VotingMembers], X: Any) -> NDArray[np.float64]:
    """Return the sum of the normalized scores, NaN where all members of a partition abstain."""
    total, votes = np.zeros(()), np.zeros((), dtype=np.bool_)
    for classifier in classifiers:
        scores = np.asarray(member_scores(classifier, X), dtype=np.float64)
        abstains = np.isnan(scores).all(axis=2, keepdims=True)
        total = total + np.where(abstains, 0.0, standardized(ranked(scores)))
        votes = votes | ~abstains
    return np.where(votes, total, np.nan)


def ranked(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Score classes without rows as far below the last known class as that is below the first."""
    unknown = scores < -_LARGEST
    scores = scores.clip(max=_LARGEST)
    last = np.where(unknown, np.inf, scores).min(axis=2, keepdims=True)
    spread = np.where(unknown, -np.inf, scores).max(axis=2, keepdims=True) - last
    return np.where(unknown, last - np.where(spread > 0, spread, 1.0), scores)
