"""Votes of single rows: what may not reach a vote does not, and attacks on real data fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

from poisonproof import ClusterVoteClassifier, NeighborVoteClassifier
from poisonproof.exceptions import GuaranteeError
from poisonproof.features.exact import Precision, exact_rows
from poisonproof.members.similarity import Neighborhood, nearest_rows

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1500), slice(1500, None)


def neighbors(**parameters: Any) -> NeighborVoteClassifier:
    return NeighborVoteClassifier(threshold=0.88, classes=range(10), **parameters)


def clusters(**parameters: Any) -> ClusterVoteClassifier:
    return ClusterVoteClassifier(classes=range(10), **parameters)


def real_rows(n: int, d: int, seed: int) -> NDArray[np.float64]:
    """Dense rows at the size where float products start to depend on their neighbours."""
    rng = np.random.default_rng(seed)
    return np.abs(rng.normal(size=(n, d)) + 2 * rng.normal(size=(1, d)))


def test_other_rows_their_order_and_the_device_change_no_vote() -> None:
    known, asked = real_rows(5000, 512, 1), real_rows(300, 512, 2)
    lengths = np.linalg.norm(known, axis=1)
    cosines = known @ asked[0] / (lengths * np.linalg.norm(asked[0]))
    near = Neighborhood(float(np.median(cosines)))
    y = np.arange(5000) % 7
    counts = near.count_by_class(near.prepare(asked), near.prepare(known), y, 7)
    assert 0 < counts.sum() < counts.size * 5000 / 7
    order = np.random.default_rng(3).permutation(5000)
    shuffled = near.count_by_class(near.prepare(asked), near.prepare(known[order]), y[order], 7)
    assert np.array_equal(counts, shuffled)
    alone = near.count_by_class(near.prepare(asked[7:8]), near.prepare(known), y, 7)
    assert np.array_equal(counts[7:8], alone)
    more = np.concatenate([real_rows(1, 512, 4), known])
    grown = near.count_by_class(near.prepare(asked), near.prepare(more), np.append([6], y), 7)
    assert np.abs(grown - counts).sum(axis=1).max() <= 1
    on_torch = Neighborhood(near.threshold, device="cpu")
    there = on_torch.count_by_class(near.prepare(asked), near.prepare(known), y, 7)
    assert np.array_equal(counts, there)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_neighbours_found_with_torch_are_those_found_with_numpy(precision: Precision) -> None:
    rows = real_rows(3000, 256, 1)
    rows[100:140] = rows[7]  # of equal cosines the first positions count
    rows[200:260] = 0
    known = exact_rows(rows, precision)
    asked = exact_rows(np.concatenate([real_rows(290, 256, 2), rows[:8], rows[200:202]]), precision)
    for count in (9, 3000):
        here, there = (nearest_rows(asked, known, count, device) for device in (None, "cpu"))
        assert np.array_equal(here, there)


def test_no_insertions_and_deletions_within_the_radius_turn_a_neighbour_vote() -> None:
    clf = neighbors().fit(X[TRAIN], Y[TRAIN])
    certificates = clf.certify(X[TEST])
    assert int((certificates.radius > 20).sum()) > 100
    for row in np.flatnonzero(certificates.radius > 0)[:15]:
        label, rival = certificates.labels[row], certificates.runner_up[row]
        asked, radius = X[TEST][row : row + 1], int(certificates.radius[row])
        voters = _voters(clf, asked, int(label))
        removed = min(radius // 2, len(voters))
        for budget, survives in ((radius, True), (radius + 1, False)):
            keep = np.setdiff1d(np.arange(1500), voters[:removed])
            copies = np.repeat(asked, budget - removed, axis=0)
            poisoned = neighbors().fit(
                np.concatenate([X[TRAIN][keep], copies]),
                np.concatenate([Y[TRAIN][keep], np.full(len(copies), rival)]),
            )
            assert (poisoned.predict(asked)[0] == label) == survives


def _voters(clf: NeighborVoteClassifier, asked: Any, label: int) -> Any:
    rows = np.flatnonzero(Y[TRAIN] == label)
    return rows[[neighbors().fit(X[[i]], Y[[i]]).counts(asked).sum() == 1 for i in rows]]


@pytest.mark.parametrize(
    ("assignment", "n_clusters"), [("local", 12), ("one_to_one", 10), ("onto", 12)]
)
def test_no_flips_within_the_radius_turn_a_cluster(assignment: Any, n_clusters: int) -> None:
    parameters = {"assignment": assignment, "n_clusters": n_clusters}
    clf = clusters(**parameters).fit(X[TRAIN], Y[TRAIN])
    certificates = clf.certify(X[TEST])
    rng = np.random.default_rng(0)
    asked = clf.clusterer_.predict(X[TEST])
    for cluster in np.unique(asked)[:4]:
        row = int(np.flatnonzero(asked == cluster)[0])
        radius, rival = int(certificates.radius[row]), certificates.runner_up[row]
        own = np.flatnonzero((clf.clusters_ == cluster) & (Y[TRAIN] == certificates.labels[row]))
        flipped = Y[TRAIN].copy()
        flipped[rng.permutation(own)[:radius]] = rival
        poisoned = clusters(**parameters).fit(X[TRAIN], flipped)
        assert np.array_equal(poisoned.clusters_, clf.clusters_)
        assert poisoned.predict(X[TEST][row : row + 1])[0] == certificates.labels[row]
        if assignment == "local":
            flipped[own[~np.isin(own, np.flatnonzero(flipped != Y[TRAIN]))][:1]] = rival
            turned = clusters(**parameters).fit(X[TRAIN], flipped)
            assert turned.predict(X[TEST][row : row + 1])[0] != certificates.labels[row]


@pytest.mark.parametrize("clusterer", ["spectral", "kmeans", "mixture"])
def test_neither_labels_nor_row_order_reach_a_cluster(clusterer: Any) -> None:
    rng = np.random.default_rng(0)
    order = rng.permutation(1500)
    features = PCA(20)
    first = clusters(clusterer=clusterer, features=features).fit(X[TRAIN], Y[TRAIN])
    second = clusters(clusterer=clusterer, features=features).fit(
        X[TRAIN][order], rng.permutation(Y[TRAIN])
    )
    assert np.array_equal(first.clusters_[order], second.clusters_)
    mapped = first.features_.transform(X[TEST])
    assert np.array_equal(first.clusterer_.predict(mapped), second.clusterer_.predict(mapped))


def test_what_would_void_the_certificate_raises() -> None:
    with pytest.raises(GuaranteeError, match="sees all training rows together"):
        neighbors(features=PCA(2)).fit(X[TRAIN], Y[TRAIN])
    fitted = clusters().fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(GuaranteeError, match="label_flip only"):
        fitted.certify(X[TEST], threat="insert_delete")
    undeclared = NeighborVoteClassifier().fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(GuaranteeError, match="Declare it"):
        undeclared.certify(X[TEST], require_declared=True)
    assert undeclared.certify(X[TEST]).threat.assumptions


def test_a_map_of_functions_that_could_join_rows_is_refused() -> None:
    """It learns nothing in `fit`, and may still centre the rows it is shown together."""
    centred = FunctionTransformer(lambda rows: rows - rows.mean(axis=0))
    with pytest.raises(GuaranteeError, match="sees all training rows together"):
        neighbors(features=centred).fit(X[TRAIN], Y[TRAIN])


class Centred(TransformerMixin, BaseEstimator):
    """A map that claims to look at each row by itself, and does not."""

    learns_nothing = True

    def fit(self, X: Any, y: Any = None) -> Centred:
        return self

    def transform(self, X: Any) -> Any:
        return X - X.mean(axis=0) + 1.0


def test_a_map_of_ones_own_sees_one_row_at_a_time() -> None:
    few = slice(0, 60)
    first = neighbors(features=Centred()).fit(X[few], Y[few])
    more = neighbors(features=Centred())
    more.fit(np.concatenate([X[few], np.full((1, 64), 1e6)]), np.append(Y[few], 0))
    moved = more.counts(X[TEST][:20]) - first.counts(X[TEST][:20])
    assert np.abs(moved).sum(axis=1).max() <= 1


@pytest.mark.parametrize("clusterer", ["spectral", "kmeans"])
def test_copies_of_a_sample_lie_in_one_cluster_whatever_the_order_of_the_rows(
    clusterer: str,
) -> None:
    """Else one flip in a file sorted by label would move the labels of other copies, too."""
    rng = np.random.default_rng(5)
    samples = np.concatenate([np.repeat(X[:6], 40, axis=0), X[6:30]])
    labels = rng.integers(0, 10, len(samples))
    plain = ClusterVoteClassifier(n_clusters=12, clusterer=clusterer, classes=range(10))
    plain.fit(samples, labels)
    assert all(len(set(plain.clusters_[40 * i : 40 * i + 40])) == 1 for i in range(6))
    order = rng.permutation(len(samples))
    turned = ClusterVoteClassifier(n_clusters=12, clusterer=clusterer, classes=range(10))
    turned.fit(samples[order], labels[order])
    assert np.array_equal(plain.table_, turned.table_)
