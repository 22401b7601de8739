"""A saved classifier votes, certifies and describes itself as before."""

from __future__ import annotations

import ast
import json
import pickletools
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, SSDPAClassifier, load
from poisonproof.estimators import NeighborVoteClassifier
from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.members.closed_form import (
    KernelRidgeClassifier,
    RidgeClassifier,
    ScaledKernelClassifier,
)
from poisonproof.members.committee import Committee
from poisonproof.partition import ContentHash

from ..store.tampering import edit_manifest

X, y = load_digits(return_X_y=True)
X, y, X_test = X[:600], y[:600], X[1300:1400]


def ensemble(estimator: Any, **parameters: Any) -> DPAClassifier:
    return DPAClassifier(estimator, 8, classes=range(10), **parameters)


MODELS = {
    "tree": ensemble(DecisionTreeClassifier(max_depth=6)),
    "forest": ensemble(RandomForestClassifier(3)),
    "naive-bayes": ensemble(GaussianNB(), random_state=7),
    "neighbours": ensemble(KNeighborsClassifier(1)),
    "ball-tree": ensemble(KNeighborsClassifier(1, algorithm="ball_tree")),
    "svc": ensemble(SVC()),
    "pipeline": ensemble(make_pipeline(StandardScaler(), LogisticRegression(max_iter=9))),
    "pixel-sum": ensemble(GaussianNB(), partitioner="pixel_sum", n_jobs=2),
    "semi-supervised": SSDPAClassifier(KNeighborsClassifier(1), PCA(9), 8, classes=range(10)),
    "undeclared": DPAClassifier(GaussianNB(), 8),
    "committees": ensemble(Committee([("a", GaussianNB()), ("b", ScaledKernelClassifier())])),
    **{
        f"pipeline-{type(last).__name__}": ensemble(make_pipeline(StandardScaler(), last))
        for last in (KernelRidgeClassifier(), RidgeClassifier())
    },
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_saved_one(name: str, tmp_path: Path) -> None:
    saved = MODELS[name].fit(X, y)
    saved.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(saved)
    assert np.array_equal(loaded.votes(X_test), saved.votes(X_test))
    assert loaded.certify(X_test).equals(saved.certify(X_test))
    assert loaded.ensemble_.digests() == saved.ensemble_.digests()
    assert np.array_equal(loaded.partition_sizes_, saved.partition_sizes_)
    assert loaded.classes_.dtype == saved.classes_.dtype
    assert repr(loaded.get_params()["estimator"]) == repr(saved.get_params()["estimator"])
    assert loaded.random_state == saved.random_state


def test_text_labels_feature_names_and_failures_survive(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay"])
    frame = pd.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
    saved = DPAClassifier(GaussianNB(), 8, classes=names.tolist()).fit(frame, names[y])
    saved.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == frame.columns.tolist()
    assert loaded.predict(frame[:5]).tolist() == saved.predict(frame[:5]).tolist()
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"pixel 3": "price"}))


def test_empty_one_class_and_failed_members_survive(tmp_path: Path) -> None:
    few = DPAClassifier(SVC(), 30, classes=range(10))
    with pytest.warns(UserWarning, match="too large"):
        few.fit(X[:20], y[:20])
    few.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert np.array_equal(loaded.votes(X_test), few.votes(X_test))
    assert loaded.ensemble_.digests() == few.ensemble_.digests()


def test_a_model_saved_without_rows_says_so_when_it_is_updated(tmp_path: Path) -> None:
    ensemble(GaussianNB()).fit(X, y).save(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="without its training rows"):
        load(tmp_path / "model").update(add=(X[:1], y[:1]))


def test_an_unfitted_model_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="not fitted"):
        ensemble(GaussianNB()).save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_no_file_of_a_model_is_a_pickle(tmp_path: Path) -> None:
    ensemble(RandomForestClassifier(2)).fit(X, y).save(tmp_path / "model")
    contents = {}
    for path in (tmp_path / "model").rglob("*"):
        if path.is_dir():
            continue
        contents[path.name] = path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                contents |= {name: archive.read(name) for name in archive.namelist()}
    assert len(contents) > 5
    for name, content in contents.items():
        assert not _is_pickle(content), name


