"""Random streams are keyed by (seed, partition index); none is shared."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.random_projection import GaussianRandomProjection
from sklearn.tree import DecisionTreeClassifier

from poisonproof.members.streams import (
    WORKERS,
    give_one_worker,
    isolated_streams,
    restored_streams,
    seed_nested,
    stream_seed,
)


def test_seeds_of_different_streams_differ() -> None:
    keys = [(seed, index, name) for seed in range(5) for index in range(400) for name in ("", "a")]
    seeds = [stream_seed(*key) for key in keys]
    assert len(set(seeds)) > len(keys) - 5  # 31 bits: two of 4,000 seeds meet now and then
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_every_nested_random_state_is_set() -> None:
    estimator = make_pipeline(
        GaussianRandomProjection(4),
        BaggingClassifier(RandomForestClassifier(random_state=np.random.RandomState(3))),
    )
    seed_nested(estimator, 0, 7)
    found = {
        name: value
        for name, value in estimator.get_params().items()
        if name.endswith("random_state")
    }
    assert len(found) == 3
    assert all(isinstance(value, int) for value in found.values())
    assert len(set(found.values())) == 3


def test_every_nested_parameter_that_asks_for_workers_is_one() -> None:
    from catboost import CatBoostClassifier
    from lightgbm import LGBMClassifier
    from xgboost import XGBClassifier

    boosted = [
        XGBClassifier(nthread=3),
        LGBMClassifier(num_threads=3),
        CatBoostClassifier(),
    ]
    for booster in boosted:
        estimator = GridSearchCV(
            make_pipeline(GaussianRandomProjection(4), booster), {"memory": [None]}, n_jobs=-1
        )
        give_one_worker(estimator)
        found = estimator.get_params(deep=True)
        asked = {name for name in found if name.split("__")[-1] in WORKERS}
        assert {found[name] for name in asked} == {1}
        assert len(asked) >= 2


def test_a_search_inside_the_member_is_seeded() -> None:
    search = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=KFold(2))
    seed_nested(search, 0, 1)
    assert search.estimator.random_state == stream_seed(0, 1, "estimator__random_state")


def test_an_estimator_without_randomness_is_left_alone() -> None:
    before = GaussianNB().get_params()
    estimator = GaussianNB()
    seed_nested(estimator, 0, 1)
    assert estimator.get_params() == before


def draws() -> tuple[float, float]:
    return np.random.uniform(), random.random()  # noqa: NPY002


def test_inside_the_streams_depend_on_the_key_alone() -> None:
    with isolated_streams(0, 5):
        first = draws()
    draws()
    with isolated_streams(0, 5):
        assert draws() == first
    with isolated_streams(0, 6):
        assert draws() != first


def test_outside_the_streams_go_on_as_if_nothing_had_happened() -> None:
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    expected = [draws() for _ in range(3)]
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    found = [draws()]
    with isolated_streams(3, 4):
        draws()
    found.append(draws())
    with pytest.raises(ZeroDivisionError), isolated_streams(3, 4):
        draws()[0] / 0
    found.append(draws())
    assert found == expected


def test_many_members_restore_the_streams_once_and_still_do_not_share_them() -> None:
    np.random.seed(1)  # noqa: NPY002
    expected = draws()
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    python = random.random()
    random.seed(1)
    with isolated_streams(0, 5):
        alone = draws()
    with restored_streams():
        with isolated_streams(0, 4):
            draws()
        with isolated_streams(0, 5):
            assert draws() == alone
    assert np.random.uniform() == expected[0]  # noqa: NPY002
    assert random.random() == python


def test_torchs_global_stream_is_isolated_when_torch_is_loaded() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    with isolated_streams(0, 1):
        first = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    with isolated_streams(0, 1):
        assert torch.equal(torch.rand(2), first)


LATE = """
import sys
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from poisonproof import DPAClassifier
from poisonproof.partition.contributors import make_partitioner

class Late(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        import torch
        self.classes_, self.noise_ = np.unique(y), torch.rand(3).numpy()
        return self
    def predict(self, X):
        return np.full(len(X), self.classes_[0])

X, y = np.arange(60.0).reshape(30, 2), np.arange(30) % 2
model = DPAClassifier(Late(), 3, classes=range(2))
keep = make_partitioner("content", 3).assign(X) != int(sys.argv[1])
print(*model.fit(X[keep], y[keep]).ensemble_.digests())
"""


def _digests(emptied: int) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", LATE, str(emptied)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_the_member_that_loads_torch_is_the_one_it_is_anywhere_else() -> None:
    """An attack that empties partition 0 makes member 1 the first that draws."""
    pytest.importorskip("torch")
    assert _digests(-1)[1:] == _digests(0)[1:]


LATE_THREADS = """
import sys
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.tree import DecisionTreeClassifier
from poisonproof import DPAClassifier

class Late(ClassifierMixin, TransformerMixin, BaseEstimator):
    learns_nothing = True
    def fit(self, X, y=None):
        if y is not None:
            import torch
            self.classes_, self.threads_ = np.unique(y), torch.get_num_threads()
        return self
    def transform(self, X):
        import torch
        return np.column_stack([X, np.full(len(X), torch.get_num_threads())])
    def predict(self, X):
        return np.full(len(X), self.classes_[0])

X, y = np.arange(60.0).reshape(30, 2), np.arange(30) % 2
if sys.argv[1] == "member":
    model = DPAClassifier(Late(), 3, classes=range(2)).fit(X, y)
    print(*(member.estimator.threads_ for member in model.ensemble_.members))
else:
    model = DPAClassifier(DecisionTreeClassifier(), 3, features=Late(), classes=range(2))
    data = model._prepare(X, y, None, None)
    mapped = model._member_data(data, range(3))
    print(*(int(mapped[index].X[0, 2]) for index in range(3)))
"""


@pytest.mark.parametrize("late", ["member", "map"])
def test_a_library_that_comes_with_the_first_member_has_one_thread(late: str) -> None:
    """Later, in an update or another process, it would have one; so it must have one at once."""
    pytest.importorskip("torch")
    variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(variables, "3")}
    command = [sys.executable, "-W", "ignore", "-c", LATE_THREADS, late]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["1", "1", "1"]
