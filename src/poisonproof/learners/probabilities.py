"""Scores of members that are asked one by one: the probabilities of scikit-learn classifiers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.base import Member
from poisonproof.learners.machine_errors import is_machine_error
from poisonproof.learners.members import AbstainingMember, ConstantMember, guarded
from poisonproof.learners.scikit import ScikitMember
from poisonproof.learners.streams import in_own_streams
from poisonproof.partition.containers import n_rows, take_rows

__all__ = ["member_probabilities"]

_UNSEEN = -1.0
"""Score of a class that a member has no row of: below every probability."""


def member_probabilities(members: Sequence[Member], X: Any, n_classes: int) -> NDArray[np.float64]:
    """Return every member's score for every class, shape (n, k, C).

    Parameters
    ----------
    members : sequence of Member
        Members of scikit-learn classifiers with `predict_proba`, constant or abstaining ones.
    X : array, sparse matrix or DataFrame, shape (n, ...)
        Samples in canonical form.
    n_classes : int
        Number of classes, C.

    Returns
    -------
    ndarray of shape (n, k, C)
        Probabilities, -1 for a class that is not in the member's partition, and NaN for all classes
        where the member abstains or `predict_proba` raises.

    Raises
    ------
    InvalidInputError
        If a member has no probabilities.
    """
    scores = np.full((n_rows(X), len(members), n_classes), np.nan)
    for place, member in enumerate(members):
        if isinstance(member, ConstantMember):
            scores[:, place] = _UNSEEN
            scores[:, place, member.label] = 1.0
        elif not isinstance(member, AbstainingMember):
            scores[:, place] = _asked(member, X, n_classes)
    return scores


def _asked(member: Member, X: Any, n_classes: int) -> NDArray[np.float64]:
    """Ask one member; where it raises, row by row, so that one row silences it on no other."""
    if not (isinstance(member, ScikitMember) and hasattr(member.estimator, "predict_proba")):
        kind = type(getattr(member, "estimator", member)).__name__
        raise InvalidInputError(
            f"A run-off needs scores, but {kind} has no predict_proba. Use a classifier that gives "
            "probabilities, closed-form members or TorchLearner; or certify the plurality."
        )
    try:
        return _probabilities(member, X, n_classes)
    except Exception as error:
        if is_machine_error(error):
            raise
        return np.concatenate(
            [_one_row(member, take_rows(X, np.array([row])), n_classes) for row in range(n_rows(X))]
        )


def _one_row(member: ScikitMember, row: Any, n_classes: int) -> NDArray[np.float64]:
    try:
        return _probabilities(member, row, n_classes)
    except Exception as error:
        if is_machine_error(error):
            raise
        return np.full((1, n_classes), np.nan)


def _probabilities(member: ScikitMember, X: Any, n_classes: int) -> NDArray[np.float64]:
    ask = member.estimator.predict_proba
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = in_own_streams(member.seed, member.index, lambda: ask(guarded(X)))
    found = np.asarray(answer, dtype=np.float64)
    scores = np.full((len(found), n_classes), _UNSEEN)
    places = np.searchsorted(member.classes, member.estimator.classes_)
    scores[:, places] = found
    scores[~np.isfinite(scores).all(axis=1)] = np.nan  # a member without numbers abstains
    return scores