def _is_pickle(content: bytes) -> bool:
    try:
        operations = [operation.name for operation, _, _ in pickletools.genops(content)]
    except Exception:
        return False
    return bool(operations) and operations[-1] == "STOP"


class Bystander(ClassifierMixin, BaseEstimator):
    """A classifier from outside scikit-learn."""

    def fit(self, X: Any, y: Any) -> Bystander:
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.classes_[0])


def test_foreign_types_are_loaded_only_when_named(tmp_path: Path) -> None:
    saved = ensemble(Bystander()).fit(X, y)
    saved.save(tmp_path / "model")
    name = f"{Bystander.__module__}.{Bystander.__qualname__}"
    with pytest.raises(StoreError, match=name):
        load(tmp_path / "model")
    for wrong in (name, True):  # a name is no list of names, and everything is no decision
        with pytest.raises(InvalidInputError, match="lists full names"):
            load(tmp_path / "model", trusted=wrong)  # type: ignore[arg-type]
    loaded = load(tmp_path / "model", trusted=[name])
    assert np.array_equal(loaded.votes(X_test), saved.votes(X_test))


@pytest.mark.parametrize("kind", ["lightgbm.LGBMClassifier", "xgboost.XGBClassifier"])
def test_boosted_members_are_loaded_without_trust(kind: str, tmp_path: Path) -> None:
    package, _, name = kind.partition(".")
    member = getattr(pytest.importorskip(package), name)(n_estimators=2)
    saved = ensemble(member).fit(X, y)
    saved.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").votes(X_test), saved.votes(X_test))
    own = ensemble(member).fit_into(tmp_path / "own", X, y)
    assert np.array_equal(own.votes(X_test), saved.votes(X_test))


@pytest.mark.parametrize("booster", ["dart", "gblinear"])
def test_boosters_that_cannot_be_checked_need_trust(booster: str, tmp_path: Path) -> None:
    member = pytest.importorskip("xgboost").XGBClassifier(n_estimators=2, booster=booster)
    saved = ensemble(member).fit(X, y)
    saved.save(tmp_path / "model")
    with pytest.raises(StoreError, match="trusted=") as refused:
        load(tmp_path / "model").votes(X_test)
    listed = re.search(r"trusted=(\[.*?\])", str(refused.value))
    assert listed is not None
    loaded = load(tmp_path / "model", trusted=ast.literal_eval(listed[1]))
    assert np.array_equal(loaded.votes(X_test), saved.votes(X_test))


def test_a_model_of_a_library_that_is_not_installed_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=2, verbose=-1)
    ensemble(member).fit(X, y).save(tmp_path / "model")
    for name in [name for name in sys.modules if name.split(".")[0] == "lightgbm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(StoreError, match=r"needs the module 'lightgbm.*Install it"):
        load(tmp_path / "model").votes(X_test)


def test_the_manifest_describes_what_decides_the_bits(tmp_path: Path) -> None:
    ensemble(GaussianNB()).fit(X, y).save(tmp_path / "model")
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert manifest["environment"]["packages"]["scikit-learn"]
    assert manifest["model"]["partitioner"]
    assert manifest["model"]["learner"]["estimator"].endswith("GaussianNB")
    assert manifest["model"]["classes"]["values"] == list(range(10))
    assert len(manifest["partition_digests"]) == len(manifest["member_digests"]) == 8


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["model", "classifier"], "Popen"),
        (["model", "classes"], {"dtype": "|O", "values": [0]}),
        (["model", "classes"], {"dtype": "<i8", "values": [[0]]}),
        (["model", "classes", "values"], [0, 1]),
        (["family"], "os.system"),
        (["member_digests"], ["constant:3"] * 8),
        (["member_digests"], []),
        (["members"], []),
        (["members"], "abc"),
        (["partition_sizes"], [1]),
        (["partition_sizes"], [-1] * 8),
        (["model", "parameters", "n_partitions"], 9),
        (["model", "parameters", "random_state"], None),
        (["model", "partitioner"], {"name": "os.system"}),
        (["model", "partitioner"], None),
        (["model", "n_features_in"], "64"),
        (["model", "parameters"], {}),
        (["model", "templates"], {}),
        (["revision"], "0"),
        (["rows"], None),
    ],
)
@pytest.mark.parametrize("careful", [False, True], ids=["careless", "careful"])
def test_a_manifest_that_lies_is_refused(
    path: list[str], value: Any, careful: bool, tmp_path: Path
) -> None:
    """Whether or not the liar also corrects the fingerprint."""
    ensemble(GaussianNB()).fit(X, y).save(tmp_path / "model")
    edit_manifest(tmp_path / "model", path, value, careful=careful)
    with pytest.raises(StoreError):
        load(tmp_path / "model").votes(X_test)


