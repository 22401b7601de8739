"""Closed-form classifiers: one fit for a partition, for one or for k of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.members.closed_form.stacked import MemberParts, StackedMembers, sample_matrix
from poisonproof.members.member import BatchedLearner, is_machine_error
from poisonproof.members.scikit import is_number
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.partition.values import take_canonical
from poisonproof.progress import Progress, Silent
from poisonproof.threads import one_thread

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100

# Raise whenever the same partition and parameters would give other bits than before.
_ARITHMETIC = 1
_BLOCK_ROWS = 4096
_BLOCK_CELLS = 2**22


@dataclass(frozen=True)
class MemberData:
    """One member's rows in canonical order, with positive weights; `y` are places in `classes`."""

    X: NDArray[np.float64]
    y: NDArray[np.intp]
    weight: NDArray[np.float64]
    classes: NDArray[np.int16]


class ClosedFormClassifier(ClassifierMixin, BaseEstimator, BatchedLearner):
    """Base class: a scikit-learn classifier that is also a learner of whole ensembles.

    A subclass implements `_fit_one` for one partition; `fit` and `fit_members` call it, so a member
    is the classifier fitted on its partition, bit for bit.

    Guarantee
    ---------
    A member is a function of the multiset of its partition's rows: they are sorted before anything
    is added up, and every matrix that is factorised holds rows of that partition alone.
    """

    _members: ClassVar[type[StackedMembers]]
    _takes_missing: ClassVar[bool] = False

    precision: Any

    def _check_parameters(self) -> None:
        """Raise InvalidInputError for parameters that make no sense."""

    def _require_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not (is_number(value) and 0 < value < np.inf):
                raise InvalidInputError(f"{name} must be positive and finite, but is {value!r}.")

    def _member_settings(self) -> dict[str, Any]:
        """Return what decides votes beside the arrays of a member, as JSON."""
        return {}

    @abstractmethod
    def _fit_one(self, member: MemberData, settings: dict[str, Any]) -> MemberParts:
        """Fit one member on rows of two or more classes."""

    def specification(self) -> Mapping[str, Any]:
        """Return everything about this learner that can change a member's bits, as JSON."""
        return {
            "learner": type(self).__name__,
            "parameters": self.get_params(deep=False),
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
        if data.sample_weight is not None and not has_fit_parameter(self, "sample_weight"):
            raise InvalidInputError(
                f"{type(self).__name__} does not take sample_weight. Leave the weights out, or use "
                "a learner that takes them, for example RidgeClassifier."
            )
        settings = self._settings(int(np.prod(np.shape(data.X)[1:])), n_classes)
        parts: list[MemberParts] = []
        with one_thread("blas"), ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:
            blocks = list(_blocks(data, which, settings["n_features"]))
            for fitted in pool.map(partial(self._fit_block, data, settings), blocks):
                parts.extend(fitted)
                progress.advance(len(fitted))
        return self._members.stack(settings, parts)

    def _settings(self, n_features: int, n_classes: int) -> dict[str, Any]:
        self._check_parameters()
        if self.precision not in {"single", "double"}:
            raise InvalidInputError(
                f"precision must be 'single' or 'double', but is {self.precision!r}."
            )
        return {
            **self._member_settings(),
            "n_classes": int(n_classes),
            "n_features": int(n_features),
            "precision": self.precision,
        }

    def _fit_block(
        self, data: PartitionedData, settings: dict[str, Any], block: Sequence[int]
    ) -> list[MemberParts]:
        """Fit the members of a few partitions; those that cannot be fitted abstain."""
        numbers = [data.rows(index) for index in block]
        rows = np.concatenate(numbers)
        try:
            X = _gathered(data.X, numbers)
        except InvalidRowsError as error:
            if len(block) == 1:
                return [_abstaining(error)]
            # A row that is no row of numbers silences its own member.
            return [self._fit_block(data, settings, [index])[0] for index in block]
        weight = None if data.sample_weight is None else data.sample_weight[rows]
        owner = np.repeat(np.arange(len(block)), [len(some) for some in numbers])
        fitted = self._fit_partitions(X, data.y[rows], weight, owner, len(block), settings)
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
        """Fit member ``owner[j]`` on its rows j; what a member raises stands in its place."""
        X = np.array(samples, dtype=np.float64, order="C") + 0.0
        X[np.isnan(X)] = np.nan  # one NaN
        weights = np.ones(len(y)) if weight is None else np.array(weight, dtype=np.float64)
        results: dict[int, MemberParts | Exception] = {**self._invalid(X, weights, owner)}
        order = _canonical_order(X, y, weights, owner)
        order = order[(weights[order] > 0) & ~np.isin(owner[order], list(results))]
        weightless = set(owner[weights == 0].tolist())
        X, y, weights, owner = X[order], y[order], weights[order], owner[order]
        ends = np.cumsum(np.bincount(owner, minlength=n_members)).tolist()
        found: dict[int, MemberData] = {}
        for member, (start, stop) in enumerate(pairwise([0, *ends])):
            if member in results:
                continue
            here = slice(start, stop)
            present = np.bincount(y[here]).nonzero()[0]
            classes = present.astype(np.int16)
            if start == stop and member in weightless:
                results[member] = InvalidInputError("all weights of the partition are zero")
            elif len(classes) < 2:
                results[member] = MemberParts(classes)
            else:
                places = present.searchsorted(y[here])
                found[member] = MemberData(X[here], places, weights[here], classes)
        with np.errstate(all="ignore"):
            for member, rows in found.items():
                try:
                    results[member] = self._fit_one(rows, settings)
                except Exception as error:
                    if is_machine_error(error):
                        raise
                    results[member] = error
        return [results[member] for member in range(n_members)]

    def _invalid(
        self, X: NDArray[np.float64], weights: NDArray[np.float64], owner: NDArray[np.intp]
    ) -> dict[int, Exception]:
        """Return the reasons of members that cannot be fitted because of their rows or weights."""
        found: dict[int, Exception] = {}
        # Sums and products of weights far outside this range are rounded to zero or overflow.
        good = (weights == 0) | ((weights >= LEAST_WEIGHT) & (weights <= LARGEST_WEIGHT))
        for member in np.unique(owner[~good]).tolist():
            found[member] = InvalidInputError(
                f"sample_weight must be 0 or lie between {LEAST_WEIGHT:g} and {LARGEST_WEIGHT:g}, "
                f"but is {weights[~good & (owner == member)][0]:g} in one row. Multiply all "
                "weights by a fixed number"
            )
        bad = np.isinf(X) if self._takes_missing else ~np.isfinite(X)
        what = "infinity" if self._takes_missing else "NaN or infinity"
        for member in np.unique(owner[bad.any(axis=1)]).tolist():
            found[member] = InvalidRowsError(f"the partition holds {what}")
        return found

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
        """
        X, y = self._validated(X, y)
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        self.classes_, index = np.unique(y, return_inverse=True)
        settings = self._settings(X.shape[1], len(self.classes_))
        with one_thread("blas"):
            owner = np.zeros(len(index), dtype=np.intp)
            (parts,) = self._fit_partitions(X, index, sample_weight, owner, 1, settings)
        if isinstance(parts, Exception):
            raise parts
        self.members_ = self._members.stack(settings, [parts])
        return self

    def _validated(self, X: Any, *y: Any) -> Any:
        """Return rows, and labels in `fit`, as scikit-learn checks them."""
        finite = "allow-nan" if self._takes_missing else True
        options: dict[str, Any] = {"dtype": (np.float64, np.float32), "ensure_all_finite": finite}
        return validate_data(self, X, *y, reset=bool(y), **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing
        return tags

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of every row of `X`, shape (n,)."""
        check_is_fitted(self)
        votes = self.members_.votes(self._validated(X), n_jobs=None, progress=Silent())
        return np.asarray(self.classes_[votes[:, 0]])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return one score per class, (n, C), or for two classes the difference of both, (n,)."""
        check_is_fitted(self)
        scores = self.members_.scores(self._validated(X), n_jobs=None, progress=Silent())[:, 0]
        if len(self.classes_) == 2:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores


def _canonical_order(
    X: NDArray[np.float64],
    y: NDArray[Any],
    weights: NDArray[np.float64],
    owner: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Return the rows member after member, in an order that depends on their values only.

    Rows of a member that tie are equal in every bit, so their order cannot matter.
    """
    record = np.concatenate(
        [X, y.astype(np.float64)[:, np.newaxis], weights[:, np.newaxis]], axis=1
    )
    as_bytes = record.view(np.dtype((np.void, record.shape[1] * record.itemsize)))
    by_value = np.argsort(as_bytes[:, 0], kind="stable")
    return by_value[np.argsort(owner[by_value], kind="stable")]


def _blocks(data: PartitionedData, which: Sequence[int], n_features: int) -> Iterator[list[int]]:
    """Group partitions so that a few thousand rows, fewer of wide ones, are gathered at once."""
    block: list[int] = []
    rows = 0
    enough = min(_BLOCK_ROWS, _BLOCK_CELLS // max(1, n_features))
    sizes = data.sizes
    for index in which:
        block.append(int(index))
        rows += int(sizes[index])
        if rows >= enough:
            yield block
            block, rows = [], 0
    if block:
        yield block


def _gathered(X: Any, numbers: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
    """Return the rows of several partitions as numbers.

    Whatever is not an array of numbers is read by partition: no other row may decide its types.
    """
    if type(X) is np.ndarray and X.dtype.kind in "biuf":
        return sample_matrix(take_canonical(X, np.concatenate(numbers)))
    parts = [some for some in numbers if len(some)] or [np.concatenate(numbers)]
    return np.concatenate([sample_matrix(take_canonical(X, some)) for some in parts])


def _abstaining(error: Exception) -> MemberParts:
    reason = f"{type(error).__name__}: {error}"
    return MemberParts(np.empty(0, dtype=np.int16), failure=reason)
