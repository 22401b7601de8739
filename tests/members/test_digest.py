"""Equal state, equal digest, in any process; any other state, another digest."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from poisonproof.members.digest import deciding_state, state_digest
from poisonproof.members.scikit import ScikitLearner
from poisonproof.partition.partitioned import Partition

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, y = load_iris(return_X_y=True)

LEARNERS = [
    DecisionTreeClassifier(random_state=0),
    RandomForestClassifier(3, random_state=0),
    HistGradientBoostingClassifier(max_iter=3, random_state=0),
    GaussianNB(),
    LogisticRegression(max_iter=500),
    SGDClassifier(random_state=0),
    KNeighborsClassifier(1),
    KNeighborsClassifier(1, algorithm="ball_tree"),
    KNeighborsClassifier(1, algorithm="kd_tree"),
    SVC(random_state=0),
    MLPClassifier((4,), max_iter=5, random_state=0),
    GaussianProcessClassifier(max_iter_predict=5, random_state=0),
    make_pipeline(StandardScaler(), FunctionTransformer(np.abs), GaussianNB()),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: repr(learner)[:40])
def test_the_digest_follows_the_rows_and_nothing_else(learner: Any) -> None:
    first, second = copy.deepcopy(learner).fit(X, y), copy.deepcopy(learner).fit(X, y)
    digest = state_digest(first)
    assert state_digest(second) == digest
    assert state_digest(copy.deepcopy(first)) == digest
    assert state_digest(pickle.loads(pickle.dumps(first))) == digest
    first.predict(X)
    assert state_digest(first) == digest
    moved = X.copy()
    moved[0] += 1
    assert state_digest(second.fit(moved, y)) != digest


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        (1, np.int64(1)),
        ("1", b"1"),
        (None, "None"),
        ([1, 2], (1, 2)),
        ([[1], 2], [[1, 2]]),
        ([["a"], ["b"]], [["a", "b"], []]),
        ({"a": 1}, {"a": 2}),
        ({"a": {"b": 1}}, {"a": {}, "b": 1}),
        ({1, 2}, {1, 3}),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.array([1, 2]), np.array([2, 1])),
        (np.array(["ab", "c"]), np.array(["a", "bc"])),
        (np.array([None, 1], object), np.array([None, 2], object)),
        (np.float64(0.0), np.float64(-0.0)),
        (sparse.csr_matrix(np.eye(3)), sparse.csr_matrix(2 * np.eye(3))),
        (np.abs, np.sin),
        (GaussianNB(), SVC()),
        (GaussianNB(var_smoothing=1e-9), GaussianNB(var_smoothing=1e-8)),
        (np.random.default_rng(0), np.random.default_rng(1)),
        (float("nan"), float("inf")),
    ],
    ids=lambda value: type(value).__name__,  # a representation may hold an address
)
def test_different_values_have_different_digests(left: Any, right: Any) -> None:
    assert state_digest(left) != state_digest(right)
    assert state_digest(left) == state_digest(copy.deepcopy(left))


def test_memory_layout_is_no_value() -> None:
    array = np.arange(12.0).reshape(3, 4)
    assert state_digest(array) == state_digest(np.asfortranarray(array))
    assert state_digest(array) == state_digest(np.repeat(array, 2, axis=1)[:, ::2])


def test_padding_between_fields_is_no_value() -> None:
    kind = np.dtype([("a", "u1"), ("b", "f8")], align=True)
    one, two = np.zeros(4, kind), np.zeros(4, kind)
    two.view("u1")[3] = 255
    assert state_digest(one) == state_digest(two)


def test_sets_have_no_order() -> None:
    forwards, backwards = {f"word{i}" for i in range(50)}, {f"word{49 - i}" for i in range(50)}
    assert state_digest(forwards) == state_digest(backwards)


def test_mappings_keep_theirs() -> None:
    """A member may depend on it, so it is part of its state."""
    assert state_digest({"a": 1, "b": 2}) != state_digest({"b": 2, "a": 1})
    assert state_digest(OrderedDict(a=1)) == state_digest(OrderedDict(a=1))


def test_a_cycle_ends() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert state_digest(loop) != state_digest([1, [1]])


class Holder(BaseEstimator):
    """An object whose hidden state is its only state."""

    def __init__(self) -> None:
        self._hidden = 1


def test_private_attributes_count() -> None:
    one, two = Holder(), Holder()
    two._hidden = 2
    assert state_digest(one) != state_digest(two)


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("a",)

    def __init__(self, a: int) -> None:
        self.a = a


def test_slots_count() -> None:
    assert state_digest(Slotted(1)) != state_digest(Slotted(2))
    assert state_digest(Slotted(1)) == state_digest(Slotted(1))


def test_two_functions_without_a_name_are_not_the_same() -> None:
    """A lambda has a place, not a name; its code decides."""
    assert state_digest(lambda x: x + 1) != state_digest(lambda x: x + 2)


def members_of_many_kinds() -> dict[str, Any]:
    """Return templates that keep addresses, times, sets or random names, and their rows."""
    import torch
    from catboost import CatBoostClassifier
    from lightgbm import LGBMClassifier
    from skorch import NeuralNetClassifier
    from xgboost import XGBClassifier

    words = np.random.default_rng(0).choice(["ant", "bee", "cat", "dog"], (40, 5))
    texts = np.array([" ".join(row) for row in words], dtype=object)
    told = np.array([text.count("ant") % 2 for text in texts])
    chosen = TfidfVectorizer(vocabulary={"ant", "bee", "dog"}, stop_words=["cat"])
    counted = make_pipeline(CountVectorizer(stop_words="english"), MultinomialNB())
    tree, depths = DecisionTreeClassifier(), {"max_depth": [1, 2, 3]}
    net = NeuralNetClassifier(
        torch.nn.Linear,
        module__in_features=4,
        module__out_features=3,
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=2,
        verbose=0,
    )
    return {
        "count": (counted, texts, told),
        "tfidf": (make_pipeline(chosen, MultinomialNB()), texts, told),
        "tuned text": (GridSearchCV(counted, {"multinomialnb__alpha": [1, 2]}, cv=2), texts, told),
        "grid": (GridSearchCV(tree, depths, cv=2, n_jobs=2), X, y),
        "random": (RandomizedSearchCV(tree, depths, n_iter=2, cv=2), X, y),
        "xgboost": (XGBClassifier(n_estimators=2, subsample=0.5), X, y),
        "lightgbm": (LGBMClassifier(n_estimators=2, verbose=-1), X, y),
        "catboost": (CatBoostClassifier(iterations=2, verbose=0, allow_writing_files=False), X, y),
        "skorch": (net, X.astype(np.float32), y),
    }


def digests_of_many_kinds() -> dict[str, Any]:
    """Return the specification of every kind, and a member's digest before and after it votes."""
    found = {}
    for name, (template, rows, labels) in members_of_many_kinds().items():
        learner = ScikitLearner(template, np.unique(labels))
        member = learner.fit_member(Partition(1, rows, labels, None), 3, 0)
        before = member.digest()
        member.votes(rows)
        found[name] = [learner.specification()["parameters"], before, member.digest()]
    return found


