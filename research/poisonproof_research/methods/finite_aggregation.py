"""The rows of members that share buckets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.estimators.certifying import VotingMembers
from poisonproof.estimators.dpa import DPAClassifier, learned_map
from poisonproof.estimators.maps import refuse_steps_in_front
from poisonproof.estimators.saving import save
from poisonproof.estimators.self_check import check_ensemble
from poisonproof.estimators.training_rows import HeldRows, Rows, TrainingSet, check_training_rows
from poisonproof.estimators.updating import apply_change, plan_update
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.member import Ensemble
from poisonproof.members.training import train
from poisonproof.partition.containers import as_container, take_rows
from poisonproof.partition.partitioned import PartitionedData, partition_data
from poisonproof_research.methods.shared_buckets import (
    Spread,
    certify_finite_aggregation,
    make_spread,
)


def spread_rows(buckets: PartitionedData, spread: Spread) -> PartitionedData:
    """Return the rows of every member: those of its d buckets.

    Parameters
    ----------
    buckets : PartitionedData with k d partitions
        The training set in buckets.
    spread : Spread
        Which members a bucket serves.

    Returns
    -------
    PartitionedData with k d partitions
        One per member; every row occurs d times.

    Examples
    --------
    >>> from poisonproof.partition import ContentHash, partition_data
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> buckets = partition_data(X, y, ContentHash(n_partitions=4))
    >>> int(spread_rows(buckets, Spread(2, offsets=(0, 1))).sizes.sum())
    40
    """
    served: NDArray[np.int64] = spread.members_of_bucket[buckets.assignment]  # (m, d)
    rows = np.repeat(np.arange(buckets.n_rows), spread.degree)
    weight = buckets.sample_weight
    return PartitionedData.build(
        take_rows(as_container(buckets.X), rows),
        buckets.y[rows],
        served.ravel(),
        buckets.digests[rows],
        spread.n_buckets,
        sample_weight=None if weight is None else weight[rows],
    )


# Finite aggregation: overlapping partitions, d members on every row.

_PREPARED = (
    "classes_",
    "container_",
    "features_",
    "partitioner_",
    "n_dropped_",
    "n_features_in_",
    "feature_names_in_",
)
"""What is known before a member is trained."""


class FiniteAggregationClassifier(VotingMembers):
    """DPA with more members than the data has disjoint parts: buckets of rows are shared.

    Rows are hashed into k d buckets, and every bucket serves d of k d members. A member sees as
    many rows as one of k disjoint partitions, and a poisoned row reaches d members of k d, the same
    share as one of k. The certificate looks at which members share a bucket (Wang, Levine and
    Feizi, ICML 2022), and is often larger; training costs d times as much.

    Parameters
    ----------
    estimator : classifier, optional
        What a member is, as in `DPAClassifier`; learners that train many members at once, on a
        GPU too, train all k d.
    n_partitions : int, default=50
        k, the inverse of the share of rows that a member sees.
    degree : int, default=4
        d, how many members a row reaches. 1 is DPA.
    partitioner, classes, features, invalid_rows, n_jobs, random_state, verbose
        As in `DPAClassifier`; the partitioner makes the k d buckets.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The label set, sorted.
    spread_ : Spread
        Which members a bucket serves: a function of k and d alone.
    member_sizes_ : ndarray of shape (k d,)
        Rows per member.

    Guarantee
    ---------
    A member is a function of its own buckets, the parameters and `random_state`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = FiniteAggregationClassifier(n_partitions=10, degree=3, classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> certificates.n_members, certificates.method
    (30, 'finite_aggregation')
    """

    threats: ClassVar = ("insert_delete", "label_flip", "replace")
    more_parameters: ClassVar = ("degree",)

    def __init__(
        self,
        estimator: Any = None,
        n_partitions: int = 50,
        degree: int = 4,
        *,
        partitioner: Any = "content",
        classes: Any = None,
        features: Any = None,
        invalid_rows: str = "raise",
        n_jobs: int | None = None,
        random_state: int = 0,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_partitions = n_partitions
        self.degree = degree
        self.partitioner = partitioner
        self.classes = classes
        self.features = features
        self.invalid_rows = invalid_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    __metadata_request__fit: ClassVar = {"self_check": UNUSED}

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        sample_weight: Any = None,
        *,
        self_check: bool = False,
    ) -> Self:
        """Hash the rows into buckets and train one member on every d of them.

        Parameters
        ----------
        X, y, groups, sample_weight, self_check
            As in `DPAClassifier.fit`.
        """
        refuse_steps_in_front(self)
        make_spread(self.n_partitions, self.degree)  # refuses what is no k or d
        buckets = self._bucket_classifier()
        data = buckets._prepare(X, y, groups, sample_weight)
        for name in _PREPARED:
            if hasattr(buckets, name):
                setattr(self, name, getattr(buckets, name))
        shared = spread_rows(data, self.spread_)
        self._remember(HeldRows(data), shared.partition_digests())
        ensemble = self._train(data, range(self.spread_.n_buckets))
        self.n_self_checked_ = 0
        if self_check:
            prepared = self.prepared_buckets()
            mapped = spread_rows(prepared._member_data(data, range(len(data))), self.spread_)
            prepared.features_ = None  # a row is mapped once for all members that see it
            self.n_self_checked_ = check_ensemble(prepared, HeldRows(mapped), ensemble)
        self.ensemble_ = ensemble
        self._report_failures()
        return self

    def update(self, add: Any = None, remove: Any = None, *, data: Any = None) -> Self:
        """Add and remove training rows; only members whose buckets change train again.

        The result equals `fit` on the new training set, member by member and bit by bit; a row
        costs the training of d members. The attribute ``receipt_`` says what was done.

        Parameters
        ----------
        add, remove, data
            As in `DPAClassifier.update`; a loaded model needs `data`.
        """
        check_is_fitted(self, "ensemble_")
        buckets = self._fitted_buckets(data)
        change = plan_update(buckets, add, remove)
        after = change.rows.whole()
        digests = spread_rows(after, self.spread_).partition_digests()
        changed = [i for i, known in enumerate(self.partition_digests_) if known != digests[i]]
        self.receipt_ = apply_change(
            self,
            replace(
                change, retrain=changed, data=after, rows=HeldRows(after), partition_digests=digests
            ),
        )
        return self

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model: a manifest and members, no pickle.

        Parameters
        ----------
        path : path
            A directory, or an archive if it ends in ``.zip``. An earlier state of the model there
            is replaced. Training rows are not kept.
        overwrite : bool, default=False
            Replace another model that stands there (other members, labels, parameters or columns),
            which is refused otherwise.
        """
        check_is_fitted(self, "ensemble_")
        save(self, path, keep_data=False, overwrite=overwrite)

    @property
    def spread_(self) -> Spread:
        """Which members a bucket serves."""
        return make_spread(self.n_partitions, self.degree)

    @property
    def member_sizes_(self) -> NDArray[np.intp]:
        """Rows per member, shape (k d,)."""
        sizes: NDArray[np.intp] = self.partition_sizes_
        return sizes

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        return certify_finite_aggregation(
            self.votes(X), len(self.classes_), self.spread_, threat=threat, target=target
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = self._bucket_classifier().__sklearn_tags__().input_tags
        return tags

    def _assumptions(self) -> tuple[str, ...]:
        return (*learned_map(self._template()), *super()._assumptions())

    def _template(self) -> Any:
        return self._bucket_classifier()._template()

    def _learner(self) -> Any:
        buckets = self._bucket_classifier()
        buckets.classes_ = self.classes_
        return buckets._learner()

    def _fit_features(self, data: PartitionedData) -> Any:
        return self._bucket_classifier()._fit_features(data)

    def _train(self, data: PartitionedData, which: Sequence[int]) -> Ensemble:
        """Train some members on the rows of all buckets."""
        buckets = self._bucket_classifier()
        buckets.features_ = self.features_
        # Mapped before rows are shared: a map of a row is the same for all members that see it.
        shared = spread_rows(buckets._member_data(data, range(len(data))), self.spread_)
        return train(
            self._learner(),
            shared if len(which) == len(shared) else shared.only(which),
            list(which),
            len(self.classes_),
            self.random_state,
            **buckets._schedule(),
        )

    def _remember(self, rows: TrainingSet, partition_digests: Sequence[str]) -> None:
        self.rows_: TrainingSet | None = rows
        self.partition_digests_ = list(partition_digests)
        self.partition_sizes_ = rows.sizes[self.spread_.buckets_of_member].sum(axis=1)
        self.context_ = None

    def _report_failures(self) -> None:
        buckets = self._bucket_classifier()
        buckets.ensemble_, buckets.partition_sizes_ = self.ensemble_, self.partition_sizes_
        buckets._report_failures()
        self.failures_ = buckets.failures_

    def prepared_buckets(self) -> DPAClassifier:
        """Return the DPA classifier of the buckets, ready to check rows and to train."""
        buckets = self._bucket_classifier()
        for name in _PREPARED:
            if hasattr(self, name):
                setattr(buckets, name, getattr(self, name))
        return buckets

    def _fitted_buckets(self, data: Any) -> DPAClassifier:
        """Return the classifier of the buckets with its training rows, those given as `data`."""
        buckets = self.prepared_buckets()
        if data is not None:
            given = check_training_rows(buckets, *Rows.parse(data, "data"), classes=self.classes_)
            rows = partition_data(
                given.X,
                given.y,
                self.partitioner_,
                groups=given.groups,
                sample_weight=given.sample_weight,
            )
            if spread_rows(rows, self.spread_).partition_digests() != self.partition_digests_:
                raise InvalidInputError(
                    "data is not what the model was trained on: members see other rows. Nothing "
                    "changed."
                )
            buckets.rows_ = HeldRows(rows)
        elif self.rows_ is None:
            raise InvalidInputError(
                "a loaded model does not have its training rows. Give them: update(..., "
                "data=(X, y))."
            )
        else:
            buckets.rows_ = self.rows_
        buckets.partition_digests_ = buckets.rows_.whole().partition_digests()
        return buckets

    def _bucket_classifier(self) -> DPAClassifier:
        """Return the DPA classifier whose partitions are the buckets."""
        parameters = self.get_params(deep=False)
        degree = parameters.pop("degree")
        parameters["n_partitions"] = self.n_partitions * degree
        return DPAClassifier(**parameters)
