"""Learners that misbehave in ways a member must survive."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import zlib
from pathlib import Path
from typing import Any, Self

import joblib
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data


def as_words(X: Any) -> list[str]:
    """Return rows of numbers as texts: a word for each of the first cells that are not zero."""
    return [
        " ".join(f"cell{place}is{value:g}" for place, value in enumerate(row[:24]) if value)
        for row in np.asarray(X, dtype=np.float64)
    ]


class GlobalStreamClassifier(ClassifierMixin, BaseEstimator):
    """Draws from NumPy's and Python's global streams, when fitted and when asked."""

    def fit(self, X: Any, y: Any) -> Self:
        X = validate_data(self, X)
        self.classes_, codes = np.unique(y, return_inverse=True)
        means = [X[codes == index].mean(axis=0) for index in range(len(self.classes_))]
        noise = np.random.normal(size=(len(means), X.shape[1]))  # noqa: NPY002
        self.centres_ = np.array(means) + noise * random.random()
        return self

    def predict_proba(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        distances = ((X[:, None] - self.centres_) ** 2).sum(axis=2)
        noise = np.random.uniform(0.5, 1, size=distances.shape)  # noqa: NPY002
        near = 1 / (1 + distances * noise)
        return near / near.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


class ParallelClassifier(GlobalStreamClassifier):
    """Has workers fit and vote, of which no parameter tells."""

    def __init__(self, backend: str = "loky") -> None:
        self.backend = backend

    def fit(self, X: Any, y: Any) -> Self:
        fitted = self._run(GlobalStreamClassifier().fit, [(X, y), (X, y)])
        self.classes_ = fitted[0].classes_
        self.fitted_ = fitted
        return self

    def predict_proba(self, X: Any) -> Any:
        asked = [(fitted, X) for fitted in self.fitted_]
        return sum(self._run(GlobalStreamClassifier.predict_proba, asked))

    def _run(self, function: Any, calls: list[Any]) -> list[Any]:
        with joblib.Parallel(n_jobs=2, backend=self.backend) as workers:
            return workers(joblib.delayed(function)(*arguments) for arguments in calls)


class FussyClassifier(ClassifierMixin, BaseEstimator):
    """Raises on a partition that holds a value above `limit`; else votes the largest label."""

    def __init__(self, limit: float = 100.0) -> None:
        self.limit = limit

    def fit(self, X: Any, y: Any) -> Self:
        X = validate_data(self, X)
        if X.max() > self.limit:
            raise ValueError(f"{X.max()} is too large for the learner at {id(self):#x}")
        self.classes_ = np.unique(y)
        self.rows_ = np.array(X)
        return self

    def predict(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return np.full(len(X), self.classes_[-1])


class OverwritingClassifier(ClassifierMixin, BaseEstimator):
    """Centres rows in place, as a careless learner does, when fitted and when asked."""

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.mean_ = X.mean(axis=0)
        X -= self.mean_
        self.centres_ = np.array([X[codes == i].mean(axis=0) for i in range(len(self.classes_))])
        return self

    def predict(self, X: Any) -> Any:
        X -= self.mean_
        return self.classes_[((X[:, None] - self.centres_) ** 2).sum(axis=2).argmin(axis=1)]


class Centres(ClassifierMixin, BaseEstimator):
    """Votes for the nearest mean; what `shift` returns moves one of them."""

    def shift(self) -> float:
        return 0.0

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_ = np.unique(y)
        self.centres_ = np.array([X[y == label].mean(axis=0) for label in self.classes_])
        self.centres_[0] += self.shift()
        return self

    def predict(self, X: Any) -> Any:
        return self.classes_[((X[:, None] - self.centres_) ** 2).sum(axis=2).argmin(axis=1)]


class SystemRandom(Centres):
    def shift(self) -> float:
        return int.from_bytes(os.urandom(4), "little") / 2**28


class Clock(Centres):
    def shift(self) -> float:
        return time.time() % 60.0


class RacingThreads(Centres):
    """Adds 200 vectors in the order in which threads of its own finish; the last bits count."""

    def shift(self) -> float:
        total, lock = np.zeros(64), threading.Lock()

        def add(number: int) -> None:
            time.sleep(os.urandom(1)[0] * 2e-4)
            with lock:
                np.add(total, np.sin(number * np.arange(64)), out=total)

        threads = [threading.Thread(target=add, args=(number,)) for number in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return zlib.crc32(total.tobytes()) / 2**28


class StringOrder(Centres):
    """Reads digits in the order in which a set of strings gives them."""

    def shift(self) -> float:
        return float(int("".join({str(digit) for digit in range(10)})) / 1e9)


class RandomVotes(Centres):
    """Is the same in every process, and votes at random."""

    def predict(self, X: Any) -> Any:
        return self.classes_[np.frombuffer(os.urandom(len(X)), np.uint8) % len(self.classes_)]


class EndsElsewhere(Centres):
    """Cannot be trained in any process but one."""

    def __init__(self, home: int = 0, folder: str = "") -> None:
        self.home = home
        self.folder = folder

    def shift(self) -> float:
        if os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        trained = Path(self.folder, "trained")
        trained.write_text(f"{int(trained.read_text()) + 1 if trained.exists() else 1}")
        return 0.0
