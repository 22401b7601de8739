"""Any update of a store equals training from scratch, and forgets what it removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, SSDPAClassifier, load
from poisonproof.estimators.storing import update_model
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError, StoreError
from poisonproof.members.closed_form import KernelRidgeClassifier
from poisonproof.networks import TorchLearner
from poisonproof.store.manifest import ModelReader

from ..store.tampering import edit_manifest
from . import jobs

RNG = np.random.default_rng(3)
CLASSES = list(range(10))


def rows(n: int) -> tuple[Any, Any]:
    """Rows with some copies and eight bytes per cell that occur nowhere else."""
    X = RNG.normal(size=(n, 12))
    X[: n // 10] = X[n // 10 : 2 * (n // 10)]
    return X, RNG.integers(0, 10, n)


def random_updates(make: Any, path: Path, n_updates: int, rng: np.random.Generator) -> None:
    """Update a store again and again, and compare with training from scratch each time."""
    X, y = rows(6000)
    used = list(range(300))
    waiting = list(range(300, 6000))
    make().fit_into(path, X[used], y[used], keep_data=True)
    for _ in range(n_updates):
        n_add, n_gone = rng.integers(0, 26), rng.integers(1, 26)
        come = [waiting.pop() for _ in range(min(n_add, len(waiting)))]
        gone = rng.choice(used, min(n_gone, len(used) - 40), replace=False).tolist()
        superseded = ModelReader.open(path).manifest
        receipt = update_model(
            path, (X[come], y[come]) if come else None, (X[gone], y[gone]) if gone else None
        )
        used = [row for row in used if row not in set(gone)] + come
        scratch = make().fit(X[used], y[used])
        stored = load(path)
        assert stored.ensemble_.digests() == scratch.ensemble_.digests()
        assert stored.partition_digests_ == scratch.partition_digests_
        changed = {entry.member for entry in receipt.retrained}
        before, after = superseded.member_digests, stored.ensemble_.digests()
        assert changed >= {i for i in range(len(after)) if before[i] != after[i]}
        assert len(changed) <= len(come) + len(gone)


MAKERS = {
    "naive-bayes": lambda: DPAClassifier(GaussianNB(), 30, classes=CLASSES),
    "closed-form": lambda: DPAClassifier(KernelRidgeClassifier(gamma=0.1), 30, classes=CLASSES),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "n_updates", [6, pytest.param(150, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_updates_equal_training_from_scratch(
    name: str, n_updates: int, tmp_path: Path
) -> None:
    random_updates(MAKERS[name], tmp_path / "model", n_updates, np.random.default_rng(n_updates))


def equal_after_update(make: Any, container: Any, path: Path) -> None:
    X, y = jobs.X.copy(), jobs.y
    make().fit_into(path, container(X[:350]), y[:350], keep_data=True)
    update_model(path, (container(X[350:]), y[350:]), (container(X[:20]), y[:20]))
    scratch = make().fit(container(X[20:]), y[20:])
    stored = load(path)
    assert stored.ensemble_.digests() == scratch.ensemble_.digests()
    scratch.save(path.with_name("scratch"), keep_data=True)
    twin = ModelReader.open(path.with_name("scratch")).manifest
    assert ModelReader.open(path).manifest.fingerprint == twin.fingerprint
    asked = container(jobs.X_test)
    assert np.array_equal(stored.votes(asked), scratch.votes(asked))


@pytest.mark.parametrize(
    "container",
    [np.asarray, sparse.csr_matrix, sparse.csr_array, pd.DataFrame],
    ids=["array", "sparse-matrix", "sparse-array", "frame"],
)
def test_rows_of_every_container_are_kept(container: Any, tmp_path: Path) -> None:
    def make() -> DPAClassifier:
        return DPAClassifier(DecisionTreeClassifier(), 8, classes=CLASSES)

    equal_after_update(make, container, tmp_path / "model")


def test_deep_members_are_updated_in_place(tmp_path: Path) -> None:
    learner = TorchLearner("mlp", hidden=(8,), epochs=1)
    equal_after_update(
        lambda: DPAClassifier(learner, 8, classes=CLASSES), np.asarray, tmp_path / "m"
    )


@pytest.mark.parametrize("features", [None, PCA(8)], ids=["plain", "learned"])
def test_partitions_that_depend_on_all_samples_are_updated(features: Any, tmp_path: Path) -> None:
    def make() -> SSDPAClassifier:
        return SSDPAClassifier(KNeighborsClassifier(1), features, 8, classes=CLASSES)

    equal_after_update(make, np.asarray, tmp_path / "model")


def test_rows_are_still_kept_after_an_update_that_moved_every_partition(tmp_path: Path) -> None:
    X, y = rows(300)
    model = SSDPAClassifier(KNeighborsClassifier(1), None, 8, classes=CLASSES)
    model.fit(X[:290], y[:290]).save(tmp_path / "model", keep_data=True)
    for start in (290, 295):
        new = slice(start, start + 5)
        update_model(tmp_path / "model", add=(X[new], y[new]))
    assert load(tmp_path / "model").ensemble_.digests() == model.fit(X, y).ensemble_.digests()


def test_after_a_removal_no_file_holds_the_row_or_a_superseded_member(tmp_path: Path) -> None:
    """Nearest neighbours keep their rows, so a superseded member holds them, too."""
    path = tmp_path / "model"
    X, y = rows(300)
    model = DPAClassifier(KNeighborsClassifier(1), 10, classes=CLASSES)
    model.fit_into(path, X, y, keep_data=True)
    assert all(jobs.contains(path, row) for row in X)
    old = ModelReader.open(path).manifest
    receipt = update_model(path, remove=(X[100:103], y[100:103]))
    assert not any(jobs.contains(path, row) for row in X[100:103])
    assert sum(jobs.contains(path, row) for row in X) == 297
    everything = b"".join(jobs.files(path))
    for entry in receipt.retrained:
        assert old.member_digests[entry.member] == entry.member_before
        assert entry.member_before.encode() not in everything
        assert entry.rows_before.encode() not in everything
    assert {f.name for f in path.iterdir()} == {"manifest.json", "objects", "lock"}
    for name in receipt.removed:
        assert name.split(":")[0].encode() not in everything


def test_a_row_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model"
    jobs.train(path)
    before = jobs.files(path)
    with pytest.raises(InvalidRowsError, match="row 1 of `remove` is not in the training set"):
        update_model(
            path,
            remove=(np.vstack([jobs.X[:1], jobs.X[:1] + 1]), jobs.y[[0, 0]]),
            trusted=jobs.TRUSTED,
        )
    assert jobs.files(path) == before


def test_an_update_of_nothing_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a poisonproof model"):
        update_model(tmp_path / "model", add=jobs.ADD)
    assert not list(tmp_path.iterdir())


def test_without_rows_an_update_says_what_to_give_and_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model = DPAClassifier(GaussianNB(), 8, classes=CLASSES).fit(jobs.X, jobs.y)
    model.save(path)
    with pytest.raises(InvalidInputError, match=r"update\(..., data="):
        update_model(path, remove=jobs.REMOVE)
    with pytest.raises(InvalidInputError, match="is not what the model was trained on"):
        update_model(path, remove=jobs.REMOVE, data=(jobs.X[1:], jobs.y[1:]))
    update_model(path, remove=jobs.REMOVE, data=(jobs.X, jobs.y))
    model.update(remove=jobs.REMOVE)
    assert load(path).ensemble_.digests() == model.ensemble_.digests()


def test_all_rows_of_a_partition_can_go_but_not_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model = DPAClassifier(KernelRidgeClassifier(gamma=0.1), 8, classes=CLASSES)
    model.fit_into(path, jobs.X, jobs.y, keep_data=True)
    mine = model.partitioner_.assign(jobs.X) == 3
    update_model(path, remove=(jobs.X[mine], jobs.y[mine]))
    assert load(path).partition_sizes_[3] == 0
    assert (load(path).votes(jobs.X_test)[:, 3] == -1).all()
    with pytest.raises(InvalidRowsError, match="every row"):
        update_model(path, remove=(jobs.X[~mine], jobs.y[~mine]))


def test_a_model_trained_into_a_store_votes_whatever_its_members_are(tmp_path: Path) -> None:
    model = jobs.make().fit_into(tmp_path / "model", jobs.X, jobs.y)
    twin = jobs.make().fit(jobs.X, jobs.y)
    assert np.array_equal(model.votes(jobs.X_test), twin.votes(jobs.X_test))


def test_members_of_another_environment_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "model"
    jobs.train(path)
    manifest = json.loads((path / "manifest.json").read_text())
    edit_manifest(path, ["spec"], "0" * 64, careful=True)
    older = manifest["environment"] | {"python": "3.9.1"}
    edit_manifest(path, ["environment"], older, careful=True)
    with pytest.raises(GuaranteeError, match=r"python 3\.9\.1 \(here"):
        update_model(path, remove=jobs.REMOVE, trusted=jobs.TRUSTED)


def test_an_update_that_expects_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    jobs.train(path)
    before = ModelReader.open(path).manifest.fingerprint
    receipt = update_model(path, add=jobs.ADD, expect=before, trusted=jobs.TRUSTED)
    assert receipt.fingerprint_before == before
    assert receipt.fingerprint_after == ModelReader.open(path).manifest.fingerprint
    with pytest.raises(StoreError, match="was made before"):
        update_model(path, add=jobs.ADD, expect=before, trusted=jobs.TRUSTED)


def test_two_who_loaded_the_same_model_cannot_both_save_it(tmp_path: Path) -> None:
    path = tmp_path / "model"
    jobs.train(path)
    first, second = (load(path, trusted=jobs.TRUSTED) for _ in range(2))
    second.update(add=jobs.ADD)
    first.update(remove=jobs.REMOVE)
    first.save(path)
    with pytest.raises(StoreError, match="changed by someone else"):
        second.save(path)