def test_members_that_are_not_the_ones_that_were_saved_are_refused(tmp_path: Path) -> None:
    """Blocks of one model under the manifest of another, which lists them by their right names."""
    ensemble(GaussianNB()).fit(X, y).save(tmp_path / "model")
    ensemble(GaussianNB()).fit(X, np.roll(y, 1)).save(tmp_path / "other")
    here, other = (
        json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("model", "other")
    )
    for entry in here["members"]:
        (tmp_path / "model" / "objects" / entry["name"]).unlink()
    for entry in other["members"]:
        source = tmp_path / "other" / "objects" / entry["name"]
        source.replace(tmp_path / "model" / "objects" / entry["name"])
    edit_manifest(tmp_path / "model", ["members"], other["members"], careful=True)
    with pytest.raises(StoreError, match="other than the listed one"):
        load(tmp_path / "model").votes(X_test)


OTHERS = {
    "learner": ensemble(DecisionTreeClassifier(max_depth=2)),
    "parameters": ensemble(GaussianNB(), random_state=1),
    "classes": DPAClassifier(GaussianNB(), 8, classes=range(11)),
    "partitioner": ensemble(GaussianNB(), partitioner="pixel_sum"),
    "classifier": NeighborVoteClassifier(classes=range(10)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_model_is_not_replaced_without_a_word(what: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    ensemble(GaussianNB()).fit(X, y).save(path)
    other = clone(OTHERS[what]).fit(X, y)
    with pytest.raises(StoreError, match=rf"holds another model \(.*{what}.*overwrite=True"):
        other.save(path)
    if what != "classifier":
        with pytest.raises(StoreError, match="holds another model"):
            clone(OTHERS[what]).fit_into(path, X, y)
    assert load(path).get_params()["n_partitions"] == 8
    other.save(path, overwrite=True)
    assert type(load(path)) is type(other)


def test_a_model_that_cannot_be_read_is_not_replaced_without_a_word(tmp_path: Path) -> None:
    model = ensemble(GaussianNB()).fit(X, y)
    model.save(tmp_path / "model")
    edit_manifest(tmp_path / "model", ["version"], 99, careful=False)
    with pytest.raises(StoreError, match=r"version .99.*would be lost.*overwrite=True"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    assert np.array_equal(load(tmp_path / "model").predict(X_test), model.predict(X_test))


def test_a_later_state_of_a_model_takes_its_place(tmp_path: Path) -> None:
    """Other rows, or a library that has been updated meanwhile, make no other model."""
    ensemble(GaussianNB()).fit(X[:300], y[:300]).save(tmp_path / "model")
    ensemble(GaussianNB()).fit_into(tmp_path / "model", X, y)
    ensemble(GaussianNB(), n_jobs=2, verbose=0).fit(X[1:], y[1:]).save(tmp_path / "model")
    assert load(tmp_path / "model").partition_sizes_.sum() == len(y) - 1


class ByFirstValue(ContentHash):
    """A partitioner that a user might write."""

    name = "first"

    def assign(self, X: Any, groups: Any = None) -> Any:
        return np.asarray(X)[:, 0].astype(int) % self.k


def test_a_partitioner_that_could_not_be_loaded_is_not_saved(tmp_path):
    fitted = ensemble(GaussianNB(), partitioner=ByFirstValue()).fit(X, y)
    with pytest.raises(StoreError, match="ByFirstValue is a partitioner of your own"):
        fitted.save(tmp_path / "model")
    with pytest.raises(StoreError, match="ByFirstValue"):
        ensemble(GaussianNB(), partitioner=ByFirstValue()).fit_into(tmp_path / "model", X, y)
