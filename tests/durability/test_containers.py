"""Training into a store again from another kind of container equals training from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from poisonproof import DPAClassifier, load
from poisonproof.exceptions import GuaranteeError, StoreError

rng = np.random.default_rng(0)
X = np.where(rng.random((600, 40)) < 0.2, rng.normal(size=(600, 40)), 0.0)
y = (X @ rng.normal(size=40) > 0).astype(int)

KINDS: dict[str, Any] = {
    "array": lambda rows: rows,
    "sparse": sp.csr_array,
    "frame": lambda rows: pd.DataFrame(rows, columns=[f"c{i}" for i in range(40)]),
}


def model() -> DPAClassifier:
    return DPAClassifier(LogisticRegression(), 8, classes=[0, 1])


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("then", KINDS)
def test_members_of_another_kind_of_container_are_not_kept(
    first: str, then: str, tmp_path: Path
) -> None:
    trained = model().fit_into(tmp_path / "store", KINDS[first](X), y)
    again = model().fit_into(tmp_path / "store", KINDS[then](X), y)
    scratch = model().fit(KINDS[then](X), y)
    assert again.ensemble_.digests() == scratch.ensemble_.digests()
    assert trained.partition_digests_ == again.partition_digests_


def test_a_learner_does_round_containers_differently() -> None:
    """Otherwise the tests above could not fail."""
    dense, sparse = (model().fit(KINDS[kind](X), y) for kind in ("array", "sparse"))
    assert dense.ensemble_.digests() != sparse.ensemble_.digests()


def test_a_model_of_frames_is_updated_after_loading(tmp_path: Path) -> None:
    make = KINDS["frame"]
    model().fit_into(tmp_path / "store", make(X[:500]), y[:500], keep_data=True)
    loaded = load(tmp_path / "store").update(add=(make(X[500:]), y[500:]))
    scratch = model().fit(make(X), y)
    assert loaded.ensemble_.digests() == scratch.ensemble_.digests()


def test_rows_of_another_kind_do_not_join_a_stored_model(tmp_path: Path) -> None:
    model().fit_into(tmp_path / "store", KINDS["sparse"](X[:500]), y[:500])
    loaded = load(tmp_path / "store")
    with pytest.raises(GuaranteeError, match="was trained on"):
        loaded.update(add=(X[500:], y[500:]), data=(X[:500], y[:500]))


def test_members_that_choose_columns_by_name_are_trained_again_under_other_names(
    tmp_path: Path,
) -> None:
    member = make_pipeline(
        make_column_transformer(("passthrough", ["c3", "c5", "c7"])), LogisticRegression()
    )
    renamed = KINDS["frame"](X).rename(columns={"c3": "c30", "c30": "c3"})
    for frame in (KINDS["frame"](X), renamed):
        again = DPAClassifier(member, 8, classes=[0, 1])
        again.fit_into(tmp_path / "store", frame, y, overwrite=True)
        scratch = DPAClassifier(member, 8, classes=[0, 1]).fit(frame, y)
        assert again.ensemble_.digests() == scratch.ensemble_.digests()


class ImageBayes(GaussianNB):
    """Naive Bayes on flat rows, and on the means of the rows of images."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        return super().fit(X if X.ndim == 2 else X.mean(axis=2), y, sample_weight)

    def predict(self, X: Any) -> Any:
        return super().predict(X if X.ndim == 2 else X.mean(axis=2))


TRUSTED = [f"{ImageBayes.__module__}.{ImageBayes.__qualname__}"]


def of_images() -> DPAClassifier:
    return DPAClassifier(ImageBayes(), 8, classes=[0, 1])


def test_members_of_rows_of_another_shape_are_not_kept(tmp_path: Path) -> None:
    """Equal values, so equal partitions; but what a member is handed has another shape."""
    images = X.reshape(600, 20, 2)
    flat = of_images().fit_into(tmp_path / "store", X, y, keep_data=True)
    shaped = of_images().fit_into(tmp_path / "store", images, y, keep_data=True, overwrite=True)
    scratch = of_images().fit(images, y)
    assert flat.partition_digests_ == shaped.partition_digests_
    assert shaped.ensemble_.digests() == scratch.ensemble_.digests()
    loaded = load(tmp_path / "store", trusted=TRUSTED)
    assert np.array_equal(loaded.votes(images), scratch.votes(images))
    with pytest.raises(GuaranteeError, match="was trained on"):
        loaded.update(add=(images[:5, ..., None] + 1, y[:5]), data=(images[..., None], y))
    loaded.update(remove=(images[:5], y[:5]))  # the rows that are kept have their shape
    again = of_images().fit(images[5:], y[5:])
    assert loaded.ensemble_.digests() == again.ensemble_.digests()


def test_a_model_of_flat_rows_is_not_replaced_by_one_of_images(tmp_path: Path) -> None:
    of_images().fit_into(tmp_path / "store", X, y)
    with pytest.raises(StoreError, match="n_features_in differ"):
        of_images().fit_into(tmp_path / "store", X.reshape(600, 20, 2), y)
