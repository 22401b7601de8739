"""Training into a store again from another kind of container equals training from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from poisonproof import DPAClassifier, load
from poisonproof.exceptions import GuaranteeError

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
    with pytest.raises(GuaranteeError, match="kind of container"):
        loaded.update(add=(X[500:], y[500:]), data=(X[:500], y[:500]))
