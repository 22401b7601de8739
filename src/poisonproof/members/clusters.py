"""Clusters of unlabeled samples, and the classes that labels assign to them.

S(p) is the number of training rows whose label is the class that the assignment p gives to their
cluster. A flipped label changes S(p) - S(p') by at most 2, so what protects the best assignment is
its lead over the best one that gives the cluster in question another class. That one is a linear
assignment problem with one edge forbidden.

`SpectralClusters` is hand-written because scikit-learn's `SpectralClustering` cannot predict the
cluster of a new sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import eigsh
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poisonproof.certificates.plurality import targeted_radius
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import TRUSTED_SAMPLES, Threat, make_threat, parse_threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.features.exact import ExactRows, exact_rows
from poisonproof.members.scikit import is_count
from poisonproof.members.similarity import nearest_rows, neighbor_graph
from poisonproof.threads import one_thread

_DENSE = 400  # below this many samples all eigenvectors are computed: quicker, and always exact


class SpectralClusters(ClusterMixin, BaseEstimator):
    """Cut the graph of nearest neighbors by the largest eigenvectors of its normalised matrix.

    Every sample is joined to its nearest samples by cosine; the eigenvectors say which samples
    hang together, and a pivoted QR factorisation reads the clusters off (Damle, Minden and Ying,
    2019): no random start, no iteration. A new sample takes the cluster of most of its
    neighbors.

    Parameters
    ----------
    n_clusters : int, default=10
        Number of clusters, K.
    n_neighbors : int, default=30
        Neighbors joined to each sample, and that vote on a new one.
    device : str, optional
        "cuda" finds neighbors on a GPU, with the same result.

    Attributes
    ----------
    labels_ : ndarray of shape (m,)
        The cluster of every sample.
    """

    rowwise: ClassVar[bool] = True
    """The cluster of a new sample does not depend on the other rows of the same call."""

    rows_: ExactRows

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        n_neighbors: int = 30,
        device: str | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the clusters of the samples `X`, shape (m, d); `y` is ignored."""
        _check_count("n_clusters", self.n_clusters)
        _check_count("n_neighbors", self.n_neighbors)
        if self.n_clusters > len(X):
            raise InvalidInputError(
                f"n_clusters={self.n_clusters} is more than the n_samples={len(X)} samples."
            )
        self.rows_ = exact_rows(np.asarray(X), "single")
        found = nearest_rows(self.rows_, self.rows_, self.n_neighbors + 1, self.device)
        with one_thread():
            vectors = leading_vectors(neighbor_graph(found), self.n_clusters)
            self.labels_ = read_clusters(vectors)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of most neighbors of every row, ties to the smaller cluster."""
        rows = exact_rows(np.asarray(X), "single")
        found = nearest_rows(rows, self.rows_, self.n_neighbors, self.device)
        votes = self.labels_[found]
        counts = np.stack([(votes == c).sum(axis=1) for c in range(self.n_clusters)], axis=1)
        return np.asarray(counts.argmax(axis=1), dtype=np.int64)


def leading_vectors(graph: sparse.csr_array, count: int) -> NDArray[np.float64]:
    """Return the eigenvectors of `leading_pairs`, every sample's row scaled to length one."""
    _, vectors, _ = leading_pairs(graph, count)
    lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
    unit: NDArray[np.float64] = vectors / np.where(lengths > 0, lengths, 1.0)
    return unit


