"""Cluster votes: labels say which class a cluster of unlabeled samples is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.estimators.certifying import check_random_state
from poisonproof.estimators.checked_table import CheckedTable
from poisonproof.estimators.row_voting import (
    RowVoting,
    first_copies,
    require_integers,
    require_rows,
    require_shape,
)
from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.exact import ExactRows
from poisonproof.members.clusters import (
    AssignmentRule,
    SpectralClusters,
    best_assignment,
    certify_clusters,
    make_clusterer,
)
from poisonproof.members.streams import give_one_worker, in_own_streams, seed_nested
from poisonproof.partition.values import take_canonical


class ClusterVoteClassifier(RowVoting):
    """A classifier that uses labels only to name clusters of samples.

    The attacker may flip labels but not touch samples, so clusters may be learned from all
    samples. With ``assignment="local"`` every cluster takes the label of most of its rows. The
    other two choose one assignment of all clusters to classes, the one with most agreeing rows:
    to change one cluster the attacker must make two swap, which nearly doubles the radius.

    Parameters
    ----------
    features : transformer, optional
        Fitted on all samples, in an order their values decide, and never on a label.
    n_clusters : int, optional
        Number of clusters, K; by default one per class.
    assignment : {"local", "one_to_one", "onto"}, default="local"
        Which assignments are admissible: any, those that give no class twice (K <= C), or those
        that leave no class without a cluster (K >= C).
    clusterer : {"spectral", "kmeans", "mixture"} or estimator, default="spectral"
        How clusters are found. An estimator has `fit` and `predict` and its own number of clusters.
    classes : array of shape (C,), optional
        The label set; see `DPAClassifier`.
    device : str, optional
        "cuda" finds the neighbors of "spectral" on a GPU, with the same result.
    schema : Schema, optional
        How rows are read; see `DPAClassifier`.
    invalid_rows : {"raise", "drop"}, optional
        What to do with a training row whose values are not finite. An unknown label is an error.
    random_state : int, default=0
        Seed of clusterers that draw.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The label set, sorted.
    table_ : ndarray of shape (K, C)
        Rows of every cluster by label.
    cluster_classes_ : ndarray of shape (K,)
        The class of every cluster.
    clusters_ : ndarray of shape (m,)
        The cluster of every training row; of a loaded model in the order of the samples' digests.

    Guarantee
    ---------
    Features and clusters are a function of the multiset of samples, the parameters and
    `random_state`: neither labels nor row order reach them. Copies of a sample lie in one
    cluster, so it does not matter which of them carries which label.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = ClusterVoteClassifier(n_clusters=12, assignment="onto", classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> certificates.threat.name, bool(certificates.radius.max() > 75)
    ('label_flip', True)
    """

    threats: ClassVar = ("label_flip",)
    touches: ClassVar = {"label_flip": 2}
    template_names: ClassVar = ("features", "features_", "clusterer", "clusterer_")

    def __init__(
        self,
        features: Any = None,
        n_clusters: int | None = None,
        assignment: AssignmentRule = "local",
        *,
        clusterer: Any = "spectral",
        classes: Any = None,
        device: str | None = None,
        schema: Any = None,
        invalid_rows: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.features = features
        self.n_clusters = n_clusters
        self.assignment = assignment
        self.clusterer = clusterer
        self.classes = classes
        self.device = device
        self.schema = schema
        self.invalid_rows = invalid_rows
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_random_state(self.random_state)

    def _fit_rows(self, rows: CheckedTable, digests: NDArray[np.uint8]) -> None:
        order = np.lexsort(digests.view(">u8").T[::-1])
        samples = take_canonical(rows.X, order)
        found = in_own_streams(self.random_state, 0, lambda: self._find_clusters(samples))
        self.sorted_clusters_ = found[first_copies(digests[order])]
        self.clusters_ = np.empty_like(found)
        self.clusters_[order] = self.sorted_clusters_
        self._count_labels(rows.y)

    def _find_clusters(self, samples: Any) -> NDArray[np.int64]:
        n_clusters = len(self.classes_) if self.n_clusters is None else self.n_clusters
        mapped = self._fit_features(samples)
        self.clusterer_ = make_clusterer(self.clusterer, n_clusters, self.device)
        give_one_worker(self.clusterer_)
        seed_nested(self.clusterer_, self.random_state, 1)
        self.clusterer_.fit(mapped)
        found = getattr(self.clusterer_, "labels_", None)
        if found is None:  # mixtures know clusters by predict alone
            found = self.clusterer_.predict(mapped)
        clusters = np.asarray(found, dtype=np.int64)
        if int(clusters.min()) < 0:
            raise InvalidInputError(
                f"{type(self.clusterer_).__name__} leaves {int((clusters < 0).sum())} of "
                f"{len(clusters)} samples without a cluster. Use a clusterer that gives every "
                "sample one, numbered from 0."
            )
        return clusters

    def _count_labels(self, y: NDArray[np.int64]) -> None:
        n_clusters = self._n_clusters()
        table = np.zeros((n_clusters, len(self.classes_)), dtype=np.int64)
        np.add.at(table, (self.clusters_, y), 1)
        self.table_ = table
        self.cluster_classes_ = self.classes_[best_assignment(table, self.assignment)]

    def _n_clusters(self) -> int:
        last = self.clusterer_
        last = last.steps[-1][1] if isinstance(last, Pipeline) else last
        known = getattr(last, "n_clusters", None)
        known = getattr(last, "n_components", None) if known is None else known
        return max(int(self.clusters_.max()) + 1, 0 if known is None else int(known))

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        rows = self._mapped_samples(X)
        clusters = in_own_streams(self.random_state, 1, lambda: self._clusters_of(rows))
        return certify_clusters(self.table_, clusters, self.assignment, threat, target)

    def _clusters_of(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        if getattr(self.clusterer_, "rowwise", False):
            found = self.clusterer_.predict(rows)
        else:  # predicted together, rows may be rounded differently than alone
            found = [self.clusterer_.predict(row[None])[0] for row in rows]
        clusters = np.asarray(found, dtype=np.int64)
        invalid = (clusters < 0) | (clusters >= len(self.table_))
        if invalid.any():
            row = int(invalid.argmax())
            raise InvalidRowsError(
                f"{type(self.clusterer_).__name__} gives row {row} of X the cluster "
                f"{int(clusters[row])}, but the clusters are 0 to {len(self.table_) - 1}. "
                "Leave the row out, or use a clusterer with a fixed number of clusters."
            )
        return clusters

    def _templates(self) -> dict[str, Any]:
        found = super()._templates()
        if isinstance(self.clusterer_, SpectralClusters):  # kept as arrays
            found["clusterer_"] = clone(self.clusterer_)
        return found

    def _arrays(self) -> dict[str, NDArray[Any]]:
        rows, labels = ExactRows(np.empty((0, 0)), np.empty(0, np.int32)), np.empty(0, np.int64)
        if isinstance(self.clusterer_, SpectralClusters):
            rows, labels = self.clusterer_.rows_, self.clusterer_.labels_
        return {
            "table": self.table_,
            "clusters": self.sorted_clusters_,
            "values": rows.values,
            "exponents": rows.exponents,
            "graph_labels": labels,
        }

    def _restore_arrays(
        self, templates: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        self.clusterer_, n = templates["clusterer_"], self.n_rows_
        table = require_shape(arrays["table"], (None, len(self.classes_)), "i")
        self.sorted_clusters_ = require_integers(arrays["clusters"], n, len(table))
        self.clusters_ = self.sorted_clusters_
        if table.min(initial=0) < 0 or table.sum() != n:
            raise ValueError("the table of labels does not count the rows")
        if isinstance(self.clusterer_, SpectralClusters):
            self.clusterer_.rows_ = require_rows(arrays, n)
            self.clusterer_.labels_ = require_integers(arrays["graph_labels"], n, len(table))
        self.table_ = table
        self.cluster_classes_ = self.classes_[best_assignment(table, self.assignment)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # clusters need not be classes
        return tags
