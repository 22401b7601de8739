"""Training sets of realistic shapes for the guarantee tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits


@dataclass(frozen=True)
class Data:
    """Rows to train on and rows to ask about."""

    X: Any
    y: Any
    X_test: Any
    classes: list[Any]


@cache
def data(name: str) -> Data:
    makers = {
        "digits": _digits,
        "integers": _integers,
        "cancer": _cancer,
        "images": _images,
        "small-images": _small_images,
        "frame": _frame,
    }
    return makers[name]()


def _digits() -> Data:
    X, y = load_digits(return_X_y=True)
    return Data(X[:1300], y[:1300], X[1300:1400], list(range(10)))


def _integers() -> Data:
    """The same rows in a container that holds integers only."""
    digits = _digits()
    return Data(digits.X.astype(np.int64), digits.y, digits.X_test, digits.classes)


def _cancer() -> Data:
    """Real-valued columns of very different scales."""
    X, y = load_breast_cancer(return_X_y=True)
    return Data(X[:480], y[:480], X[480:], [0, 1])


def _images() -> Data:
    """Images of 28 x 28 bytes, flat, as MNIST has them."""
    X, y = load_digits(return_X_y=True)
    coarse = (X * 15).astype(np.uint8).reshape(-1, 8, 8)
    fine = np.pad(coarse.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    flat = fine.reshape(len(y), -1)
    return Data(flat[:1500], y[:1500], flat[1500:1600], list(range(10)))


def _small_images() -> Data:
    """Images of 8 x 8 bytes, flat: a convolution over them is quick."""
    X, y = load_digits(return_X_y=True)
    flat = (X * 15).astype(np.uint8)
    return Data(flat[:120], y[:120], flat[120:150], list(range(10)))


def _frame() -> Data:
    """A frame with declared categories and missing values; one label is in few partitions."""
    X, y = load_breast_cancer(return_X_y=True)
    grade = np.array(["low", "mid", "high"], dtype=object)[np.digitize(X[:, 0], [12, 16])]
    grade[::17] = None
    columns = {f"n{j}": np.where(np.arange(len(y)) % 11 == j, np.nan, X[:, j]) for j in range(6)}
    frame = pd.DataFrame({**columns, "grade": grade, "site": np.rint(X[:, 1]) % 9})
    frame = frame.astype(
        {
            "grade": pd.CategoricalDtype(["high", "none", "low", "mid"]),
            "site": pd.CategoricalDtype(range(12)),
        }
    )
    labels = np.where(np.arange(len(y)) % 97 == 0, 1, 2 * y)
    return Data(frame[:480], labels[:480], frame[480:], [0, 1, 2])


def near_copies(clf: Any, asked: Any, count: int) -> Any:
    """Return near copies of a test row, each in a partition (or bucket) of its own."""
    near = asked + np.random.default_rng(1).normal(0, 1e-3, (400, asked.shape[1]))
    _, first = np.unique(clf.partitioner_.assign(near), return_index=True)
    assert len(first) >= count
    return near[first][:count]
