"""What DPA and SS-DPA share: partition, train one member each, vote, certify, update."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates import Certificates, certify_votes
from poisonproof.certificates.threats import (
    OBSERVED_LABELS,
    Threat,
    parse_threat,
    resolve_threat,
    uncertified,
)
from poisonproof.engines.local import train
from poisonproof.estimators.saving import save
from poisonproof.estimators.surroundings import refuse_learned_steps
from poisonproof.estimators.tags import input_tags
from poisonproof.estimators.training_rows import check_training_rows, updated_data
from poisonproof.estimators.validation import check_random_state, check_samples, finite_rows
from poisonproof.exceptions import (
    GuaranteeError,
    InvalidInputError,
    InvalidRowsError,
    MemberWarning,
)
from poisonproof.learners.base import BatchedLearner, Ensemble, Learner
from poisonproof.learners.scikit import ScikitLearner
from poisonproof.partition import (
    PartitionedData,
    Partitioner,
    make_partitioner,
    partition_data,
    sample_digests,
    take_canonical,
)
from poisonproof.progress import make_progress

__all__ = ["PartitionAggregation"]


class PartitionAggregation(ClassifierMixin, BaseEstimator):
    """An ensemble with one member per partition that predicts by plurality vote.

    Guarantee
    ---------
    A member is a function of its own partition, the parameters and `random_state`. Row order,
    containers, `n_jobs` and the other partitions have no influence on its bits.
    """

    threats: ClassVar[tuple[str, ...]]
    """The threats this method can certify, the first one by default."""

    estimator: Any
    features: Any
    n_partitions: int
    partitioner: Any
    classes: Any
    invalid_rows: str
    n_jobs: int | None
    random_state: int
    verbose: int

    classes_: NDArray[Any]
    partitioner_: Partitioner
    features_: Any
    ensemble_: Ensemble
    data_: PartitionedData | None

    @abstractmethod
    def _fit_features(self, data: PartitionedData) -> Any:
        """Return the fitted feature map for samples in canonical order, or None."""

    @abstractmethod
    def _member_data(self, data: PartitionedData, which: Sequence[int]) -> PartitionedData:
        """Return the partitions `which` as members see them: mapped to features, if any."""

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Partition the rows and train one member per partition.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (m, ...)
            Samples.
        y : array of shape (m,)
            Labels.
        groups : array of shape (m,), optional
            The contributor of every row, for ``partitioner="group"``.
        sample_weight : array of shape (m,), optional
            Weights, handed to the members. Every weight is the attacker's to choose.

        Returns
        -------
        self
        """
        check_random_state(self.random_state)
        refuse_learned_steps(self)
        rows = check_training_rows(self, X, y, groups, sample_weight)
        self.classes_ = rows.classes
        self.n_dropped_ = rows.n_dropped
        self.partitioner_ = make_partitioner(self.partitioner, self.n_partitions)
        data = partition_data(
            rows.X, rows.y, self.partitioner_, groups=rows.groups, sample_weight=rows.sample_weight
        )
        self.features_ = self._fit_features(data)
        self.ensemble_ = self._train(data, range(len(data)))
        self._keep(data)
        return self

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return every member's vote.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Samples.

        Returns
        -------
        ndarray of shape (n, k)
            Indices into ``classes_``, -1 where a member abstains.
        """
        check_is_fitted(self, "ensemble_")
        X = check_samples(self, X, reset=False)
        self._refuse_rows(~finite_rows(self, X))
        if self.features_ is not None:
            X = self.features_.transform(take_canonical(X, None))
        samples = take_canonical(X, None)
        return self.ensemble_.votes(
            samples, n_jobs=self.n_jobs, progress=make_progress(self.verbose)
        )

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the plurality label of every row, ties to the smaller label."""
        votes = self.votes(X)
        labels: NDArray[Any] = self.classes_[certify_votes(votes, len(self.classes_)).labels]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each label's share of the votes given, equal shares where all abstain."""
        counts = certify_votes(self.votes(X), len(self.classes_)).counts.astype(np.float64)
        given = counts.sum(axis=1, keepdims=True)
        shares = np.full_like(counts, 1 / len(self.classes_))
        np.divide(counts, given, out=shares, where=given > 0)
        return shares

    def certify(
        self,
        X: Any,
        threat: str | Threat | None = None,
        target: Any = None,
        *,
        require_declared: bool = False,
    ) -> Certificates:
        """Predict, and prove for every row how large an attack its prediction survives.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Samples.
        threat : {"insert_delete", "label_flip", "replace"}, optional
            What the attacker does to training rows; by default the strongest of the method.
        target : label, optional
            Certify against this one wrong label only.
        require_declared : bool, default=False
            Refuse to certify if `classes` was not declared but taken from the labels.

        Returns
        -------
        Certificates
            ``labels`` are class values.

        Raises
        ------
        GuaranteeError
            If nothing proves the certificate that was asked for.
        """
        check_is_fitted(self, "ensemble_")
        resolved = self._resolve_threat(threat, require_declared)
        index = None if target is None else self._class_index(target)
        certificates = certify_votes(
            self.votes(X), len(self.classes_), threat=resolved, target=index
        )
        return certificates.with_classes(self.classes_)

    def update(self, add: Any = None, remove: Any = None) -> Self:
        """Add and remove training rows; only partitions whose rows change train again.

        The result equals `fit` on the new training set, member by member and bit by bit.

        Parameters
        ----------
        add, remove : tuple (X, y), (X, y, groups) or (X, y, groups, sample_weight), optional
            Rows to add and rows to take out, one copy each. A mapping with these keys works too.

        Raises
        ------
        InvalidRowsError
            If a row to remove is not in the training set; the model stays as it was.
        """
        check_is_fitted(self, "ensemble_")
        if self.data_ is None:
            raise InvalidInputError(
                "this model was loaded without its training rows, so it cannot tell which rows its "
                "partitions hold. Fit it again, or update it before saving."
            )
        if add is None and remove is None:
            raise InvalidInputError("update needs rows to add, rows to remove, or both.")
        data = updated_data(self, self.data_, add, remove)
        changed = [
            index
            for index, (before, after) in enumerate(
                zip(self.partition_digests_, data.partition_digests(), strict=True)
            )
            if before != after
        ]
        _refuse_overwritten_rows(data, changed)
        features, ensemble = self.features_, self.ensemble_
        try:
            if self._features_depend_on(self.data_, data):
                self.features_ = self._fit_features(data)
                changed = list(range(len(data)))
            self.ensemble_ = self.ensemble_.replaced(changed, self._train(data, changed))
        except BaseException:
            self.features_, self.ensemble_ = features, ensemble
            raise
        self._keep(data)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a directory: a manifest, members, no pickle, no training rows.

        Parameters
        ----------
        path : path
            The directory; an earlier model there is replaced.
        """
        check_is_fitted(self, "ensemble_")
        save(self, path)

    def get_metadata_routing(self) -> MetadataRouter:
        """Say that `sample_weight` goes on to the members."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                estimator=self._template(),
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = input_tags(self._template() if self.features is None else self.features)
        tags.input_tags.pairwise = False
        return tags

    def _template(self) -> Any:
        template = DecisionTreeClassifier() if self.estimator is None else self.estimator
        if not is_classifier(template):
            raise InvalidInputError(
                f"estimator must be a classifier, got {type(template).__name__}: {template!r}."
            )
        return template

    def _learner(self) -> Learner | BatchedLearner:
        template = self._template()
        if isinstance(template, BatchedLearner):
            learner: BatchedLearner = clone(template)
            return learner
        return ScikitLearner(template, self.classes_)

    def _train(self, data: PartitionedData, which: Any) -> Any:
        return train(
            self._learner(),
            self._member_data(data, which),
            list(which),
            len(self.classes_),
            check_random_state(self.random_state),
            n_jobs=self.n_jobs,
            progress=make_progress(self.verbose),
        )

    def _keep(self, data: PartitionedData) -> None:
        self.data_ = data
        self.partition_sizes_ = data.sizes
        self.partition_digests_ = data.partition_digests()
        self.failures_ = self.ensemble_.failures()
        empty = int((data.sizes == 0).sum())
        if len(self.failures_) and len(self.failures_) + empty == len(data):
            raise InvalidInputError(
                f"no member could be trained; {next(iter(self.failures_.values()))}"
            )
        if self.failures_:
            index, reason = next(iter(self.failures_.items()))
            warnings.warn(
                f"{len(self.failures_)} of {len(data)} members abstain because their learner "
                f"raised; member {index}: {reason}",
                MemberWarning,
                stacklevel=3,
            )
        if len(data) > data.n_rows:
            warnings.warn(
                f"n_partitions={len(data)} is larger than the {data.n_rows} training rows: "
                f"{empty} members have no rows and abstain.",
                MemberWarning,
                stacklevel=3,
            )

    def _features_depend_on(self, before: PartitionedData, after: PartitionedData) -> bool:
        """Say whether the feature map may differ between two training sets."""
        return False

    def _refuse_rows(self, bad: NDArray[np.bool_]) -> None:
        if bad.any():
            allow_nan = get_tags(self).input_tags.allow_nan
            what = "infinity" if allow_nan else "NaN or infinity"
            raise InvalidRowsError(
                f"Input X contains {what} in row {int(np.argmax(bad))} ({int(bad.sum())} such "
                f"rows), which {type(self._template()).__name__} members cannot take. Remove them, "
                "impute inside the member's pipeline, or use a learner that takes missing values."
            )

    def _resolve_threat(self, asked: str | Threat | None, require_declared: bool) -> Threat:
        if require_declared and self.classes is None:
            raise GuaranteeError(
                "the label set was taken from the training labels, so one poisoned label could "
                "change the outputs of every member. Declare it: classes=[...]."
            )
        threat = self.threats[0] if asked is None else asked
        name = parse_threat(threat).name
        if name not in self.threats:
            raise uncertified(
                type(self).__name__, self.threats, name, dict.fromkeys([name], "DPAClassifier")
            )
        observed = () if self.classes is not None else (OBSERVED_LABELS,)
        return resolve_threat(threat, self.partitioner_, (*self._assumptions(), *observed))

    def _assumptions(self) -> tuple[str, ...]:
        """Return what the method itself takes for granted."""
        return ()

    def _class_index(self, target: Any) -> int:
        position = np.flatnonzero(self.classes_ == target)
        if len(position) != 1:
            raise InvalidInputError(
                f"target must be one of the classes {self.classes_.tolist()}, got {target!r}."
            )
        return int(position[0])


def _refuse_overwritten_rows(data: PartitionedData, which: Sequence[int]) -> None:
    """Raise if rows that are about to be trained on are not the rows that were partitioned."""
    if not which:
        return
    rows = np.concatenate([data.rows(index) for index in which])
    if not np.array_equal(sample_digests(_safe_indexing(data.X, rows)), data.digests[rows]):
        raise InvalidRowsError(
            "the training rows were changed in place after they were fitted, or cannot be held in "
            "one container with the added rows. Fit again."
        )
