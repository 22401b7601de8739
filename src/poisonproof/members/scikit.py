"""Any scikit-learn classifier as a member, with parameters such that training comes to an end."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib import metadata
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC, NuSVC

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.digest import class_name, forget_folders, state_digest
from poisonproof.members.member import (
    AbstainingMember,
    ConstantMember,
    Learner,
    Member,
    predict_into,
)
from poisonproof.members.streams import (
    WORKERS,
    give_one_worker,
    in_own_streams,
    nested_random_states,
    seed_nested,
)
from poisonproof.partition.containers import n_rows
from poisonproof.partition.partitioned import Partition

MOST_STEPS = 1_000_000
"""Steps of libsvm for one pair of classes where no limit is set: seconds on 1,000 rows.

Ordinary rows need thousands, and one row with a cell of 1e15 keeps a linear kernel busy for ever.
"""

LARGEST = 1e15
"""The largest value that liblinear gets: its inner loops have no limit where squares overflow."""


def is_count(value: object) -> bool:
    """Return whether a parameter is an integer of at least 1, and no boolean."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def is_number(value: object) -> bool:
    """Return whether a parameter is a real number."""
    return isinstance(value, Real)


def limit_steps(estimator: Any) -> None:
    """Limit the steps, not the time, of support vector machines that have no limit."""
    for part in _parts(estimator):
        if isinstance(part, (SVC, NuSVC)) and part.max_iter == -1:
            part.set_params(max_iter=MOST_STEPS)


def largest_value(estimator: Any) -> float:
    """Return how large a number in a training row may be, so that training ends."""
    return LARGEST if any(map(_uses_liblinear, _parts(estimator))) else math.inf


def _parts(estimator: Any) -> list[Any]:
    return [estimator, *estimator.get_params(deep=True).values()]


def _uses_liblinear(part: Any) -> bool:
    if isinstance(part, LogisticRegression):
        return bool(part.solver == "liblinear")
    default = isinstance(part, CalibratedClassifierCV) and part.estimator is None
    return default or isinstance(part, LinearSVC)


_PASSED_OVER = {"poisonproof", "numpy", "scipy", "sklearn", "torch", "ray"}
"""Packages that every model records; and Ray, which replaces `print`, a parameter of skorch."""


def provider_versions(estimator: Any) -> dict[str, str]:
    """Return the versions of packages an estimator is written in, unless always recorded."""
    parts = _parts(estimator)
    modules = (getattr(part, "__module__", None) or type(part).__module__ for part in parts)
    roots = {str(module).split(".")[0] for module in modules}
    found: dict[str, str] = {}
    for root in roots - _PASSED_OVER - sys.stdlib_module_names:
        found |= {name: metadata.version(name) for name in _distributions().get(root, ())}
    return dict(sorted(found.items()))


@cache
def _distributions() -> dict[str, tuple[str, ...]]:
    """Return which packages provide a module; looked up once, for it reads many files."""
    provided = metadata.packages_distributions()
    return {root: tuple(sorted(set(names))) for root, names in provided.items()}


PLAIN = (type(None), bool, int, float, str)
"""Kinds of parameters that cannot be changed in place."""


class ScikitMember(Member):
    """A scikit-learn classifier fitted on one partition; `seed` and `index` key its streams."""

    def __init__(
        self,
        estimator: Any,
        classes: NDArray[Any],
        seed: int,
        index: int,
        present: NDArray[np.int64] | None = None,
    ) -> None:
        self.estimator = estimator
        self.classes = classes
        self.seed = seed
        self.index = index
        self.present = present  # what its labels 0 to m-1 stand for, if it was not given values

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Predict, and turn class values into indices; a value outside the label set abstains."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = in_own_streams(self.seed, self.index, lambda: self.estimator.predict(X))
        return self.places(np.asarray(found))

    def places(self, labels: NDArray[Any]) -> NDArray[np.int16]:
        """Return class indices of labels as the classifier has them."""
        known = self.classes if self.present is None else np.arange(len(self.present))
        position = np.minimum(np.searchsorted(known, labels), len(known) - 1)
        indices = position if self.present is None else self.present[position]
        return np.where(known[position] == labels, indices, ABSTAIN).astype(np.int16)

    def digest(self) -> str:
        """Return a digest of the fitted classifier and of what its votes mean."""
        coded = () if self.present is None else (self.present,)
        return state_digest((self.classes, self.estimator, *coded))


