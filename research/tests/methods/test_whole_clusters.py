"""Clusters in integers: right, as good as scikit-learn's, and the same wherever computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.methods.kmeans import (
    KMeansClusters,
    WholeMatrix,
    _Samples,
    total,
)
from poisonproof_research.methods.mixture import MixtureClusters, Parabolas, _Values

KINDS = (KMeansClusters, MixtureClusters)
X, Y = load_digits(return_X_y=True)
RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(3000, 700)) * np.exp(RNG.normal(size=700)) + 1e3
MANY = np.repeat(RNG.normal(size=(40, 300)), 500, axis=0) + RNG.normal(size=(20_000, 300))
SHAPES = ["digits", "wide", "many", "huge"]
HUGE = RNG.normal(size=(200, 3)) * [1e300, 1.0, 1e-300]


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


@pytest.mark.parametrize("shape", [(3, 1), (6, 30), (6, 700), (4, 5000)])
def test_likelihoods_are_those_of_gaussians(shape: tuple[int, int]) -> None:
    means = RNG.normal(scale=800.0, size=shape)
    variances = np.exp(RNG.normal(scale=0.7, size=shape)) * 500.0**2
    weights = RNG.dirichlet(np.ones(shape[0]))
    rows = np.rint(RNG.normal(scale=900.0, size=(200, shape[1])))
    logs = _Values.of(rows, None).log_likelihoods(Parabolas.of(weights, means, variances))
    true = norm.logpdf(rows[:, None], means, np.sqrt(variances)).sum(axis=2) + np.log(weights)
    off = (logs - logs[:, :1]) - (true - true[:, :1])
    assert np.abs(off).max() < 1e-5 * shape[1]


@pytest.mark.parametrize("bits", [(24, 8), (20, 2048), (18, 32768)])
def test_distances_are_exact_at_the_edge_of_the_grid(bits: tuple[int, int]) -> None:
    length, columns = bits
    rows = RNG.choice([-(2.0**length), 2.0**length - 1], size=(6, columns))
    found = _Samples(rows, None).distances(-rows[:3])
    whole = [[int(value) for value in row] for row in rows]
    for i, row in enumerate(whole):
        for j, other in enumerate(whole[:3]):
            assert int(found[i, j]) == sum((a + b) ** 2 for a, b in zip(row, other, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [X, WIDE[:1000], MANY[::4], HUGE], ids=SHAPES)
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
    """Float64 would round here: the largest numbers that are allowed, 60,000 of them."""
    rows = np.full((60_000, 4), 2.0**24)
    rows[1::2] = 2.0**24 - 1
    sums = WholeMatrix(rows).weighed(np.ones((60_000, 1)))
    assert sums[0, 0] == 60_000 * 2**24 - 30_000
    assert total(np.full(60_000, 2.0**52 + 1)) == 60_000 * (2**52 + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_different_samples_than_clusters_leave_clusters_empty(kind: Any) -> None:
    rows = np.repeat([[0.0, 1.0], [5.0, 1.0]], 10, axis=0)
    found = kind(6).fit(rows)
    assert len(set(found.labels_)) == 2
    assert np.array_equal(found.predict(rows), found.labels_)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_parameters_are_named(kind: Any) -> None:
    wrong: Any
    for wrong in (
        {"n_clusters": 2.5},
        {"n_init": 0},
        {"max_iter": "9"},
        {"tol": "x"},
        {"tol": -1.0},
        {"tol": np.nan},
        {"random_state": None},
        {"random_state": -1},
        {"random_state": np.random.RandomState(0)},
    ):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            kind(**wrong).fit(X)
    with pytest.raises(InvalidInputError, match="n_clusters=3 is more than the n_samples=2"):
        kind(3).fit(X[:2])


STRANGE: dict[str, Any] = {
    "nan": np.full((5, 64), np.nan),
    "infinite": np.full((5, 64), -np.inf),
    "line": np.zeros(64),
    "block": np.zeros((2, 5, 64)),
    "no columns": np.zeros((5, 0)),
    "sparse": csr_array(np.eye(64)),
    "complex": np.zeros((5, 64), dtype=complex),
    "text": np.full((5, 64), "a", dtype=object),
}