def test_members_of_another_process_with_another_string_hashing_have_the_same_digests() -> None:
    """Addresses, seconds, random names and the order of sets decide no vote."""
    code = (
        "import json; from tests.members.test_digest import digests_of_many_kinds as many;"
        "print(json.dumps(many()))"
    )
    other = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"},
    )
    here, there = digests_of_many_kinds(), json.loads(other.stdout.splitlines()[-1])
    assert here == there
    assert [name for name, (_, before, after) in here.items() if before != after] == []


def test_what_a_class_computes_once_is_no_state() -> None:
    class Lazy:
        def __init__(self) -> None:
            self.weight = 3

        @cached_property
        def doubled(self) -> int:
            return 2 * self.weight

    asked = Lazy()
    assert asked.doubled == 6
    assert deciding_state(asked, vars(asked)) == {"weight": 3}


def test_the_code_of_a_class_that_is_not_installed_counts() -> None:
    def written(body: str) -> Any:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(f"class Own:\n    def predict(self, X):\n        return {body}\n", names)
        return names["Own"]()

    assert state_digest(written("X + 1")) == state_digest(written("X + 1"))
    assert state_digest(written("X + 1")) != state_digest(written("X + 2"))


PROGRAM = """
SCALE, FACTORS = {scale}, ({factor}, 1.0)

def halved(X):
    return X / {divisor}

class Base:
    shift = {shift}

class Own(Base):
    def predict(self, X):
        return [halved(row) * SCALE * FACTORS[0] for row in X] + self.shift
"""
WRITTEN = {"scale": 2, "factor": 3.0, "divisor": 2, "shift": 1.0}


@pytest.mark.parametrize("changed", [*WRITTEN, None])
def test_what_a_class_that_is_not_installed_reads_counts(changed: str | None) -> None:
    """A constant or a helper that is edited makes other members of the same name."""

    def written(**values: Any) -> Any:
        names: dict[str, Any] = {"__name__": "__main__", "unread": object()}
        exec(PROGRAM.format(**values), names)
        return names["Own"]()

    other = WRITTEN if changed is None else {**WRITTEN, changed: 7}
    assert (state_digest(written(**WRITTEN)) == state_digest(written(**other))) == (changed is None)


def test_a_global_that_shares_the_name_of_an_attribute_is_not_read() -> None:
    def written(labels: Any) -> Any:
        names: dict[str, Any] = {"__name__": "__main__", "y": labels}
        exec("class Own:\n    def fit(self, X, y):\n        self.y = y\n", names)
        return names["Own"]()

    assert state_digest(written(np.zeros(3))) == state_digest(written(np.ones(3)))
