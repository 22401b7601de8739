"""Run-off certificates of fitted members: the scores behind their votes, and what they prove."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import Certificates, Spread, Threat, certify_scores
from poisonproof.estimators.finite_aggregation import FiniteAggregationClassifier
from poisonproof.estimators.voting import VotingMembers
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.closed_form.stacked import StackedMembers
from poisonproof.learners.members import MemberList
from poisonproof.learners.probabilities import member_probabilities
from poisonproof.progress import Silent

__all__ = ["certify_runoff", "member_scores", "shared_buckets"]


def member_scores(classifier: VotingMembers, X: Any) -> NDArray[Any]:
    """Return every member's score for every class.

    Parameters
    ----------
    classifier : DPAClassifier, SSDPAClassifier or FiniteAggregationClassifier
        Fitted, with members that have scores: closed-form learners, `TorchLearner`, `TailLearner`,
        `HeadLearner`, or scikit-learn classifiers with `predict_proba`.
    X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
        Samples.

    Returns
    -------
    ndarray of shape (n, k, C)
        Higher is better; NaN for all classes where a member abstains. Scores of one member can be
        compared with each other, those of different members cannot.
    """
    if not isinstance(classifier, VotingMembers):
        raise InvalidInputError(
            "A run-off needs members that score classes, as DPAClassifier, SSDPAClassifier and "
            f"FiniteAggregationClassifier have them. Got {type(classifier).__name__}."
        )
    samples = classifier._asked(X)
    ensemble = getattr(classifier.ensemble_, "loaded", classifier.ensemble_)
    if isinstance(ensemble, MemberList):
        return member_probabilities(ensemble.members, samples, len(classifier.classes_))
    if isinstance(ensemble, StackedMembers):
        return _finite(ensemble.scores(samples, n_jobs=classifier.n_jobs, progress=Silent()))
    ask = getattr(ensemble, "scores", None)
    if ask is None:
        raise InvalidInputError(
            f"A run-off needs scores, but members of {type(ensemble).__name__} give votes alone. "
            "Use closed-form members, TorchLearner or a classifier with predict_proba."
        )
    scores: NDArray[Any] = ask(samples)
    return scores


def certify_runoff(
    classifier: VotingMembers,
    X: Any,
    threat: str | Threat | None = None,
    target: Any = None,
    *,
    require_declared: bool = False,
) -> Certificates:
    """Predict and certify by run-off election instead of plurality.

    Parameters
    ----------
    classifier : DPAClassifier, SSDPAClassifier or FiniteAggregationClassifier
        Fitted, with members that have scores; see `member_scores`.
    X, threat, target, require_declared
        As in `DPAClassifier.certify`.

    Returns
    -------
    Certificates
        ``labels`` are the class values that win the run-off; `predict` is the plurality's.

    Guarantee
    ---------
    As in `certify_scores`: no attack within the radius changes the winner. Members that share
    buckets are certified in buckets.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from poisonproof import DPAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = DPAClassifier(n_partitions=20, classes=range(10)).fit(X[:1500], y[:1500])
    >>> certificates = certify_runoff(clf, X[1500:])
    >>> certificates.method, bool(certificates.radius.max() >= 9)
    ('runoff', True)
    """
    resolved = classifier._resolve_threat(threat, require_declared)
    certificates = certify_scores(
        member_scores(classifier, X),
        threat=resolved,
        target=classifier._class_index(target),
        membership=shared_buckets(classifier),
    )
    return certificates.with_classes(classifier.classes_)


def shared_buckets(classifier: VotingMembers) -> Spread | None:
    """Return which members share which buckets, None where every member has its own partition."""
    return classifier.spread_ if isinstance(classifier, FiniteAggregationClassifier) else None


def _finite(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank classes without rows last; a member that has none of any class abstains."""
    abstains = np.isneginf(scores).all(axis=2)
    largest = np.finfo(np.float64).max
    scores = np.nan_to_num(scores, nan=-largest, posinf=largest, neginf=-largest)
    scores[abstains] = np.nan
    return scores
