"""What all closed-form learners share: one fit for a partition, for one or for k of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from poisonproof.exceptions import InvalidInputError
from poisonproof.members.closed_form.fitting import (
    MemberFitter,
    MemberParts,
    blocks,
    lifted_columns,
    n_features,
)
from poisonproof.members.closed_form.stacked import StackedMembers
from poisonproof.members.member import BatchedLearner
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Progress, Silent, reporting
from poisonproof.threads import one_thread

MAX_BYTES = 2**28
"""Working memory for votes unless told otherwise, in bytes."""

# Raise whenever the same partition and parameters would give other bits than before.
_ARITHMETIC = 1


class ClosedFormClassifier(ClassifierMixin, BaseEstimator, MemberFitter, BatchedLearner):
    """Base class: a scikit-learn classifier that is also a learner of whole ensembles.

    A subclass implements `_fit_rows` for one partition; `fit` calls it once and `fit_members` once
    per partition, so a member is the classifier fitted on its partition, bit for bit.

    Guarantee
    ---------
    A member is a function of the multiset of its partition's rows: they are sorted before anything
    is added up, and every matrix that is factorised holds rows of that partition alone.
    """

    _members: ClassVar[type[StackedMembers]]
    _takes_weights: ClassVar[bool] = True
    # What only schedules is no part of a member.
    _scheduling: ClassVar[frozenset[str]] = frozenset({"max_bytes"})

    precision: Any
    max_bytes: int

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise InvalidInputError for parameters that make no sense."""

    def _member_settings(self, n_features: int) -> dict[str, Any]:
        """Return what decides votes beside the arrays of a member, as JSON."""
        return {"lift": "none"}

    def specification(self) -> Mapping[str, Any]:
        """Return everything about this learner that can change a member's bits, as JSON."""
        parameters = {
            name: list(value) if isinstance(value, (tuple, np.ndarray)) else value
            for name, value in self.get_params(deep=False).items()
            if name not in self._scheduling
        }
        return {
            "learner": type(self).__name__,
            "parameters": parameters,
            "arithmetic": _ARITHMETIC,
            "blas_threads": 1,
        }

    def fit_members(
        self,
        data: PartitionedData,
        which: Sequence[int],
        n_classes: int,
        seed: int,
        *,
        n_jobs: int | None,
        progress: Progress,
    ) -> StackedMembers:
        """Train the members of the partitions `which`; the result has ``len(which)`` members.

        An empty partition abstains, one of a single class always votes for it, and one on which
        the arithmetic fails abstains with the reason in `failures`. `seed` is not used: nothing
        is random.
        """
        self._check_weights_allowed(data.sample_weight)
        settings = self._settings(n_features(data.X), n_classes)
        parts_of_data = list(blocks(data, which))
        parts: list[MemberParts] = []
        with (
            reporting(progress, len(which), "Training"),
            one_thread("blas"),
            ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool,
        ):
            fit = partial(self._fit_block, data, settings)
            for fitted in pool.map(fit, parts_of_data):
                parts.extend(fitted)
                progress.advance(len(fitted))
        return self._members.stack(settings, parts, self.max_bytes)

    def _settings(self, n_features: int, n_classes: int) -> dict[str, Any]:
        self._check_parameters()
        if self.precision not in {"single", "double"}:
            raise InvalidInputError(
                f"precision must be 'single' or 'double', but is {self.precision!r}."
            )
        settings = self._member_settings(n_features)
        settings |= {
            "n_classes": int(n_classes),
            "n_features": int(n_features),
            "n_columns": lifted_columns(n_features, settings),
            "precision": self.precision,
        }
        return settings

    def _check_weights_allowed(self, sample_weight: Any) -> None:
        if sample_weight is not None and not self._takes_weights:
            raise InvalidInputError(
                f"{type(self).__name__} does not take sample_weight. Leave the weights out, or use "
                "a learner that takes them, for example RidgeClassifier."
            )

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> Self:
        self._check_weights_allowed(sample_weight)
        X, y = validate_data(self, X, y, **self._validation())
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        self.classes_, index = np.unique(y, return_inverse=True)
        settings = self._settings(X.shape[1], len(self.classes_))
        with one_thread("blas"):
            nobody = np.zeros(len(index), dtype=np.intp)
            (parts,) = self._fit_partitions(X, index, sample_weight, nobody, 1, settings)
        if isinstance(parts, Exception):
            raise parts
        self.members_ = self._members.stack(settings, [parts], self.max_bytes)
        return self

    def _validation(self) -> dict[str, Any]:
        finite = "allow-nan" if self._takes_missing else True
        return {"dtype": (np.float64, np.float32), "ensure_all_finite": finite}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing
        return tags

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of every row of `X`, shape (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **self._validation())
        votes = self.members_.votes(X, n_jobs=None, progress=Silent())[:, 0]
        return np.asarray(self.classes_[votes])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return one score per class, (n, C), or for two classes the difference of both, (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **self._validation())
        scores = self.members_.scores(X, n_jobs=None, progress=Silent())[:, 0]
        if len(self.classes_) == 2:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores


class WeightedClassifier(ClosedFormClassifier):
    """A closed-form classifier whose rows may carry weights."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit one classifier.

        Parameters
        ----------
        X : array of shape (n, d)
            Samples.
        y : array of shape (n,)
            Labels.
        sample_weight : array of shape (n,), optional
            Weights; a row of weight zero counts as absent.

        Returns
        -------
        WeightedClassifier
            This object, fitted.
        """
        return self._fit(X, y, sample_weight)


class UnweightedClassifier(ClosedFormClassifier):
    """A closed-form classifier whose rows all count alike."""

    _takes_weights: ClassVar[bool] = False

    def fit(self, X: Any, y: Any) -> Self:
        """Fit one classifier.

        Parameters
        ----------
        X : array of shape (n, d)
            Samples.
        y : array of shape (n,)
            Labels.

        Returns
        -------
        UnweightedClassifier
            This object, fitted.
        """
        return self._fit(X, y, None)
