"""A directory from a stranger: readers write nothing, writers reach nothing outside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poisonproof import DPAClassifier, load
from poisonproof.data import DataSource
from poisonproof.estimators import fit_stream
from poisonproof.estimators.auditing import audit_model
from poisonproof.estimators.storing import update_model
from poisonproof.exceptions import StoreError
from poisonproof.features.networks import KeptVectors
from poisonproof.files import OpenFolder, cache_folder
from poisonproof.networks.pretraining.frozen import RunFolder
from poisonproof.store.objects import decode_object, skops_io

from ..durability import jobs

X, y = jobs.X[:120], jobs.y[:120]
PRECIOUS = b"years of work"


def make() -> DPAClassifier:
    return DPAClassifier(GaussianNB(), 4, classes=range(10))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "model"
    make().fit_into(path, X, y, keep_data=True, self_check=False)
    return path


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the user's own, outside of any model."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_bytes(PRECIOUS)
    return tmp_path / "home" / "thesis.tex"


def state(path: Path) -> dict[Path, tuple[int, int, bytes | str | None]]:
    """Return everything that a writer could change."""
    found = {}
    for entry in (path, *sorted(path.rglob("*"))):
        about = entry.lstat()
        content = entry.read_bytes() if entry.is_file() else None
        found[entry] = about.st_mtime_ns, about.st_mode, content
    return found


def interrupted(model: Path) -> None:
    """Leave what writers leave that are killed: superseded files, parts, a journal."""
    (model / "objects" / ("ab" * 32)).write_bytes(b"superseded")
    (model / ".part-0123").write_bytes(b"half a fi")
    (model / "journal").write_bytes(b"ppj1" + bytes(60))


@pytest.mark.filterwarnings("ignore:an update of:UserWarning")
@pytest.mark.parametrize("prepare", [lambda model: None, interrupted], ids=["whole", "interrupted"])
@pytest.mark.parametrize("mode", [0o755, 0o555], ids=["writable", "read-only"])
def test_reading_a_model_writes_nothing(
    prepare: Callable[[Path], None], mode: int, model: Path
) -> None:
    prepare(model)
    for entry in (model, model / "objects"):
        entry.chmod(mode)
    before = state(model.parent)
    loaded = load(model)
    loaded.predict(jobs.X_test)
    loaded.certify(jobs.X_test)
    assert audit_model(model, sample=2).findings
    assert state(model.parent) == before
    for entry in (model, model / "objects"):
        entry.chmod(0o755)


def test_loading_a_linked_folder_of_objects_deletes_nothing(model: Path, victim: Path) -> None:
    shutil.rmtree(model / "objects")
    (model / "objects").symlink_to(victim.parent)
    with pytest.raises(StoreError, match="is a link, not a directory"):
        load(model)
    assert victim.read_bytes() == PRECIOUS


def linked(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def hard_linked(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(target)


def pipe(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def block_of(model: Path) -> Path:
    return min((model / "objects").iterdir())


def linked_objects(model: Path, target: Path) -> None:
    shutil.rmtree(model / "objects")
    (model / "objects").symlink_to(target.parent)


TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "objects linked": linked_objects,
    "journal linked": lambda model, target: linked(model / "journal", target),
    "journal hard-linked": lambda model, target: hard_linked(model / "journal", target),
    "journal a pipe": lambda model, target: pipe(model / "journal", target),
    "lock linked": lambda model, target: linked(model / "lock", target),
    "lock hard-linked": lambda model, target: hard_linked(model / "lock", target),
    "lock a pipe": lambda model, target: pipe(model / "lock", target),
    "manifest linked": lambda model, target: linked(model / "manifest.json", target),
    "part linked": lambda model, target: linked(model / ".part-0", target),
    "object linked": lambda model, target: linked(block_of(model), target),
    "object a pipe": lambda model, target: pipe(block_of(model), target),
    "superseded linked": lambda model, target: linked(model / "objects" / ("ab" * 32), target),
}
WRITERS: dict[str, Callable[[Path], Any]] = {
    "save": lambda path: make().fit(X, y).save(path, overwrite=True),
    "fit_into": lambda path: make().fit_into(
        path, X[:80], y[:80], overwrite=True, self_check=False
    ),
    "update": lambda path: update_model(path, remove=(X[:3], y[:3])),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("trap", TRAPS)
def test_a_writer_reaches_nothing_outside_the_model(
    trap: str, writer: str, model: Path, victim: Path
) -> None:
    TRAPS[trap](model, victim)
    before = state(victim.parent)
    with pytest.raises(StoreError):
        WRITERS[writer](model)
    after = state(victim.parent)
    assert {k: v[2] for k, v in after.items()} == {k: v[2] for k, v in before.items()}
    assert after[victim] == before[victim]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize("name", [".", "objects", "journal", "manifest.json"])
def test_a_writer_refuses_what_belongs_to_another_user(name: str, model: Path) -> None:
    (model / "journal").write_bytes(b"")
    os.chown(model / name, 12345, -1)
    with pytest.raises(StoreError, match="belongs to another user"):
        WRITERS["save"](model)


def test_a_model_that_is_a_link_is_read_but_not_written(model: Path) -> None:
    link = model.with_name("latest")
    link.symlink_to(model)
    assert load(link).predict(X).shape == y.shape
    with pytest.raises(StoreError, match="is a link"):
        WRITERS["update"](link)


def test_files_that_no_model_named_stay(tmp_path: Path) -> None:
    """A folder that happens to be called objects is not swept."""
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "chair.obj").write_bytes(PRECIOUS)
    make().fit(X, y).save(tmp_path)
    update_model(tmp_path, remove=(X[:3], y[:3]), data=(X, y))
    assert (tmp_path / "objects" / "chair.obj").read_bytes() == PRECIOUS


def test_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    with OpenFolder(tmp_path, owned=True) as folder:
        for name in ("", ".", "..", "../x", "a/b", "/etc/passwd"):
            with pytest.raises(StoreError, match="is not the name of a file"):
                folder.write(name, b"")


def test_a_linked_scratch_folder_is_refused(victim: Path, tmp_path: Path) -> None:
    from poisonproof.data import Schema

    (tmp_path / "rows.csv").write_text("u,kind\n" + "1,a\n2,b\n" * 20)
    victim.rename(victim.with_name("run-1"))
    (tmp_path / "model.shards").symlink_to(victim.parent)
    source = DataSource(tmp_path / "rows.csv", Schema(label="kind", classes=("a", "b")))
    with pytest.raises(StoreError, match="is a link"):
        fit_stream(
            DPAClassifier(GaussianNB(), 2, classes=["a", "b"]),
            tmp_path / "model",
            source,
            self_check=False,
        )
    assert victim.with_name("run-1").read_bytes() == PRECIOUS


def test_a_run_deletes_its_own_states_and_nothing_else(victim: Path) -> None:
    other = victim.with_name("model-00001.safetensors")
    other.write_bytes(PRECIOUS)
    run = RunFolder(victim.parent, {})
    for history in ([[0.5, 0.5]], [[0.5, 0.5], [0.4, 0.6]]):
        run.save({"w": np.zeros(2)}, np.zeros(2), history)
    assert {path.name for path in victim.parent.iterdir()} == {
        "state-000002.safetensors", other.name, victim.name
    }  # fmt: skip


def test_vectors_are_not_kept_in_a_linked_file(victim: Path, tmp_path: Path) -> None:
    victim.write_bytes(b"")
    (tmp_path / f"{'0' * 64}.sqlite").symlink_to(victim)
    kept = KeptVectors(cache_folder(tmp_path), "0" * 64)
    kept.keep({b"key": np.zeros(3, np.float32)})
    assert victim.read_bytes() == b""


def test_a_model_does_not_say_where_to_write(tmp_path: Path) -> None:
    """joblib would read pickles from such a folder, and write them, when members are trained."""
    member = make_pipeline(StandardScaler(), LogisticRegression(), memory=str(tmp_path / "cache"))
    assert decode_object(skops_io().dumps(member), "templates").memory is None
    model = DPAClassifier(member, 4, classes=range(10)).fit(X, y)
    assert not (tmp_path / "cache").exists()
    model.save(tmp_path / "model", keep_data=True)
    update_model(tmp_path / "model", remove=(X[:3], y[:3]))
    assert audit_model(tmp_path / "model", sample="all").passed
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert str(tmp_path).encode() not in b"".join(jobs.files(tmp_path / "model"))
