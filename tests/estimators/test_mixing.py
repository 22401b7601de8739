"""No row reaches another through a map in front of the members."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer

from poisonproof import (
    ClusterVoteClassifier,
    DPAClassifier,
    NeighborVoteClassifier,
    SSDPAClassifier,
    WeightedVoteClassifier,
)
from poisonproof.exceptions import GuaranteeError, MemberWarning
from poisonproof.features import FixedScale
from poisonproof.partition import sample_digests

X, y = load_digits(return_X_y=True)


def centred(rows: Any) -> Any:
    return rows - rows.mean(axis=0)


def ranked(rows: Any) -> Any:
    return rows.argsort(axis=0).argsort(axis=0).astype(float)


@pytest.mark.parametrize("mixes", [centred, ranked], ids=lambda f: f.__name__)
def test_a_map_that_mixes_rows_is_refused(mixes: Any) -> None:
    model = DPAClassifier(GaussianNB(), 10, classes=range(10), features=FunctionTransformer(mixes))
    with pytest.raises(GuaranteeError, match="depend on what else is predicted"):
        model.fit(X[:600], y[:600])


@pytest.mark.parametrize("kind", [ClusterVoteClassifier, WeightedVoteClassifier])
def test_a_map_that_mixes_test_rows_is_refused_where_rows_vote(kind: Any) -> None:
    model = kind(features=FunctionTransformer(centred), classes=range(10)).fit(X[:300], y[:300])
    with pytest.raises(GuaranteeError, match="depend on what else is predicted"):
        model.certify(X[600:700])
    with pytest.raises(GuaranteeError, match="depend on what else is predicted"):
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


MAPS = {
    "l1": Normalizer("l1"),
    "l2": Normalizer(),
    "max": Normalizer("max"),
    "binary": Binarizer(threshold=7.5),
    "chi2": AdditiveChi2Sampler(),
    "roots": FunctionTransformer(np.sqrt),
    "logarithms": FunctionTransformer(np.log1p),
    "product": FunctionTransformer(lambda rows: rows @ np.full((rows.shape[1], 8), 1 / 3)),
    "subtle": FunctionTransformer(lambda rows: np.asarray(rows) + 1e-7 * np.asarray(rows).max()),
    "both": make_pipeline(Normalizer(), FunctionTransformer(np.sqrt)),
    "side by side": make_union(Normalizer(), Binarizer()),
    "scale": FixedScale(scale=16.0),
}
OTHERS = {
    "double": np.full((1, 64), 1 / 3),
    "objects": np.full((1, 64), 1 / 3).astype(object),
    "large": np.full((1, 64), 2.0**60),
}


@pytest.mark.filterwarnings("ignore:1 of 12 members abstain")
@pytest.mark.parametrize("name", MAPS)
def test_one_row_of_another_type_reaches_no_member_but_its_own(name: str) -> None:
    """float32 rows become float64, or objects, as soon as one row is of that type."""
    single = X[:400].astype(np.float32) + np.float32(0.1)
    make = DPAClassifier(KNeighborsClassifier(1), 12, classes=range(10), features=MAPS[name])
    before = clone(make).fit(single, y[:400])
    digests = before.ensemble_.digests()
    for row in OTHERS.values():
        place = before.partitioner_.assign(row)[0]
        rows, labels = np.concatenate([single, row])[::-1], np.append(y[:400], 0)[::-1]
        after = clone(make).fit(rows, labels).ensemble_.digests()
        assert [i for i, one in enumerate(digests) if one != after[i]] == [place]
    frame = pd.DataFrame(single).astype({7: np.float64, 8: object}).rename(columns=str)
    again = clone(make).fit(frame, y[:400])
    assert np.array_equal(again.votes(frame[:20]), before.votes(single[:20]))


@pytest.mark.parametrize("width", [1, 7, 64, 784, 3072])
@pytest.mark.parametrize("name", MAPS)
def test_a_test_row_is_mapped_alike_in_any_company(name: str, width: int) -> None:
    """Whatever is asked together, in whatever order, container and type."""
    draw = np.random.default_rng(width)
    rows = draw.random((100, width), dtype=np.float32)
    model = DPAClassifier(GaussianNB(), 2, classes=[0, 1], features=MAPS[name])
    model.fit(rows[:20], np.arange(20) % 2)
    asked = model._member_samples(rows)
    place = int(draw.integers(1, 99))
    alone = model._member_samples(rows[place : place + 1])
    assert alone.tobytes() == asked[place : place + 1].tobytes()
    for size in (2, 17, 64):
        start = min(place, 100 - size)
        assert (
            model._member_samples(rows[start : start + size]).tobytes()
            == asked[start:][:size].tobytes()
        )
    assert model._member_samples(rows[::-1]).tobytes() == asked[::-1].tobytes()
    strange = np.full((1, width), 1 / 3)
    for other in (strange, strange.astype(object)) if width < 784 else (strange,):
        among = model._member_samples(np.concatenate([rows[:50], other, rows[50:]]))
        assert np.delete(among, 50, axis=0).tobytes() == asked.tobytes()


def test_neighbours_are_mapped_alike_in_any_company() -> None:
    single = X[:170].astype(np.float32) + np.float32(0.1)
    features = make_pipeline(FixedScale(scale=3.0), Thirds())
    votes = NeighborVoteClassifier(features, 0.9, classes=range(10))
    before = votes.fit(single[:150], y[:150]).certify(single[150:170])
    row = np.full((1, 64), 1 / 3)
    model = votes.fit(np.concatenate([single[:150], row]), np.append(y[:150], 0))
    after = model.certify(np.concatenate([single[150:170], row]))
    assert np.abs(before.counts - after.counts[:-1]).max() <= 1
    model = votes.update(remove=(row, [0]))
    assert np.array_equal(model.certify(single[150:170]).counts, before.counts)


def test_a_row_that_a_map_cannot_be_fitted_on_costs_its_own_member() -> None:
    """A map learns nothing, but is fitted on a row: on the first one that it takes."""
    rows = X[:120, 20:24] + 0.1
    model = DPAClassifier(GaussianNB(), 5, classes=range(10), features=Normalizer())
    before = clone(model).fit(pd.DataFrame(rows, columns=list("abcd")), y[:120])
    first = min(sample_digests(rows)[before.partitioner_.assign(rows) == 0].tolist())
    tried = pd.DataFrame([[f"many{i}", 1, 2, 3] for i in range(5000)], columns=list("abcd"))
    ahead = [digest < first for digest in sample_digests(tried).tolist()]
    hostile = tried[(before.partitioner_.assign(tried) == 0) & ahead].iloc[:1]
    frame = pd.concat([pd.DataFrame(rows, columns=list("abcd")), hostile])
    with pytest.warns(MemberWarning, match="1 of 5 members abstain"):
        after = clone(model).fit(frame, np.append(y[:120], 0))
    digests = zip(before.ensemble_.digests(), after.ensemble_.digests(), strict=True)
    assert [i for i, (one, other) in enumerate(digests) if one != other] == [0]


class Thirds(TransformerMixin, BaseEstimator):
    """A user's own map, which says that it learns nothing."""

    learns_nothing = True

    def fit(self, rows: Any, labels: Any = None) -> Thirds:
        return self

    def transform(self, rows: Any) -> Any:
        return rows / rows.dtype.type(3)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def test_learned_features_and_texts_are_taken() -> None:
    model = SSDPAClassifier(GaussianNB(), PCA(9), 10, classes=range(10)).fit(X[:600], y[:600])
    assert model.votes(X[600:700]).shape == (100, 10)
    texts = [f"word{i % 7} {'spam' if i % 2 else 'ham'} {i}" for i in range(200)]
    labels = [i % 2 for i in range(200)]
    mails = DPAClassifier(
        MultinomialNB(), 5, classes=[0, 1], features=HashingVectorizer(alternate_sign=False)
    ).fit(texts, labels)
    assert mails.votes(texts[:20]).shape == (20, 5)
