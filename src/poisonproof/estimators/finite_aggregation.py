"""Finite aggregation: overlapping partitions, d members on every row."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates import (
    Certificates,
    Spread,
    Threat,
    certify_finite_aggregation,
    make_spread,
)
from poisonproof.engines.local import train
from poisonproof.estimators.dpa import DPAClassifier
from poisonproof.estimators.surroundings import refuse_learned_steps
from poisonproof.estimators.voting import VotingMembers
from poisonproof.partition import PartitionedData
from poisonproof.partition.containers import as_container, take_rows

__all__ = ["FiniteAggregationClassifier", "spread_rows"]

_FITTED = (
    "classes_",
    "ensemble_",
    "failures_",
    "features_",
    "partitioner_",
    "n_dropped_",
    "n_features_in_",
    "feature_names_in_",
)


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
        """Hash the rows into buckets and train one member on every d of them.

        Parameters
        ----------
        X, y, groups, sample_weight
            As in `DPAClassifier.fit`.
        """
        refuse_learned_steps(self)
        self.spread_ = make_spread(self.n_partitions, self.degree)
        buckets = self._bucket_classifier()
        data = buckets._prepare(X, y, groups, sample_weight)
        # Mapped before rows are shared: a map of a row is the same for all members that see it.
        mapped = buckets._member_data(data, range(len(data)))
        members = spread_rows(mapped, self.spread_)
        buckets.ensemble_ = train(
            buckets._learner(),
            members,
            list(range(len(members))),
            len(buckets.classes_),
            self.random_state,
            **buckets._schedule(),
        )
        buckets.partition_sizes_ = self.member_sizes_ = members.sizes
        buckets._report_failures()
        for name in _FITTED:
            if hasattr(buckets, name):
                setattr(self, name, getattr(buckets, name))
        return self

    def certify(
        self,
        X: Any,
        threat: str | Threat | None = None,
        target: Any = None,
        *,
        require_declared: bool = False,
    ) -> Certificates:
        """Predict and certify as `DPAClassifier.certify` does, for members that share buckets."""
        check_is_fitted(self, "ensemble_")
        resolved = self._resolve_threat(threat, require_declared)
        index = None if target is None else self._class_index(target)
        certificates = certify_finite_aggregation(
            self.votes(X), len(self.classes_), self.spread_, threat=resolved, target=index
        )
        return certificates.with_classes(self.classes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = self._bucket_classifier().__sklearn_tags__().input_tags
        return tags

    def _template(self) -> Any:
        return self._bucket_classifier()._template()

    def _bucket_classifier(self) -> DPAClassifier:
        """Return the DPA classifier whose partitions are the buckets."""
        parameters = self.get_params(deep=False)
        degree = parameters.pop("degree")
        parameters["n_partitions"] = self.n_partitions * degree
        return DPAClassifier(**parameters)


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
