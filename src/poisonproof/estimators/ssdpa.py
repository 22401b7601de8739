"""Semi-supervised DPA: certified against flipped labels, with features from all samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import _safe_indexing

from poisonproof.certificates.threats import TRUSTED_SAMPLES
from poisonproof.estimators.aggregation import PartitionAggregation
from poisonproof.estimators.mapped import fresh_map
from poisonproof.estimators.training_sets import TrainingSet
from poisonproof.learners.members import guarded
from poisonproof.learners.streams import in_own_streams, seed_nested
from poisonproof.partition import PartitionedData, take_canonical
from poisonproof.threads import one_thread

__all__ = ["SSDPAClassifier"]


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
