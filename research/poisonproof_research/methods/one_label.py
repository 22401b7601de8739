"""Members that know a cluster and a label, and nothing more (appendix B of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.cluster import KMeans

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.member import BatchedLearner, Ensemble
from poisonproof.partition.partitioned import Partition, PartitionedData
from poisonproof.progress import Progress


class ClusterIndex(TransformerMixin, BaseEstimator):
    """Find clusters of all samples by k-means; map a sample to the number of the nearest centre.

    It learns from samples, so it is for `SSDPAClassifier`, where samples are trusted;
    `DPAClassifier` refuses it. Labels do not enter.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    n_init : int, default=10
        Starts of k-means, of which the best is kept.
    random_state : int, default=0
        Seed of the starts.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> found = ClusterIndex().fit(X).transform(X)[:, 0]
    >>> bool(found[0] == found[1] != found[2] == found[3])
    True
    """

    learns_nothing: ClassVar[bool] = False

    def __init__(self, n_clusters: int = 2, n_init: int = 10, random_state: int = 0) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X: Any) -> Self:
        """Find the centres; there is no way in for labels."""
        rows = _flat(X)
        means = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state)
        self.centres_: NDArray[np.float64] = means.fit(rows).cluster_centers_
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the number of the nearest centre, shape (n, 1); the first of equally near ones."""
        rows = _flat(X)
        distances = np.stack([((rows - centre) ** 2).sum(axis=1) for centre in self.centres_])
        nearest: NDArray[np.float64] = distances.argmin(axis=0)[:, np.newaxis].astype(np.float64)
        return nearest


def _flat(X: Any) -> NDArray[np.float64]:
    rows = np.asarray(X, dtype=np.float64)
    return rows.reshape(len(rows), -1)


class OneLabelClassifier(ClassifierMixin, BaseEstimator, BatchedLearner):
    """A member whose rows say which class their cluster is.

    Samples are numbers of clusters, as `ClusterIndex` makes them. On a sample of a cluster that it
    has a row of, the member votes the label of that row (of most such rows, ties to the smaller).
    Elsewhere it abstains, or, of two classes, it votes the other one: a row that says which class
    one cluster is then also says which class the other one is, and every member votes everywhere.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters; declared, not found in the data.
    elsewhere : {"opposite", "abstain"}, default="opposite"
        What a row says about samples of another cluster.

    Examples
    --------
    >>> from poisonproof import SSDPAClassifier
    >>> from poisonproof_research.methods.one_label import ClusterIndex
    >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    >>> clf = SSDPAClassifier(OneLabelClassifier(), ClusterIndex(), n_partitions=6, classes=[0, 1])
    >>> clf.fit(X, [0, 0, 0, 1, 1, 1]).certify(X[:1]).radius
    array([3])
    """

    def __init__(self, n_clusters: int = 2, elsewhere: str = "opposite") -> None:
        self.n_clusters = n_clusters
        self.elsewhere = elsewhere

    def specification(self) -> Mapping[str, Any]:
        """Return everything that can change a member's votes."""
        return {"learner": "one_label", **self.get_params(deep=False)}

    def fit_members(
        self,
        data: PartitionedData,
        which: Sequence[int],
        n_classes: int,
        seed: int,
        *,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> OneLabelEnsemble:
        """Read the members of the partitions `which` off their rows."""
        self._check(n_classes)
        table = np.full((len(which), self.n_clusters), ABSTAIN, dtype=np.int16)
        for place, index in enumerate(which):
            table[place] = self._member(data[index], n_classes)
            if progress is not None:
                progress.advance()
        return OneLabelEnsemble(table)

    def _check(self, n_classes: int) -> None:
        if self.elsewhere not in ("opposite", "abstain"):
            raise InvalidInputError(
                f"elsewhere must be 'opposite' or 'abstain', got {self.elsewhere!r}."
            )
        if self.elsewhere == "opposite" and n_classes != 2:
            raise InvalidInputError(
                f"elsewhere='opposite' needs two classes, got {n_classes}. Use 'abstain'."
            )

    def _member(self, partition: Partition, n_classes: int) -> NDArray[np.int16]:
        """Return the member's vote for every cluster, shape (n_clusters,)."""
        clusters = cluster_numbers(partition.X, self.n_clusters)
        said = np.zeros((self.n_clusters, n_classes), dtype=np.int64)
        np.add.at(said, (clusters, np.asarray(partition.y)), 1)
        if self.elsewhere == "opposite":
            others = said.sum(axis=0) - said
            said = said + others[:, ::-1]
        votes = said.argmax(axis=1).astype(np.int16)
        return np.where(said.any(axis=1), votes, np.int16(ABSTAIN))


class OneLabelEnsemble(Ensemble):
    """Hold the vote of every member in every cluster, shape (k, n_clusters)."""

    def __init__(self, table: NDArray[np.int16]) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def votes(
        self, X: Any, *, n_jobs: int | None = None, progress: Progress | None = None
    ) -> NDArray[np.int16]:
        """Return the vote matrix, shape (n, k)."""
        return self.table.T[cluster_numbers(X, self.table.shape[1])]

    def digests_of(self, which: Sequence[int]) -> list[str]:
        """Return the digests of some members: their votes."""
        rows = (self.table[index].tolist() for index in which)
        return [f"one-label:{','.join(map(str, row))}" for row in rows]

    def failures(self) -> dict[int, str]:
        """Return nothing: no member can fail."""
        return {}

    def replaced(self, which: Sequence[int], members: Ensemble) -> OneLabelEnsemble:
        """Refuse: these members are not updated."""
        raise InvalidInputError("One-label members are trained anew, not updated.")


def cluster_numbers(X: Any, n_clusters: int) -> NDArray[np.int64]:
    """Return the only column of `X` as numbers of clusters, shape (n,)."""
    values = np.asarray(X, dtype=np.float64)
    numbers = values.reshape(len(values), -1)
    whole = numbers.shape[1] == 1 and bool(
        ((numbers >= 0) & (numbers < n_clusters) & (numbers == np.floor(numbers))).all()
    )
    if not whole:
        raise InvalidInputError(
            f"Samples must be one column with numbers of clusters from 0 to {n_clusters - 1}; got "
            f"shape {values.shape}. Use features=ClusterIndex({n_clusters})."
        )
    return numbers[:, 0].astype(np.int64)
