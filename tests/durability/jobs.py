"""What is killed in these tests: training, saving and updating a small model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from poisonproof import DPAClassifier, load
from poisonproof.estimators.storing import update_model
from poisonproof.exceptions import InvalidRowsError, StoreError

K = 12
LOG = "POISONPROOF_TEST_FITS"
X, y = load_digits(return_X_y=True)
X, y, X_test, y_new = X[:400], y[:400], X[1700:], y[400:410]
X_new = load_digits().data[400:410]
ADD, REMOVE = (X_new, y_new), (X[:5], y[:5])


class CountingBayes(GaussianNB):
    """Naive Bayes that writes down every fit it finishes."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        super().fit(X, y, sample_weight)
        if LOG in os.environ:
            with Path(os.environ[LOG]).open("ab") as file:
                file.write(b".")
        return self


TRUSTED = [f"{CountingBayes.__module__}.{CountingBayes.__qualname__}"]


def make(estimator: Any = None) -> DPAClassifier:
    return DPAClassifier(estimator or CountingBayes(), K, classes=range(10))


def train(path: Path) -> None:
    make().fit_into(path, X, y, keep_data=True)


def save(path: Path) -> None:
    """Save a model over another one, of which nothing can be kept."""
    make(GaussianNB()).fit(X, y[::-1]).save(path, keep_data=True, overwrite=True)


def update(path: Path) -> None:
    """Update a model as the command does."""
    try:
        update_model(path, add=ADD, remove=REMOVE, trusted=TRUSTED)
    except InvalidRowsError:  # killed after the last act: the rows are gone
        assert load(path, trusted=TRUSTED).partition_sizes_.sum() == len(y) + 10 - 5


def update_in_two_steps(path: Path) -> None:
    """Update a model as a program does: load, update, save."""
    model = load(path, trusted=TRUSTED)
    if model.partition_sizes_.sum() == len(y):  # else it is done
        model.update(add=ADD, remove=REMOVE)
    model.save(path)  # deletes what a killed process has left


def digests_or_none(path: Path) -> list[str] | None:
    """Return the members' digests, checked by asking them; None if there is no model yet."""
    try:
        model = load(path, trusted=TRUSTED)
    except StoreError as error:
        if "is not a poisonproof model" not in str(error):
            raise
        return None
    assert model.votes(X_test).shape == (len(X_test), K)
    for index in range(K if model.rows_ is not None else 0):
        model.rows_.shard(index)
    return list(model.ensemble_.digests())


def files(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()]


def contains(path: Path, row: np.ndarray[Any, Any]) -> bool:
    return any(row.tobytes() in content for content in files(path))
