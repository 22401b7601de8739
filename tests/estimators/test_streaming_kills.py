"""Killed while rows are partitioned or members trained, a rerun ends with the same model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from poisonproof import DPAClassifier
from poisonproof.data import DataSource, Schema
from poisonproof.estimators import fit_stream
from poisonproof.estimators import streaming as partitioning
from poisonproof.exceptions import StoreError
from poisonproof.store.manifest import ModelReader

from ..durability.killing import killed_after, killed_at

K = 8
SCHEMA = Schema(label="kind", classes=("a", "b"))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    for index in range(3):
        columns = {f"x{j}": rng.normal(size=2000) for j in range(6)}
        columns["kind"] = rng.choice(["a", "b"], 2000)
        pd.DataFrame(columns).to_parquet(folder / f"{index}.parquet", row_group_size=500)
    return folder


@pytest.fixture(autouse=True)
def _many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a run every few hundred rows, so that there is much to be killed in."""
    monkeypatch.setattr(partitioning, "RUN_SHARE", 2**14)
    monkeypatch.setattr(partitioning, "CHUNK_SHARE", 2**14)


def train(rows: Path, path: Path) -> None:
    model = DPAClassifier(GaussianNB(), K, classes=["a", "b"])
    fit_stream(model, path / "model", DataSource(rows, SCHEMA), keep_data=True)


def fingerprint(path: Path) -> str | None:
    """Return the fingerprint of a model that is whole, None if there is none yet."""
    try:
        reader = ModelReader.open(path / "model")
    except StoreError as error:
        assert "is not a poisonproof model" in str(error)  # noqa: PT017 - anything else is damage
        return None
    for index in range(K):
        assert reader.member(index).index == reader.rows(index).index == index
    return reader.manifest.fingerprint


@pytest.fixture(scope="module")
def undisturbed(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("undisturbed")
    train(rows, path)
    found = fingerprint(path)
    assert found is not None
    return found


def check(rows: Path, path: Path, undisturbed: str, *, died: bool) -> None:
    assert fingerprint(path) in (None, undisturbed)
    if died:
        train(rows, path)
    assert fingerprint(path) == undisturbed
    assert [entry.name for entry in path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("first", "stride"), [(2, 11), pytest.param(0, 1, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_killed_before_a_file_is_opened_renamed_or_removed(
    first: int, stride: int, rows: Path, undisturbed: str, tmp_path: Path
) -> None:
    step, died, partitioning_kills = first, True, 0
    while died:
        path = tmp_path / f"{step}"
        path.mkdir()
        died = killed_at(step, lambda path: train(rows, path), path)
        partitioning_kills += died and not (path / "model").exists()
        check(rows, path, undisturbed, died=died)
        step += stride
    assert partitioning_kills > 2  # else nothing was killed while rows were partitioned


def test_a_worker_that_outlives_its_run_writes_over_no_file_of_the_next(
    rows: Path, tmp_path: Path
) -> None:
    model = DPAClassifier(GaussianNB(), K, classes=["a", "b"])
    first = partitioning.partition_stream(model, DataSource(rows, SCHEMA), tmp_path)
    second = partitioning.partition_stream(model, DataSource(rows, SCHEMA), tmp_path)
    assert not set(first.runs) & set(second.runs)
    assert first.shard(0).digest() == second.shard(0).digest()


@pytest.mark.slow
def test_killed_fifty_times_at_random(rows: Path, undisturbed: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    kills = 0
    for attempt in range(400):
        path = tmp_path / f"{attempt}"
        path.mkdir()
        died = killed_after(rng.uniform(0, 0.3), lambda path: train(rows, path), path)
        check(rows, path, undisturbed, died=died)
        kills += died
        if kills == 50:
            return
    pytest.fail(f"only {kills} of 400 children were killed in time")
