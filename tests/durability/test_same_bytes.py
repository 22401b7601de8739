"""The same training gives the same files, byte for byte, in any process and on any schedule.

Run as a program it trains every kind of member: ``python -m tests.durability.test_same_bytes
FOLDER JOBS``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, load
from poisonproof.estimators.storing import update_model
from poisonproof.networks import TorchLearner
from poisonproof.store.objects import decode_object, encode_object

from . import jobs
from .killing import killed_at

ROOT = Path(__file__).parents[2]
X, y = jobs.X[:240], jobs.y[:240]
WORDS = np.array([f"word{i}" for i in range(17)])
TEXTS = [" ".join(WORDS[row[20:36].astype(int)]) for row in X]

MEMBERS: dict[str, Any] = {
    "tree": DecisionTreeClassifier(),
    "forest": RandomForestClassifier(5),
    "boosting": GradientBoostingClassifier(n_estimators=2),
    "histogram boosting": HistGradientBoostingClassifier(max_iter=2),
    "logistic regression": LogisticRegression(),
    "words": make_pipeline(TfidfVectorizer(stop_words=["word1", "word2"]), LogisticRegression()),
    "search": GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2),
    "vote": VotingClassifier([("tree", DecisionTreeClassifier()), ("line", LogisticRegression())]),
    "neighbours": KNeighborsClassifier(1, algorithm="kd_tree"),
    "default": None,
    "mlp": TorchLearner("mlp", hidden=(8,), epochs=1),
}


def rows(kind: str) -> Any:
    return TEXTS if kind == "words" else X


def make(kind: str, n_jobs: int | None = None) -> DPAClassifier:
    return DPAClassifier(MEMBERS[kind], 3, classes=range(10), n_jobs=n_jobs)


def train_all(folder: Path, n_jobs: int) -> None:
    warnings.simplefilter("ignore")
    for kind in MEMBERS:
        make(kind, n_jobs).fit_into(folder / kind, rows(kind), y, keep_data=True, self_check=False)


def files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Every kind of member, trained in two processes that hash strings differently."""
    folders = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.durability.test_same_bytes", str(folder), str(n_jobs)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(n_jobs)},
        )
        for n_jobs, folder in enumerate(folders, start=1)
    ]
    assert [child.wait() for child in children] == [0, 0]
    return folders


@pytest.mark.parametrize("kind", MEMBERS)
def test_two_trainings_give_the_same_bytes(kind: str, twice: tuple[Path, Path]) -> None:
    first, second = (files(folder / kind) for folder in twice)
    assert set(first) == set(second)
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["forest", "words", "search", "default", "mlp"])
def test_fitting_and_saving_gives_the_bytes_of_training_into_a_store(
    kind: str, twice: tuple[Path, Path], tmp_path: Path
) -> None:
    make(kind).fit(rows(kind), y).save(tmp_path / "model", keep_data=True)
    assert files(tmp_path / "model") == files(twice[0] / kind)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["forest", "words", "default"])
def test_an_updated_model_saved_anew_has_the_bytes_of_training_from_scratch(
    kind: str, twice: tuple[Path, Path], tmp_path: Path
) -> None:
    X = rows(kind)
    make(kind).fit_into(tmp_path / "updated", X[:230], y[:230], keep_data=True, self_check=False)
    update_model(tmp_path / "updated", add=(X[230:], y[230:]))
    load(tmp_path / "updated").save(tmp_path / "model")
    assert files(tmp_path / "model") == files(twice[0] / kind)


def test_a_killed_and_resumed_training_gives_the_same_bytes(tmp_path: Path) -> None:
    jobs.train(tmp_path / "undisturbed")
    for step in (5, 11, 17):
        path = tmp_path / str(step)
        assert killed_at(step, jobs.train, path)
        jobs.train(path)
        assert files(path) == files(tmp_path / "undisturbed")


def test_training_again_over_the_same_model_changes_no_byte(tmp_path: Path) -> None:
    jobs.train(tmp_path / "model")
    before = files(tmp_path / "model")
    jobs.train(tmp_path / "model")
    jobs.make().fit(jobs.X, jobs.y).save(tmp_path / "model", keep_data=True)
    assert files(tmp_path / "model") == before


def test_bytes_do_not_depend_on_which_equal_parts_are_one_object() -> None:
    """Workers send copies: what was one object in them may be two here."""
    shared, twin = np.arange(3.0), np.arange(3.0)
    data = encode_object([shared, shared, {"b", "a"}, (0.5, 0.5)])
    assert data == encode_object([shared, twin, {"a", "b"}, (float("0.5"), float("0.50"))])
    first, second, *_ = decode_object(data, "a list")
    assert first is not second
    assert encode_object(decode_object(data, "a list")) == data


if __name__ == "__main__":
    train_all(Path(sys.argv[1]), int(sys.argv[2]))
