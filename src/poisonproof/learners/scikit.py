"""Any scikit-learn classifier as a member."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import BaseEstimator, clone

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.base import ABSTAIN, Learner, Member
from poisonproof.learners.digest import class_name, forget_folders, state_digest
from poisonproof.learners.parameters import limit_steps
from poisonproof.learners.providers import provider_versions
from poisonproof.learners.streams import (
    WORKERS,
    give_one_worker,
    in_own_streams,
    nested_random_states,
    seed_nested,
)
from poisonproof.partition.partitioned import Partition

__all__ = ["ScikitLearner", "ScikitMember"]

PLAIN = (type(None), bool, int, float, str)
"""Kinds of parameters that cannot be changed in place."""


class ScikitMember(Member):
    """A fitted scikit-learn classifier that votes.

    Parameters
    ----------
    estimator : fitted classifier
        Trained on one partition with class values as labels.
    classes : ndarray of shape (C,)
        The label set, sorted; a vote is an index into it.
    seed, index : int
        The key of the random streams at prediction time.
    """

    def __init__(self, estimator: Any, classes: NDArray[Any], seed: int, index: int) -> None:
        self.estimator = estimator
        self.classes = classes
        self.seed = seed
        self.index = index

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Predict, and turn class values into indices; a value outside the label set abstains."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = in_own_streams(self.seed, self.index, lambda: self.estimator.predict(X))
        predicted = np.asarray(answer)
        position = np.searchsorted(self.classes, predicted)
        position = np.minimum(position, len(self.classes) - 1)
        known = self.classes[position] == predicted
        return np.where(known, position, ABSTAIN).astype(np.int16)

    def digest(self) -> str:
        """Return a digest of the fitted classifier and of what its votes mean."""
        return state_digest((self.classes, self.estimator))


class ScikitLearner(Learner):
    """Fits a clone of one scikit-learn classifier per partition.

    Parameters
    ----------
    estimator : classifier
        The template; never fitted itself.
    classes : ndarray of shape (C,)
        The label set, sorted.

    Guarantee
    ---------
    The member sees its partition, and random streams keyed by (seed, partition index): every
    nested ``random_state``, and the global streams, which are restored afterwards. It has one
    worker and one thread, when it is trained and when it votes, whatever the template asks for.
    """

    def __init__(self, estimator: Any, classes: NDArray[Any]) -> None:
        self.estimator = estimator
        self.classes = classes
        self._random_states = nested_random_states(estimator)
        self._pristine = clone(estimator)
        give_one_worker(self._pristine)
        forget_folders(self._pristine)  # a cache there would outlive the rows it was made of
        limit_steps(self._pristine)
        self._plain = _is_plain(self._pristine)
        if self._plain:
            _check_parameters(self._pristine)

    def specification(self) -> Mapping[str, Any]:
        """Name the template and digest its parameters."""
        kind = type(self.estimator)
        versions = provider_versions(self.estimator)
        return {
            **({"packages": versions} if versions else {}),
            "learner": "scikit-learn",
            "estimator": class_name(kind),
            "parameters": _shown(self._pristine),
            "digest": state_digest(self._pristine),
        }

    def fit_member(self, partition: Partition, n_classes: int, seed: int) -> Member:
        """Fit a fresh clone on one partition."""
        # Warnings are not part of f: a filter that turns them into errors would change members.
        with warnings.catch_warnings(), config_context(skip_parameter_validation=self._plain):
            warnings.simplefilter("ignore")
            estimator = in_own_streams(seed, partition.index, lambda: self._fitted(partition, seed))
        return ScikitMember(estimator, self.classes, seed, partition.index)

    def _fitted(self, partition: Partition, seed: int) -> Any:
        estimator = self._fresh()
        seed_nested(estimator, seed, partition.index, self._random_states)
        weights = (
            {} if partition.sample_weight is None else {"sample_weight": partition.sample_weight}
        )
        estimator.fit(partition.X, self.classes[partition.y], **weights)
        return estimator

    def _fresh(self) -> Any:
        """Return an unfitted copy; a plain template is copied by hand, which is much faster."""
        if not self._plain:
            return clone(self._pristine)
        estimator = object.__new__(type(self._pristine))
        vars(estimator).update(vars(self._pristine))
        return estimator


def _shown(template: Any) -> str:
    """Return the plain parameters in words; others, which may show an address, are digested."""
    shown = sorted(template.get_params(deep=True).items())
    return ", ".join(
        f"{name}={value!r}"
        for name, value in shown
        if type(value) in PLAIN and name.split("__")[-1] not in WORKERS
    )


def _check_parameters(template: Any) -> None:
    try:
        template._validate_params()
    except ValueError as error:
        raise InvalidInputError(f"no member can be trained: {error}") from None


def _is_plain(template: Any) -> bool:
    """Say whether a template holds nothing that two copies could share, or nest, or clone oddly.

    Its parameters are then the same for every member, and are validated once.
    """
    kind: Any = type(template)
    return (
        isinstance(template, BaseEstimator)
        and kind.__new__ is object.__new__
        and kind.__sklearn_clone__ is BaseEstimator.__sklearn_clone__
        and hasattr(kind, "_parameter_constraints")
        and all(type(value) in PLAIN for value in vars(template).values())
    )