def leading_pairs(
    graph: sparse.csr_array, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the `count` largest eigenvalues of D^-1/2 W D^-1/2, their vectors, and D^-1/2."""
    n = graph.shape[0]
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    scale = np.zeros(n)
    np.divide(1.0, np.sqrt(degrees), out=scale, where=degrees > 0)
    matrix = sparse.diags_array(scale) @ graph @ sparse.diags_array(scale)
    if n <= max(_DENSE, 2 * count + 1):
        values, vectors = linalg.eigh(matrix.toarray(), subset_by_index=[n - count, n - 1])
    else:
        # A start that no eigenvector is orthogonal to, the same for the same number of samples.
        start = 1.0 + np.random.default_rng(0).random(n)
        values, vectors = eigsh(matrix, k=count, which="LA", v0=start, tol=1e-6)
    return values, vectors, scale


def read_clusters(vectors: NDArray[np.float64]) -> NDArray[np.int64]:
    """Turn the eigenvectors, shape (m, K), so that every cluster has its own axis."""
    count = vectors.shape[1]
    _, _, pivots = linalg.qr(vectors.T, pivoting=True, mode="economic")
    left, _, right = linalg.svd(vectors[pivots[:count]].T)
    turned = np.abs(vectors @ (left @ right))
    return np.asarray(turned.argmax(axis=1), dtype=np.int64)


def _check_count(name: str, value: Any) -> None:
    if not is_count(value):
        raise InvalidInputError(f"{name} is an integer of at least 1. Got {value!r}.")


def make_clusterer(clusterer: Any, n_clusters: int, device: str | None = None) -> Any:
    """Return an unfitted clusterer with `fit` and `predict`.

    "spectral" cuts the graph of neighbors, found on `device`; "kmeans" and "mixture" are those of
    scikit-learn. The Gaussians of the mixture are axis-aligned, and none is narrower in a column
    than a tenth of its variance. An estimator brings its own number of clusters.
    """
    name = clusterer if isinstance(clusterer, str) else ""
    if device is not None and name != "spectral":
        raise InvalidInputError(
            f"device={device!r} is for clusterer='spectral'; others compute on the CPU."
        )
    if name == "spectral":
        return SpectralClusters(n_clusters, device=device)
    if name in {"kmeans", "mixture"}:
        _check_count("n_clusters", n_clusters)
        if name == "kmeans":
            return KMeans(int(n_clusters), n_init=4)
        gaussians = {"covariance_type": "diag", "reg_covar": 0.1, "n_init": 4}
        return make_pipeline(StandardScaler(), GaussianMixture(int(n_clusters), **gaussians))
    if hasattr(clusterer, "fit") and hasattr(clusterer, "predict"):
        return clone(clusterer)
    raise InvalidInputError(
        "clusterer is 'spectral', 'kmeans', 'mixture' or an estimator with fit and predict. "
        f"Got {clusterer!r}."
    )


AssignmentRule = Literal["local", "one_to_one", "onto"]
RULES: tuple[AssignmentRule, ...] = get_args(AssignmentRule)

Ints = NDArray[np.int64]


def best_assignment(table: NDArray[Any], rule: AssignmentRule) -> Ints:
    """Return the class of every cluster, shape (K,), in the assignment with most agreeing rows.

    `table`, shape (K, C), counts the rows of every cluster by label. By the rule "local" every
    cluster takes its most frequent label; by "one_to_one" no two clusters share a class (K <= C);
    by "onto" every class has a cluster (K >= C). Of several best assignments the lexicographically
    first is taken.

    >>> table = np.array([[6, 5], [5, 1]])
    >>> best_assignment(table, "local"), best_assignment(table, "one_to_one")
    (array([0, 0]), array([1, 0]))
    """
    _check(table, rule)
    if rule == "local":
        return np.asarray(table.argmax(axis=1), dtype=np.int64)
    allowed = np.ones(table.shape, dtype=np.bool_)
    most = _most(table, allowed, rule)
    for cluster in range(len(table)):
        # The smallest class for this cluster with which the optimum can still be reached.
        for label in np.flatnonzero(allowed[cluster]):
            tried = _fixed(allowed, cluster, [label])
            if _most(table, tried, rule) == most:
                allowed = tried
                break
    return np.asarray(allowed.argmax(axis=1), dtype=np.int64)


def assignment_radius(
    table: NDArray[Any], rule: AssignmentRule, target: int | None = None
) -> tuple[Ints, Ints, Ints]:
    """Return for every cluster its class, its radius in flipped labels, and the closest rival.

    The radius of cluster a is the minimum, over admissible p with p(a) != p*(a), of
    floor((S(p*) - S(p) - [p before p*]) / 2); with `target` over those with p(a) = target, and -1
    where that class is given already. Without any rival the radius is the number of all rows, and
    the label its own runner-up.

    Guarantee
    ---------
    No `radius` flipped labels change the class of the cluster (with `target`: give it that class).
    For "local" the radius is tight: some ``radius + 1`` flipped labels change the class (make it
    the target), if the cluster has rows. The other rules are tight unless a third assignment gains
    by the attack, too: in small random tables without empty clusters, all but 0.1 % of the
    untargeted radii.
    """
    best = best_assignment(table, rule)
    if rule == "local":
        results = [_local(row, int(label), target) for row, label in zip(table, best, strict=True)]
    else:
        results = [_global(table, rule, best, cluster, target) for cluster in range(len(table))]
    radius, runner_up = (np.array(column, dtype=np.int64) for column in zip(*results, strict=True))
    whole = int(table.sum())
    return best, np.where(radius == _NEVER, whole, radius), runner_up


_NEVER = np.iinfo(np.int64).max


def _local(row: NDArray[Any], label: int, target: int | None) -> tuple[int, int]:
    if target is not None:
        # Third classes stand in the way: half the lead over the target would not be tight.
        aimed = targeted_radius(row[None], np.array([label]), np.array([target]), int(row.sum()))
        return int(aimed[0]), target
    rivals = [c for c in range(len(row)) if c != label]
    leads = [(int(row[label]) - int(row[c]) - (c < label), c) for c in rivals]
    lead, rival = min(leads, default=(_NEVER, label))
    return (lead if lead == _NEVER else lead // 2), rival


def _global(
    table: NDArray[Any], rule: AssignmentRule, best: Ints, cluster: int, target: int | None
) -> tuple[int, int]:
    own = int(best[cluster])
    if target == own:
        return -1, own
    others = [c for c in range(table.shape[1]) if c != own and target in (None, c)]
    allowed = _fixed(np.ones(table.shape, dtype=np.bool_), cluster, others)
    found = _optimum(table, allowed, rule) if others else None
    if found is None:
        return _NEVER, own
    total, rival = found
    lead = int(table[np.arange(len(table)), best].sum()) - total
    # Only an even lead is shortened by a rival that wins ties.
    tied = lead % 2 == 0 and _comes_before(table, allowed, rule, best, total)
    return (lead - tied) // 2, int(rival[cluster])


def _comes_before(
    table: NDArray[Any], allowed: NDArray[np.bool_], rule: AssignmentRule, best: Ints, total: int
) -> bool:
    """Return whether an allowed assignment of this total is lexicographically before `best`."""
    for cluster, label in enumerate(best):
        smaller = np.flatnonzero(allowed[cluster][:label])
        if len(smaller) and _most(table, _fixed(allowed, cluster, smaller), rule) == total:
            return True
        if not allowed[cluster, label]:
            return False
        allowed = _fixed(allowed, cluster, [label])
    return False


def _fixed(allowed: NDArray[np.bool_], cluster: int, labels: Sequence[int] | Any) -> Any:
    """Return `allowed` with only these classes left for one cluster."""
    fewer = allowed.copy()
    fewer[cluster] = False
    fewer[cluster, labels] = allowed[cluster, labels]
    return fewer


def _most(table: NDArray[Any], allowed: NDArray[np.bool_], rule: AssignmentRule) -> int | None:
    found = _optimum(table, allowed, rule)
    return None if found is None else found[0]


def _optimum(
    table: NDArray[Any], allowed: NDArray[np.bool_], rule: AssignmentRule
) -> tuple[int, Ints] | None:
    """Return the largest S(p) over allowed assignments and one that reaches it, if there is one.

    Onto: one cluster per class holds its place; the others are free and take their best class. A
    column for every class and one for every free cluster make it a square assignment problem.
    Costs are integers below 2^53, whose sums and differences float64 holds exactly.
    """
    cost = np.where(allowed, -table.astype(np.float64), np.inf)
    free = np.asarray(cost.argmin(axis=1), dtype=np.int64)
    n_clusters, n_classes = table.shape
    if rule == "onto":
        slots = np.repeat(cost.min(axis=1)[:, None], n_clusters - n_classes, axis=1)
        cost = np.hstack([cost, slots])
    try:
        clusters, columns = linear_sum_assignment(cost)
    except ValueError:  # SciPy's word for a problem without an admissible assignment
        return None
    chosen = np.where(columns < n_classes, columns, free)
    if not allowed[clusters, chosen].all():
        return None
    return int(table[clusters, chosen].sum()), chosen


def _check(table: NDArray[Any], rule: AssignmentRule) -> None:
    if rule not in RULES:
        raise InvalidInputError(f"assignment is one of {', '.join(RULES)}. Got {rule!r}.")
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "iu":
        raise InvalidInputError(
            "table counts rows by cluster and label: integers of shape (K, C). Got shape "
            f"{table.shape} of dtype {table.dtype}."
        )
    n_clusters, n_classes = table.shape
    fits = {"one_to_one": n_clusters <= n_classes, "onto": n_clusters >= n_classes}
    if not fits.get(rule, True):
        raise InvalidInputError(
            "assignment='one_to_one' needs at most as many clusters as classes, 'onto' at least as "
            f"many. Got {rule!r}, {n_clusters} clusters and {n_classes} classes."
        )


def certify_clusters(
    table: NDArray[Any],
    clusters: NDArray[Any],
    rule: AssignmentRule = "local",
    threat: str | Threat = "label_flip",
    target: int | None = None,
) -> Certificates:
    """Certify the labels that an assignment of clusters to classes gives to test rows.

    Parameters
    ----------
    table : ndarray of int, shape (K, C)
        Training rows of every cluster by label.
    clusters : ndarray of int, shape (n,)
        The cluster of every test row.
    rule : {"local", "one_to_one", "onto"}
        Which assignments are admissible; see `best_assignment`.
    threat : str or Threat
        Label flips, the only threat against which clusters stand.
    target : int, optional
        Certify against this label only.

    Returns
    -------
    Certificates
        With class indices as labels. `counts` are those of the row's cluster.

    Assumes
    -------
    Clusters are a function of the samples alone, which the attacker cannot touch.

    Examples
    --------
    >>> certificates = certify_clusters(np.array([[5, 2], [1, 6]]), np.array([0, 1]), "one_to_one")
    >>> certificates.labels, certificates.radius
    (array([0, 1]), array([4, 4]))
    """
    wanted = parse_threat(threat)
    if wanted.name != "label_flip" or wanted.unit != "row":
        raise GuaranteeError(
            "Clusters are learned from all samples, so they certify rows relabelled only, but "
            f"{wanted.plural} were requested. Use DPAClassifier or NeighborVoteClassifier."
        )
    labels, radius, runner_up = assignment_radius(table, rule, target)
    return Certificates(
        labels[clusters],
        radius[clusters],
        runner_up[clusters],
        np.asarray(table, dtype=np.int64)[clusters],
        make_threat("label_flip", "row", 2, (*wanted.assumptions, TRUSTED_SAMPLES)),
        int(table.sum()),
        target=None if target is None else np.full(len(clusters), target),
        method="row_votes" if rule == "local" else "cluster_assignment",
    )
