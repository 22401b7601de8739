"""Deep Partition Aggregation: certified against inserted, deleted and changed rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import _safe_indexing

from poisonproof.certificates.threats import TRUSTED_SAMPLES, UNTOUCHED_MAP
from poisonproof.estimators.aggregation import PartitionAggregation
from poisonproof.estimators.maps import fresh_map, map_partitions
from poisonproof.estimators.training_rows import TrainingSet
from poisonproof.exceptions import GuaranteeError
from poisonproof.features.base import is_own_map, learns_nothing
from poisonproof.members.member import guarded, is_machine_error
from poisonproof.members.streams import in_own_streams, seed_nested
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.partition.values import take_canonical
from poisonproof.threads import one_thread


class DPAClassifier(PartitionAggregation):
    """A classifier that an attacker who inserts and deletes training rows cannot turn.

    Every row is hashed into one of k partitions and one member is trained per partition, so one
    poisoned row reaches one member; the plurality of the votes changes only if enough members do
    (theorem 1 of Levine and Feizi, 2021).

    Parameters
    ----------
    estimator : classifier, optional
        What a member is: any scikit-learn classifier or pipeline. By default
        `ScaledKernelClassifier`, which takes tables as they come and trains all members in one
        computation.
    n_partitions : int, default=50
        Number of members, k. More members, larger certificates, less data for each.
    partitioner : {"content", "pixel_sum", "group"} or partitioner, default="content"
        Which partition a row falls into. "group" hashes the contributor instead of the row.
    classes : array of shape (C,), optional
        The label set. If it is not declared it is taken from `y`, and the certificates carry the
        assumption that the attacker uses only these labels and removes none entirely.
    features : transformer, optional
        A fixed map of a sample that learns nothing from data, applied after partitioning. It sees
        canonical values (numbers are float64), in training those of one partition at a time, in
        prediction one sample at a time.
    invalid_rows : {"raise", "drop"}, default="raise"
        What to do with a training row that has an unknown label or values no member can take.
    n_jobs : int, optional
        Worker processes. Has no influence on any member.
    random_state : int, default=0
        Random streams are keyed by it and the partition's index.
    verbose : int, default=0
        Whether to draw a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The label set, sorted.
    partition_sizes_ : ndarray of shape (k,)
        Rows per partition.
    failures_ : dict of int to str
        Why members abstain whose learner raised.
    n_dropped_ : int
        Training rows left out.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from poisonproof import DPAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = DPAClassifier(n_partitions=20, classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> bool(certificates.radius.max() >= 9)
    True
    """

    threats: ClassVar = ("insert_delete", "label_flip", "replace")

    def __init__(
        self,
        estimator: Any = None,
        n_partitions: int = 50,
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
        self.partitioner = partitioner
        self.classes = classes
        self.features = features
        self.invalid_rows = invalid_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit_features(self, data: PartitionedData) -> Any:
        if self.features is None:
            return None
        if not learns_nothing(self.features, stateless=True):
            raise GuaranteeError(
                f"{type(self.features).__name__} learns from all training rows, so one inserted "
                "row could reach every member. Put it inside the member's pipeline, use a fixed "
                "map from poisonproof.features, or SSDPAClassifier if only labels are untrusted."
            )
        reasons = []
        for first in data.order[data.offsets[:-1][data.sizes > 0]]:
            try:
                return fresh_map(self.features).fit(take_canonical(data.X, np.array([first])))
            except Exception as error:  # a strange row is the matter of its own partition
                if is_machine_error(error):
                    raise
                reasons.append(error)
        raise reasons[0]

    def _member_data(self, data: PartitionedData, which: Sequence[int]) -> PartitionedData:
        data = data if len(which) == len(data) else data.only(which)
        if self.features_ is None:
            return data
        if is_own_map(self.features_):
            return replace(data, X=self.features_.transform(data.X))
        return map_partitions(self.features_, data, self.random_state)

    def _assumptions(self) -> tuple[str, ...]:
        return (*learned_map(self._template()), *super()._assumptions())


def learned_map(template: Any) -> tuple[str, ...]:
    """Return what to assume of a member that begins with a map learned from samples."""
    parts = [template, *template.get_params(deep=True).values()]
    learned = any(
        type(part).__module__.startswith("poisonproof.networks.pretraining.") for part in parts
    )
    return (UNTOUCHED_MAP,) if learned else ()


# Semi-supervised DPA: certified against flipped labels, with features from all samples.


class SSDPAClassifier(PartitionAggregation):
    """A classifier that an attacker who flips training labels cannot turn.

    The attacker cannot touch samples, so features may be learned from all of them, without labels,
    and partitions may be cut from their sorted order (theorem 2 of Levine and Feizi, 2021).

    Parameters
    ----------
    estimator : classifier, optional
        What a member is; it is trained on the features of its partition. By default
        `ScaledKernelClassifier`.
    features : transformer, optional
        Fitted on all samples, in an order their values decide, and never on a label.
    n_partitions : int, default=50
        Number of members, k.
    partitioner : {"sorted", "content", "pixel_sum", "group"} or partitioner, default="sorted"
        Which partition a row falls into. Repeated samples share a partition.
    classes, invalid_rows, n_jobs, random_state, verbose
        As in `DPAClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from poisonproof import SSDPAClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = SSDPAClassifier(KNeighborsClassifier(1), PCA(16), n_partitions=40, classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> certificates.threat.name
    'label_flip'
    """

    threats: ClassVar = ("label_flip",)

    def __init__(
        self,
        estimator: Any = None,
        features: Any = None,
        n_partitions: int = 50,
        *,
        partitioner: Any = "sorted",
        classes: Any = None,
        invalid_rows: str = "raise",
        n_jobs: int | None = None,
        random_state: int = 0,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.features = features
        self.n_partitions = n_partitions
        self.partitioner = partitioner
        self.classes = classes
        self.invalid_rows = invalid_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _fit_features(self, data: PartitionedData) -> Any:
        if self.features is None:
            return None

        def learn() -> Any:
            features = fresh_map(self.features)
            seed_nested(features, self.random_state, len(data))
            return features.fit(guarded(take_canonical(data.X, _by_sample(data))))

        return in_own_streams(self.random_state, len(data), learn)

    def _member_data(self, data: PartitionedData, which: Sequence[int]) -> PartitionedData:
        if self.features_ is None:
            return data
        # All samples, even if few partitions train again: the map of some rows alone may round
        # differently, and an update must equal a fit.
        order = _by_sample(data)
        with one_thread():
            mapped = self._mapped(take_canonical(data.X, order))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return replace(data, X=_safe_indexing(mapped, back))

    def _mapped_asked(self, rows: Any) -> Any:
        # Training rows were mapped together, and a learned map may take long for a single row.
        return self._mapped_together(rows)

    def _assumptions(self) -> tuple[str, ...]:
        return (TRUSTED_SAMPLES, *super()._assumptions())

    def _features_see_all_rows(self) -> bool:
        return self.features is not None

    def _context(self, rows: TrainingSet) -> str | None:
        if self.features is None:
            return None
        data = rows.whole()
        return hashlib.sha256(data.digests[_by_sample(data)].tobytes()).hexdigest()

    def _features_depend_on(self, before: PartitionedData, after: PartitionedData) -> bool:
        if self.features is None:
            return False
        first, second = (data.digests[_by_sample(data)] for data in (before, after))
        return not np.array_equal(first, second)


def _by_sample(data: PartitionedData) -> Any:
    """Return the row numbers sorted by sample, whatever the labels and the caller's order."""
    return np.lexsort(data.digests.view(">u8").T[::-1])
