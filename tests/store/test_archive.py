"""A model in one zip file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from poisonproof import load
from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.store.reading import ModelReader

from ..durability import jobs


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    jobs.make().fit(jobs.X, jobs.y).save(tmp_path / "model.zip", keep_data=True)
    return tmp_path / "model.zip"


def test_an_archive_is_loaded_updated_and_saved_again(archive: Path) -> None:
    model = load(archive, trusted=jobs.TRUSTED)
    before = model.votes(jobs.X_test)
    assert all(jobs.contains(archive.parent, row) for row in jobs.REMOVE[0])
    model.update(remove=jobs.REMOVE)
    model.save(archive)
    assert [path.name for path in archive.parent.iterdir()] == ["model.zip"]
    assert not any(jobs.contains(archive.parent, row) for row in jobs.REMOVE[0])
    again = load(archive, trusted=jobs.TRUSTED)
    assert again.ensemble_.digests() == model.ensemble_.digests()
    assert again.votes(jobs.X_test).shape == before.shape
    scratch = jobs.make().fit(jobs.X[5:], jobs.y[5:])
    assert np.array_equal(again.votes(jobs.X_test), scratch.votes(jobs.X_test))


def test_a_directory_becomes_an_archive_and_back(archive: Path, tmp_path: Path) -> None:
    load(archive, trusted=jobs.TRUSTED).save(tmp_path / "folder")
    load(tmp_path / "folder", trusted=jobs.TRUSTED).save(tmp_path / "again.zip")
    paths = (archive, tmp_path / "folder", tmp_path / "again.zip")
    first, *others = (ModelReader.open(path).manifest for path in paths)
    assert all(other.fingerprint == first.fingerprint for other in others)
    assert all(other.members == first.members and other.rows == first.rows for other in others)


def test_a_foreign_archive_is_not_overwritten(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "thesis.zip", "w") as archive:
        archive.writestr("chapter1.tex", "years of work")
    before = (tmp_path / "thesis.zip").read_bytes()
    model = jobs.make().fit(jobs.X, jobs.y)
    with pytest.raises(StoreError, match="not a poisonproof model"):
        model.save(tmp_path / "thesis.zip")
    assert (tmp_path / "thesis.zip").read_bytes() == before


def test_members_cannot_be_trained_into_an_archive(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="into a directory"):
        jobs.make().fit_into(tmp_path / "model.zip", jobs.X, jobs.y)
    assert not list(tmp_path.iterdir())
