"""Clusters in whole numbers: right, as good as scikit-learn's, and the same wherever computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.clusters import KMeansClusters, MixtureClusters
from poisonproof.learners.clusters.kmeans import _drawn
from poisonproof.learners.clusters.mixture import _Values
from poisonproof.learners.clusters.whole import Grid, WholeMatrix, total

KINDS = (KMeansClusters, MixtureClusters)
X, Y = load_digits(return_X_y=True)
RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(3000, 700)) * np.exp(RNG.normal(size=700)) + 1e3
HUGE = RNG.normal(size=(200, 3)) * [1e300, 1.0, 1e-300]


def far_groups(n: int = 400, d: int = 5) -> tuple[Any, Any]:
    groups = np.arange(n) % 4
    return RNG.normal(size=(n, d)) + 30.0 * groups[:, None], groups


@pytest.mark.parametrize("kind", KINDS)
def test_groups_that_lie_apart_are_found(kind: Any) -> None:
    rows, groups = far_groups()
    assert adjusted_rand_score(groups, kind(4).fit(rows).labels_) == 1.0


def test_means_are_as_close_as_those_of_scikit() -> None:
    def spread(labels: Any) -> float:
        return sum(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum() for c in range(10))

    ours = min(spread(KMeansClusters(10, random_state=s).fit(X).labels_) for s in range(3))
    theirs = min(spread(KMeans(10, n_init=10, random_state=s).fit(X).labels_) for s in range(3))
    assert ours <= 1.005 * theirs


def test_every_sample_belongs_to_the_nearest_mean() -> None:
    found = KMeansClusters(10, n_init=1).fit(X)
    rows = found.grid_.place(X)
    distances = ((rows[:, None] - found.centres_) ** 2).sum(axis=2)
    assert np.array_equal(found.labels_, distances.argmin(axis=1))


def test_a_mixture_is_as_likely_as_that_of_scikit() -> None:
    rows = np.concatenate([X[:, 20:40] + RNG.random((len(X), 20))])

    def likelihood(labels: Any) -> float:
        """Of one round of scikit-learn from these clusters."""
        means = np.stack([rows[labels == c].mean(axis=0) for c in range(10)])
        tight = 1 / np.stack([rows[labels == c].var(axis=0) + 1e-4 for c in range(10)])
        model = GaussianMixture(10, covariance_type="diag", means_init=means, precisions_init=tight)
        return model.set_params(max_iter=50, random_state=0).fit(rows).score(rows)

    ours = likelihood(MixtureClusters(10, floor=1e-3).fit(rows).labels_)
    theirs = likelihood(
        GaussianMixture(10, covariance_type="diag", n_init=3, reg_covar=1e-4, random_state=0)
        .fit(rows)
        .predict(rows)
    )
    assert ours >= theirs - 0.2


@pytest.mark.parametrize("rows", [X, WIDE, far_groups()[0]], ids=["digits", "wide", "groups"])
def test_likelihoods_are_those_of_gaussians(rows: Any) -> None:
    found = MixtureClusters(6, n_init=1, max_iter=5).fit(rows)
    placed = found.grid_.place(rows)[:200]
    mixture = found.weights_, found.means_, found.variances_
    logs = _Values.of(placed, None).log_likelihoods(*mixture)
    spreads = np.sqrt(found.variances_)
    true = norm.logpdf(placed[:, None], found.means_, spreads).sum(axis=2) + np.log(found.weights_)
    off = (logs - logs[:, :1]) - (true - true[:, :1])
    assert np.abs(off).max() < 1e-3 * max(1.0, np.abs(true).max() / 100)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [X, WIDE, HUGE], ids=["digits", "wide", "huge"])
def test_threads_torch_and_company_change_nothing(kind: Any, rows: Any) -> None:
    pytest.importorskip("torch")
    with threadpool_limits(1):
        alone = kind(5, n_init=2).fit(rows)
    for other in (kind(5, n_init=2).fit(rows), kind(5, n_init=2, device="cpu").fit(rows)):
        assert np.array_equal(alone.labels_, other.labels_)
    together = alone.predict(rows)
    assert np.array_equal(together, alone.labels_)
    assert [alone.predict(row[None])[0] for row in rows[:50]] == together[:50].tolist()


def test_sums_are_exact_at_full_size() -> None:
    """Where float64 would round: the largest numbers that are allowed, 60,000 of them."""
    rows = np.full((60_000, 4), 2.0**24)
    rows[1::2] = 2.0**24 - 1
    sums = WholeMatrix(rows).weighed(np.ones((60_000, 1)))
    assert sums[0, 0] == 60_000 * 2**24 - 30_000
    assert total(np.full(60_000, 2.0**52 + 1)) == 60_000 * (2**52 + 1)


def test_a_grid_holds_what_float32_holds_and_moves_what_is_beyond_to_its_edge() -> None:
    rows = RNG.normal(size=(500, 8)).astype(np.float32).astype(np.float64)
    grid = Grid.around(rows, 24, same_step=True)
    back = np.ldexp(grid.place(rows), grid.exponents) + grid.middle
    assert np.abs(back - rows).max() <= 2.0**-24 * np.abs(rows).max() * 2
    assert np.abs(grid.place(rows)).max() <= 2**24
    assert grid.place(np.full((1, 8), 1e308)).tolist() == [[2.0**24] * 8]


def test_likelier_samples_are_drawn_more_often() -> None:
    weights = np.array([0.0, 1.0, 3.0, 0.0])
    drawn = np.bincount(_drawn(weights, 4000, np.random.default_rng(0)), minlength=4)
    assert drawn[0] == drawn[3] == 0
    assert 2850 < drawn[2] < 3150
    long = np.array([2.0**53, 2.0**52, 0.0])
    assert set(_drawn(np.tile(long, 9000), 100, np.random.default_rng(0)) % 3) == {0, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_different_samples_than_clusters_leave_clusters_empty(kind: Any) -> None:
    rows = np.repeat([[0.0, 1.0], [5.0, 1.0]], 10, axis=0)
    found = kind(6).fit(rows)
    assert len(set(found.labels_)) == 2
    assert np.array_equal(found.predict(rows), found.labels_)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_parameters_are_named(kind: Any) -> None:
    for wrong in ({"n_clusters": 2.5}, {"n_init": 0}, {"max_iter": "9"}):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            kind(**wrong).fit(X)
    with pytest.raises(InvalidInputError, match="n_clusters=3 is more than the n_samples=2"):
        kind(3).fit(X[:2])


def test_a_mixture_of_too_many_columns_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="32768 columns"):
        MixtureClusters(2).fit(np.zeros((3, 40_000)))
