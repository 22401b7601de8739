"""Maps of tables and texts do what they say."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics.pairwise import rbf_kernel

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features import FixedScale, HashedNGrams

# DELETED RandomFourier


def test_random_fourier_features_approximate_the_gaussian_kernel() -> None:
    X = np.random.default_rng(0).standard_normal((40, 10)) / 3
    Z = RandomFourier(20_000, gamma=0.7).transform(X).astype(np.float64)
    np.testing.assert_allclose(Z @ Z.T, rbf_kernel(X, gamma=0.7), atol=0.04)


def test_random_fourier_depends_on_its_seed_alone() -> None:
    X = np.random.default_rng(0).standard_normal((40, 10))
    one, again = RandomFourier(50, seed=1).transform(X), RandomFourier(50, seed=1).transform(X)
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, RandomFourier(50, seed=2).transform(X))


def test_fixed_scale_per_column() -> None:
    X = np.array([[1, 20], [3, 40]])
    scaled = FixedScale(shift=[1, 20], scale=[2, 10]).transform(X)
    np.testing.assert_array_equal(scaled, [[0, 0], [1, 2]])


def test_hashed_ngrams_are_those_of_scikit_learn() -> None:
    texts = ["Free money, now!", "meeting at ten", ""]
    theirs = HashingVectorizer(n_features=128, analyzer="word", ngram_range=(1, 2))
    ours = HashedNGrams(128, analyzer="word", ngram_range=(1, 2))
    np.testing.assert_allclose(ours.transform(texts), theirs.transform(texts).toarray(), rtol=1e-6)
    column = np.array(texts, dtype=object)[:, np.newaxis]
    np.testing.assert_array_equal(ours.transform(column), ours.transform(texts))


@pytest.mark.parametrize(
    ("transformer", "X", "error", "says"),
    [
        (FixedScale(scale=0.0), [[1.0]], InvalidInputError, "scale finite and positive"),
        (FixedScale(shift=[1.0, 2.0]), [[1.0]], InvalidRowsError, "shift has shape"),
        (FixedScale(), [["a"]], InvalidRowsError, "takes numbers"),
        (RandomFourier(0), [[1.0]], InvalidInputError, "n_components"),
        (RandomFourier(gamma=0.0), [[1.0]], InvalidInputError, "gamma"),
        (RandomFourier(seed=None), [[1.0]], InvalidInputError, "seed must be an integer"),
        (HashedNGrams(), [1, 2], InvalidRowsError, "takes texts"),
        (HashedNGrams(analyzer="letters"), ["a"], InvalidInputError, "analyzer"),
        (HashedNGrams(ngram_range=(3, 1)), ["a"], InvalidInputError, "ngram_range"),
        (HashedNGrams(0), ["a"], InvalidInputError, "n_features"),
    ],
)
def test_what_makes_no_sense_is_refused(transformer, X, error, says) -> None:
    with pytest.raises(error, match=says):
        transformer.transform(X)
