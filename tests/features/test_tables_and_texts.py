"""Maps of tables and texts do what they say."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features import FixedScale, HashedNGrams


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
        (HashedNGrams(), [1, 2], InvalidRowsError, "takes texts"),
        (HashedNGrams(analyzer="letters"), ["a"], InvalidInputError, "analyzer"),
        (HashedNGrams(ngram_range=(3, 1)), ["a"], InvalidInputError, "ngram_range"),
        (HashedNGrams(0), ["a"], InvalidInputError, "n_features"),
    ],
)
def test_what_makes_no_sense_is_refused(transformer, X, error, says) -> None:
    with pytest.raises(error, match=says):
        transformer.transform(X)
