"""A configuration that voids the guarantee raises, never warns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.exceptions import GuaranteeError, InvalidInputError

from .data import data

DIGITS = data("digits")


def ensemble(**parameters: Any) -> DPAClassifier:
    return DPAClassifier(GaussianNB(), 20, classes=range(10), **parameters)


LEARNED = [
    StandardScaler(),
    PCA(5),
    SimpleImputer(),
    VarianceThreshold(),
    make_pipeline(Normalizer(), StandardScaler()),
    FeatureUnion([("scaled", StandardScaler())]),
    ColumnTransformer([("scaled", StandardScaler(), [0])]),
    FunctionTransformer(lambda X: X - X.mean(axis=0)),
]


@pytest.mark.parametrize("step", LEARNED, ids=lambda step: type(step).__name__)
def test_a_step_that_learns_in_front_of_the_ensemble_is_refused(step: Any) -> None:
    with pytest.raises(GuaranteeError, match="inside the member"):
        make_pipeline(step, ensemble()).fit(DIGITS.X, DIGITS.y)


def test_nested_and_cross_validated_pipelines_are_refused_too() -> None:
    inner = Pipeline([("model", ensemble())])
    with pytest.raises(GuaranteeError):
        make_pipeline(StandardScaler(), inner).fit(DIGITS.X, DIGITS.y)
    with pytest.raises(GuaranteeError):
        cross_val_predict(
            make_pipeline(StandardScaler(), ensemble()),
            DIGITS.X[:300],
            DIGITS.y[:300],
            cv=2,
        )


def test_a_step_that_learns_nothing_is_allowed() -> None:
    fitted = make_pipeline(Normalizer(), ensemble()).fit(DIGITS.X, DIGITS.y)
    assert fitted.predict(DIGITS.X_test).shape == (100,)


def test_a_scaler_inside_the_member_is_allowed() -> None:
    model = DPAClassifier(
        make_pipeline(StandardScaler(), KNeighborsClassifier(1)), 20, classes=range(10)
    )
    assert model.fit(DIGITS.X, DIGITS.y).certify(DIGITS.X_test).radius.max() > 3


@pytest.mark.parametrize("features", [StandardScaler(), PCA(5)], ids=str)
def test_dpa_refuses_features_that_learn(features: Any) -> None:
    with pytest.raises(GuaranteeError, match="SSDPAClassifier"):
        ensemble(features=features).fit(DIGITS.X, DIGITS.y)


def test_a_feature_map_that_mixes_rows_sees_one_partition_at_a_time() -> None:
    """FunctionTransformer claims to learn nothing; what its function does nobody knows."""
    centred = FunctionTransformer(lambda X: X - X.mean(axis=0))
    before = ensemble(features=centred).fit(DIGITS.X, DIGITS.y)
    row = np.full((1, 64), 16.0)
    after = ensemble(features=centred)
    after.fit(np.concatenate([DIGITS.X, row]), np.append(DIGITS.y, 0))
    digests = zip(before.ensemble_.digests(), after.ensemble_.digests(), strict=True)
    changed = [index for index, (old, new) in enumerate(digests) if old != new]
    assert changed == after.partitioner_.assign(row).tolist()


SEEDS = {
    "none": None,
    "stream": np.random.RandomState(0),
    "negative": -1,
    "fraction": 0.5,
    "bool": True,
    "text": "0",
}


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_a_seed_that_members_would_share_is_refused(seed: Any) -> None:
    with pytest.raises(InvalidInputError, match="random_state must be a non-negative integer"):
        ensemble(random_state=seed).fit(DIGITS.X, DIGITS.y)


def test_sorted_partitions_are_refused_for_inserted_rows() -> None:
    """One inserted sample shifts every sample behind it into another partition."""
    with pytest.raises(GuaranteeError, match="SortedIndex"):
        ensemble(partitioner="sorted").fit(DIGITS.X, DIGITS.y).certify(
            DIGITS.X_test, threat="insert_delete"
        )


def test_an_unknown_threat_is_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="threat"):
        ensemble().fit(DIGITS.X, DIGITS.y).certify(DIGITS.X_test, threat="meteorite")


def test_label_flips_of_a_content_hash_are_certified() -> None:
    """The label is not hashed, so a flipped row stays where it is."""
    fitted = ensemble().fit(DIGITS.X, DIGITS.y)
    flips = fitted.certify(DIGITS.X_test, threat="label_flip")
    rows = fitted.certify(DIGITS.X_test)
    assert np.array_equal(flips.radius, rows.radius)


def test_semi_supervised_pipelines_may_learn_without_labels_as_features_only() -> None:
    model = SSDPAClassifier(KNeighborsClassifier(1), None, 20, classes=range(10))
    with pytest.raises(GuaranteeError):
        make_pipeline(VarianceThreshold(), model).fit(DIGITS.X, DIGITS.y)
