"""What all closed-form learners share: one fit for a partition, for one or for k of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.learners.base import BatchedLearner
from poisonproof.learners.closed_form.lifts import lifted_columns, sample_matrix
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import (
    MemberRows,
    blocks,
    canonical_order,
    n_features,
    problems,
)
from poisonproof.learners.closed_form.stacked import StackedMembers
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.partition.values import take_canonical
from poisonproof.progress import Progress, Silent, reporting
from poisonproof.threads import one_thread

__all__ = ["MAX_BYTES", "ClosedFormClassifier"]

MAX_BYTES = 2**28
"""Working memory for votes unless told otherwise, in bytes."""

# Raise whenever the same partition and parameters would give other bits than before.
_ARITHMETIC = 1


class ClosedFormClassifier(ClassifierMixin, BaseEstimator, BatchedLearner):
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
    _takes_missing: ClassVar[bool] = False
    # What only schedules is no part of a member.
    _scheduling: ClassVar[frozenset[str]] = frozenset({"max_bytes"})

    precision: Any
    max_bytes: int

    @abstractmethod
    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        """Fit one member on prepared rows of two or more classes."""

    def _prepare(self, X: NDArray[np.float64], settings: dict[str, Any]) -> Any:
        """Return what `_fit_rows` needs of each row: a function of that row, cut with slices."""
        return X

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

    def _fit_block(
        self, data: PartitionedData, settings: dict[str, Any], block: Sequence[int]
    ) -> list[MemberParts]:
        """Fit the members of a few partitions; those that cannot be fitted abstain."""
        try:
            return self._fit_gathered(data, settings, block)
        except InvalidRowsError as error:
            if len(block) == 1:
                return [_abstaining(error)]
            # A row that is no row of numbers is the matter of its own member.
            return [self._fit_block(data, settings, [index])[0] for index in block]

    def _fit_gathered(
        self, data: PartitionedData, settings: dict[str, Any], block: Sequence[int]
    ) -> list[MemberParts]:
        numbers = [data.rows(index) for index in block]
        rows = np.concatenate(numbers)
        weight = None if data.sample_weight is None else data.sample_weight[rows]
        fitted = self._fit_partitions(
            _gathered(data.X, numbers),
            data.y[rows],
            weight,
            np.repeat(np.arange(len(block)), [len(some) for some in numbers]),
            len(block),
            settings,
        )
        return [_abstaining(one) if isinstance(one, Exception) else one for one in fitted]

    def _fit_partitions(
        self,
        samples: NDArray[Any],
        y: NDArray[np.int64],
        weight: NDArray[np.float64] | None,
        owner: NDArray[np.intp],
        n_members: int,
        settings: dict[str, Any],
    ) -> list[MemberParts | Exception]:
        """Fit member ``owner[j]`` on its rows j; what a member raises stands in its place.

        What is done for all rows at once is done row by row: checks, sorting, rounding.
        """
        X = np.array(samples, dtype=np.float64, order="C") + 0.0
        if self._takes_missing:
            X[np.isnan(X)] = np.nan  # one NaN
        weights = np.ones(len(y)) if weight is None else np.array(weight, dtype=np.float64)
        failed = problems(X, weights, owner, allow_missing=self._takes_missing)
        order = canonical_order(X, y, weights, owner)
        weightless = set(np.unique(owner[weights == 0]).tolist())
        order = order[(weights[order] > 0) & ~np.isin(owner[order], list(failed))]
        X, y, weights, owner = X[order], y[order], weights[order], owner[order]
        ends = np.cumsum(np.bincount(owner, minlength=n_members)).tolist()
        with np.errstate(all="ignore"):
            prepared = self._prepared_or_none(X, settings)
            results: dict[int, MemberParts | Exception] = dict(failed)
            alike: dict[tuple[int, int], dict[int, MemberRows]] = {}
            for member, (start, stop) in enumerate(pairwise([0, *ends])):
                if member in failed:
                    continue
                here = slice(start, stop)
                if start == stop and member in weightless:
                    results[member] = InvalidInputError("all weights of the partition are zero")
                    continue
                present = np.bincount(y[here]).nonzero()[0]
                if len(present) < 2:
                    results[member] = MemberParts(present.astype(np.int16))
                    continue
                try:
                    rows = self._prepare(X[here], settings) if prepared is None else prepared[here]
                except InvalidRowsError as error:
                    results[member] = error
                    continue
                part = MemberRows(rows, y[here], weights[here], present)
                alike.setdefault((stop - start, len(present)), {})[member] = part
            for group in alike.values():
                fitted = self._fit_alike(list(group.values()), settings)
                results.update(zip(group, fitted, strict=True))
        return [results[member] for member in range(n_members)]

    def _prepared_or_none(self, X: NDArray[np.float64], settings: dict[str, Any]) -> Any:
        """Prepare all rows at once, or None if one of them cannot be: then member by member."""
        try:
            return self._prepare(X, settings)
        except InvalidRowsError:
            return None

    def _fit_alike(
        self, members: Sequence[MemberRows], settings: dict[str, Any]
    ) -> list[MemberParts | Exception]:
        """Fit members with equally many rows and classes; what one raises stands in its place."""
        fitted: list[MemberParts | Exception] = []
        for member in members:
            try:
                fitted.append(self._fit_rows(member, settings))
            except MemoryError:
                raise
            except Exception as error:
                # One partition the learner cannot take must not stop the others.
                fitted.append(error)
        return fitted

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


def _gathered(X: Any, numbers: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
    """Return the rows of several partitions as numbers.

    Numbers are gathered together. What else a container holds is read partition by partition: what
    a column is must not be decided by the rows of others.
    """
    if type(X) is np.ndarray and X.dtype.kind in "biuf":
        return sample_matrix(take_canonical(X, np.concatenate(numbers)))
    parts = [some for some in numbers if len(some)] or [np.concatenate(numbers)]
    return np.concatenate([sample_matrix(take_canonical(X, some)) for some in parts])


def _abstaining(error: Exception) -> MemberParts:
    reason = f"{type(error).__name__}: {error}"
    return MemberParts(np.empty(0, dtype=np.int16), failure=reason)
