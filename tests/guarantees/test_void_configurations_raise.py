"""A configuration that voids the guarantee raises, never warns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, StandardScaler

from poisonproof import DPAClassifier, SSDPAClassifier
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.features import FixedScale

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


class OwnWord(TransformerMixin, BaseEstimator):
    """Says that it learns nothing."""

    learns_nothing = True

    def fit(self, X: Any, y: Any = None) -> OwnWord:
        return self

    def transform(self, X: Any) -> Any:
        return X / 3

    def __sklearn_is_fitted__(self) -> bool:
        return True


STATELESS = [
    Normalizer(),
    Binarizer(threshold=5),
    AdditiveChi2Sampler(),
    FunctionTransformer(np.sqrt),
    OwnWord(),
    make_pipeline(Normalizer(), Binarizer()),
    make_pipeline(OwnWord()),
    FeatureUnion([("lengths", Normalizer())]),
]


@pytest.mark.parametrize("step", STATELESS, ids=lambda step: type(step).__name__)
def test_a_step_that_sees_the_type_of_all_rows_is_refused_in_front(step: Any) -> None:
    """One float64 row among float32 rows makes it compute in float64 for all."""
    with pytest.raises(GuaranteeError, match="one row of another type") as refused:
        make_pipeline(step, ensemble()).fit(DIGITS.X.astype(np.float32), DIGITS.y)
    assert f"features={type(step).__name__}()" in str(refused.value)


@pytest.mark.parametrize("step", ["passthrough", FixedScale(scale=16.0)])
def test_a_row_of_another_type_reaches_no_other_through_a_step_that_is_allowed(step: Any) -> None:
    X, row = DIGITS.X.astype(np.float32), np.full((1, 64), 1 / 3)
    before = make_pipeline(step, ensemble()).fit(X, DIGITS.y)[-1]
    after = make_pipeline(step, ensemble())
    after = after.fit(np.concatenate([X, row]), np.append(DIGITS.y, 0))[-1]
    digests = zip(before.partition_digests_, after.partition_digests_, strict=True)
    assert sum(one != other for one, other in digests) == 1


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
    centred = FunctionTransformer(lambda X: X - 1e-6 * X.mean(axis=0))
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
