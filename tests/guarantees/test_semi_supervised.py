"""SS-DPA: features see all samples and no label; a flipped label reaches one member."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from poisonproof import SSDPAClassifier
from poisonproof.certificates import TRUSTED_SAMPLES
from poisonproof.exceptions import GuaranteeError

from .checks import assert_only_touched_change, changed_members
from .data import data

DIGITS = data("digits")


def ensemble(features: Any = None, k: int = 20, **parameters: Any) -> SSDPAClassifier:
    return SSDPAClassifier(KNeighborsClassifier(1), features, k, classes=range(10), **parameters)


def repeated_rows() -> tuple[Any, Any]:
    """Every sample three times, each time with another label: appendix G."""
    X = np.concatenate([DIGITS.X[:400]] * 3)
    y = np.concatenate([(DIGITS.y[:400] + shift) % 10 for shift in range(3)])
    return X, y


@pytest.mark.parametrize("partitioner", ["sorted", "content", "pixel_sum"])
def test_all_rows_of_a_repeated_sample_share_a_partition(partitioner: str) -> None:
    X, y = repeated_rows()
    assigned = ensemble(partitioner=partitioner).fit(X, y).partitioner_.assign(X)
    assert np.array_equal(assigned[:400], assigned[400:800])
    assert np.array_equal(assigned[:400], assigned[800:])


def test_the_certificate_counts_samples_not_rows() -> None:
    X, y = repeated_rows()
    certificates = ensemble().fit(X, y).certify(DIGITS.X_test)
    assert certificates.threat.unit == "sample"
    assert certificates.threat.name == "label_flip"
    assert TRUSTED_SAMPLES in certificates.threat.assumptions


def test_relabelling_every_copy_of_a_sample_reaches_one_member() -> None:
    X, y = repeated_rows()
    clean = ensemble(PCA(10)).fit(X, y)
    attacked = [7, 407, 807]
    flipped = y.copy()
    flipped[attacked] = (y[attacked] + 5) % 10
    after = ensemble(PCA(10)).fit(X, flipped)
    touched = clean.partitioner_.assign(X)[attacked]
    assert len(set(touched.tolist())) == 1
    assert_only_touched_change(clean, after, DIGITS.X_test, touched)


def test_flips_of_radius_many_samples_change_no_certified_prediction() -> None:
    X, y = repeated_rows()
    clean = ensemble().fit(X, y)
    certificates = clean.certify(DIGITS.X_test)
    assigned = clean.partitioner_.assign(X)[:400]
    rng = np.random.default_rng(0)
    for size in range(1, int(certificates.radius.max()) + 1):
        partitions = rng.permutation(20)[:size]
        samples = [int(rng.choice(np.flatnonzero(assigned == part))) for part in partitions]
        flipped = y.copy()
        for sample in samples:
            flipped[[sample, sample + 400, sample + 800]] = rng.integers(0, 10)
        after = ensemble().fit(X, flipped).predict(DIGITS.X_test)
        certified = certificates.radius >= size
        assert (after == certificates.labels)[certified].all()


@pytest.mark.parametrize("threat", ["insert_delete", "replace"])
def test_threats_to_samples_are_not_certified(threat: str) -> None:
    fitted = ensemble().fit(DIGITS.X, DIGITS.y)
    with pytest.raises(GuaranteeError, match="DPAClassifier"):
        fitted.certify(DIGITS.X_test, threat=threat)


class _SpyingTransformer(TransformerMixin, BaseEstimator):
    """Uses labels if it is given any, and draws from the global stream."""

    def fit(self, X: Any, y: Any = None) -> _SpyingTransformer:
        self.shift_ = 0.0 if y is None else float(np.sum(y))
        self.noise_ = np.random.normal(size=X.shape[1])  # noqa: NPY002
        return self

    def transform(self, X: Any) -> Any:
        return X * (1 + 0.01 * self.noise_) + self.shift_


def test_no_label_reaches_the_features() -> None:
    before = ensemble(_SpyingTransformer()).fit(DIGITS.X, DIGITS.y)
    after = ensemble(_SpyingTransformer()).fit(DIGITS.X, np.roll(DIGITS.y, 1))
    assert before.features_.shift_ == after.features_.shift_ == 0
    assert np.array_equal(before.features_.noise_, after.features_.noise_)


def test_the_order_of_repeated_samples_cannot_carry_labels_into_the_features() -> None:
    """Sorting rows by sample alone must not let the label decide between equal samples."""
    X, y = repeated_rows()
    before = ensemble(PCA(10)).fit(X, y)
    flipped = y.copy()
    flipped[:200] = 9 - flipped[:200]
    after = ensemble(PCA(10)).fit(X, flipped)
    assert np.array_equal(before.features_.components_, after.features_.components_)


def test_features_are_fitted_in_an_order_the_samples_decide() -> None:
    order = np.random.default_rng(0).permutation(len(DIGITS.y))
    for features in (PCA(10), _SpyingTransformer()):
        before = ensemble(features).fit(DIGITS.X, DIGITS.y)
        after = ensemble(features).fit(DIGITS.X[order], DIGITS.y[order])
        assert not changed_members(before, after, DIGITS.X_test)


def test_the_template_of_the_features_is_not_fitted() -> None:
    features = PCA(10)
    ensemble(features).fit(DIGITS.X, DIGITS.y)
    assert not hasattr(features, "components_")


def test_sorted_partitions_differ_in_size_by_at_most_one_sample() -> None:
    model = SSDPAClassifier(DecisionTreeClassifier(), None, 30, classes=range(10))
    sizes = clone(model).fit(DIGITS.X, DIGITS.y).partition_sizes_
    assert np.ptp(sizes) <= 1