class ScikitLearner(Learner):
    """Fits a clone of one scikit-learn classifier per partition; `classes` are sorted.

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
        kinds = {base for part in _parts(estimator) for base in type(part).__mro__}
        self._codes_labels = any(base.__module__.split(".")[0] == "xgboost" for base in kinds)
        if self._plain:
            try:
                self._pristine._validate_params()
            except ValueError as error:
                raise InvalidInputError(f"no member can be trained: {error}") from None

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
            y, present = self._labels(partition)
            index = partition.index
            estimator = in_own_streams(seed, index, lambda: self._fitted(partition, y, seed))
        return ScikitMember(estimator, self.classes, seed, index, present)

    def _labels(self, partition: Partition) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
        """Return labels as the classifier gets them, and what they stand for unless values.

        They are class values, to which a parameter such as `class_weight` may refer. XGBoost alone
        demands 0 to m-1 of the m classes that the partition holds.
        """
        y = self.classes[partition.y]
        if self._codes_labels:
            present, codes = np.unique(partition.y, return_inverse=True)
            if not np.array_equal(y, codes):
                return codes, present
        return y, None

    def _fitted(self, partition: Partition, y: NDArray[Any], seed: int) -> Any:
        if self._plain:  # copied by hand, which is much faster
            estimator = object.__new__(type(self._pristine))
            vars(estimator).update(vars(self._pristine))
        else:
            estimator = clone(self._pristine)
        seed_nested(estimator, seed, partition.index, self._random_states)
        weight = partition.sample_weight
        options = {} if weight is None else {"sample_weight": weight}
        estimator.fit(partition.X, y, **options)
        return estimator


def _shown(template: Any) -> str:
    """Return the plain parameters in words; others may show an address."""
    shown = sorted(template.get_params(deep=True).items())
    return ", ".join(
        f"{name}={value!r}"
        for name, value in shown
        if type(value) in PLAIN and name.split("__")[-1] not in WORKERS
    )


def _is_plain(template: Any) -> bool:
    """Return whether a template holds nothing that copies could share, or nest, or clone oddly."""
    kind: Any = type(template)
    return (
        isinstance(template, BaseEstimator)
        and kind.__new__ is object.__new__
        and kind.__sklearn_clone__ is BaseEstimator.__sklearn_clone__
        and hasattr(kind, "_parameter_constraints")
        and all(type(value) in PLAIN for value in vars(template).values())
    )


_UNSEEN = -1.0
"""Score of a class that a member has no row of: below every probability."""


def member_probabilities(members: Sequence[Member], X: Any, n_classes: int) -> NDArray[np.float64]:
    """Return every member's score for every class, shape (n, k, C).

    Scores are probabilities, -1 for a class that is not in the member's partition, and NaN for all
    classes where the member abstains or `predict_proba` raises.
    """
    scores = np.full((n_rows(X), len(members), n_classes), np.nan)
    for place, member in enumerate(members):
        if isinstance(member, ConstantMember):
            scores[:, place] = _UNSEEN
            scores[:, place, member.label] = 1.0
        elif isinstance(member, ScikitMember) and hasattr(member.estimator, "predict_proba"):
            predict = partial(_probabilities, member, n_classes)
            predict_into(scores[:, place], predict, X, parts=len(scores))
        elif not isinstance(member, AbstainingMember):
            kind = type(getattr(member, "estimator", member)).__name__
            raise InvalidInputError(
                f"A run-off needs scores, but {kind} has no predict_proba. Use a classifier "
                "that gives probabilities, closed-form members or TorchLearner; or certify the "
                "plurality."
            )
    return scores


def _probabilities(member: ScikitMember, n_classes: int, X: Any) -> NDArray[np.float64]:
    predict = member.estimator.predict_proba
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = in_own_streams(member.seed, member.index, lambda: predict(X))
    scores = np.full((n_rows(X), n_classes), _UNSEEN)
    scores[:, member.places(np.asarray(member.estimator.classes_))] = np.asarray(
        found, dtype=np.float64
    )
    scores[~np.isfinite(scores).all(axis=1)] = np.nan  # a member without numbers abstains
    return scores
