"""A map of the user's own must not mix the rows that are asked together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.preprocessing import FunctionTransformer, Normalizer

from poisonproof import (
    ClusterVoteClassifier,
    DPAClassifier,
    LinearLabelClassifier,
    SSDPAClassifier,
    WeightedVoteClassifier,
)
from poisonproof.exceptions import GuaranteeError

X, y = load_digits(return_X_y=True)


def centred(rows: Any) -> Any:
    return rows - rows.mean(axis=0)


def ranked(rows: Any) -> Any:
    return rows.argsort(axis=0).argsort(axis=0).astype(float)


@pytest.mark.parametrize("mixes", [centred, ranked], ids=lambda f: f.__name__)
def test_a_map_that_mixes_test_rows_is_refused(mixes: Any) -> None:
    model = DPAClassifier(
        GaussianNB(), 10, classes=range(10), features=FunctionTransformer(mixes)
    ).fit(X[:600], y[:600])
    with pytest.raises(GuaranteeError, match="depend on what else is asked"):
        model.certify(X[600:700])


@pytest.mark.parametrize(
    "kind", [ClusterVoteClassifier, LinearLabelClassifier, WeightedVoteClassifier]
)
def test_a_map_that_mixes_test_rows_is_refused_where_rows_vote(kind: Any) -> None:
    model = kind(features=FunctionTransformer(centred), classes=range(10)).fit(X[:300], y[:300])
    with pytest.raises(GuaranteeError, match="depend on what else is asked"):
        model.certify(X[600:700])
    with pytest.raises(GuaranteeError, match="depend on what else is asked"):
        model.predict(X[600:700])


@pytest.mark.parametrize(
    "features",
    [
        FunctionTransformer(np.sqrt),
        Normalizer(),
        FunctionTransformer(sparse.csr_array),
        FunctionTransformer(lambda rows: rows @ np.full((64, 8), 1 / 3)),
    ],
    ids=["roots", "lengths", "sparse", "product"],
)
def test_a_map_of_single_rows_is_taken(features: Any) -> None:
    member = MultinomialNB()
    model = DPAClassifier(member, 10, classes=range(10), features=features).fit(X[:600], y[:600])
    votes = model.votes(X[600:700])
    np.testing.assert_array_equal(model.votes(X[650:660]), votes[50:60])


def test_learned_features_and_texts_are_taken() -> None:
    model = SSDPAClassifier(GaussianNB(), PCA(9), 10, classes=range(10)).fit(X[:600], y[:600])
    assert model.votes(X[600:700]).shape == (100, 10)
    texts = [f"word{i % 7} {'spam' if i % 2 else 'ham'} {i}" for i in range(200)]
    labels = [i % 2 for i in range(200)]
    mails = DPAClassifier(
        MultinomialNB(), 5, classes=[0, 1], features=HashingVectorizer(alternate_sign=False)
    ).fit(texts, labels)
    assert mails.votes(texts[:20]).shape == (20, 5)
