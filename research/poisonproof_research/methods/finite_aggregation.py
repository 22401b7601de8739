"""Partition aggregation with more members than the data has disjoint parts: buckets are shared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.estimators.certifying import CertifyingClassifier, member_scores
from poisonproof.estimators.dpa import DPAClassifier
from poisonproof.members.member import Ensemble
from poisonproof.members.training import train
from poisonproof.partition.containers import as_container, take_rows
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import make_progress
from poisonproof_research.methods.shared_buckets import (
    Spread,
    certify_finite_aggregation,
    certify_shared_runoff,
    make_spread,
)


def spread_rows(buckets: PartitionedData, spread: Spread) -> PartitionedData:
    """Return the rows of every member, those of its d buckets; every row occurs d times.

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
    shared = PartitionedData.build(
        take_rows(as_container(buckets.X), rows),
        buckets.y[rows],
        served.ravel(),
        buckets.digests[rows],
        spread.n_buckets,
        sample_weight=None if weight is None else weight[rows],
    )
    return replace(shared, categories=buckets.categories)


class FiniteAggregationClassifier(CertifyingClassifier):
    """DPA with more members than the data has disjoint parts: buckets of rows are shared.

    Rows are hashed into k d buckets, and every bucket serves d of k d members. A member sees as
    many rows as one of k disjoint partitions, and a poisoned row reaches d members of k d, the same
    share as one of k. The certificate looks at which members share a bucket (Wang, Levine and
    Feizi, ICML 2022), and is often larger; training costs d times as much.

    Parameters
    ----------
    estimator : classifier, optional
        What a member is, as in `DPAClassifier`.
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

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> Self:
        """Hash the rows into buckets and train one member on every d of them."""
        spread = self.spread_
        # It prepares rows, learner and samples. Its own certificates would be void: it takes
        # its partitions, which are the buckets, for members.
        buckets = self._bucket_classifier()
        data = buckets._prepare(X, y, groups, sample_weight)
        # Mapped before rows are shared: a map of a row is the same for all members that see it.
        shared = spread_rows(buckets._member_data(data, range(len(data))), spread)
        buckets.ensemble_ = train(
            buckets._learner(),
            shared,
            list(range(spread.n_buckets)),
            len(buckets.classes_),
            self.random_state,
            n_jobs=self.n_jobs,
            progress=make_progress(self.verbose),
        )
        self.member_sizes_ = data.sizes[spread.buckets_of_member].sum(axis=1)
        buckets.partition_sizes_ = self.member_sizes_
        buckets._report_failures()
        self._buckets, self.classes_, self.partitioner_ = (
            buckets,
            buckets.classes_,
            buckets.partitioner_,
        )
        return self

    @property
    def spread_(self) -> Spread:
        """Members that each bucket serves: a function of k and d alone."""
        return make_spread(self.n_partitions, self.degree)

    @property
    def ensemble_(self) -> Ensemble:
        """The k d members."""
        return self._buckets.ensemble_

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return every member's vote, shape (n, k d): indices into ``classes_``, -1: abstains."""
        check_is_fitted(self, "classes_")
        return self._buckets.votes(X)

    def certify_runoff(
        self,
        X: Any,
        threat: str | Threat | None = None,
        target: Any = None,
        *,
        require_declared: bool = False,
    ) -> Certificates:
        """Predict and certify by run-off election instead of plurality, as `certify` otherwise."""
        found = certify_shared_runoff(
            member_scores(self._buckets, X),
            self.spread_,
            self._resolve_threat(threat, require_declared),
            self._class_index(target),
        )
        return found.with_classes(self.classes_)

    def _counted(self, X: Any) -> Certificates:
        check_is_fitted(self, "classes_")
        return self._buckets._counted(X)

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        return certify_finite_aggregation(
            self.votes(X), len(self.classes_), self.spread_, threat, target
        )

    def _resolve_threat(self, asked: str | Threat | None, require_declared: bool) -> Threat:
        check_is_fitted(self, "classes_")
        return self._buckets._resolve_threat(asked, require_declared)

    def _bucket_classifier(self) -> DPAClassifier:
        """Return the DPA classifier whose partitions are the buckets."""
        parameters = self.get_params(deep=False)
        degree = parameters.pop("degree")
        parameters["n_partitions"] = self.n_partitions * degree
        return DPAClassifier(**parameters)
