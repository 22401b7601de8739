"""Killed at any moment, a rerun ends with the members of an undisturbed run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from . import jobs
from .killing import killed_after, killed_at

Job = Callable[[Path], None]

# Whoever reads a store that a killed writer has left is told so.
pytestmark = pytest.mark.filterwarnings("ignore:an update of:UserWarning")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "model"
    jobs.train(path)
    return path


@pytest.fixture(scope="module")
def undisturbed(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Job, list[bytes]]:
    """What each job leaves behind if nobody disturbs it: the bytes of the objects."""
    results = {}
    for job in JOBS:
        path = tmp_path_factory.mktemp("undisturbed") / "model"
        start(job, trained, path)
        job(path)
        results[job] = content(path)
    return results


JOBS = [jobs.train, jobs.save, jobs.update, jobs.update_in_two_steps]


def start(job: Job, trained: Path, path: Path) -> None:
    """Lay out what a job begins with."""
    if job is not jobs.train:
        shutil.copytree(trained, path)


def content(path: Path) -> list[bytes]:
    digests = jobs.digests_or_none(path)
    assert digests is not None
    rows = sorted(entry.name for entry in (path / "objects").iterdir())
    return [*(digest.encode() for digest in digests), str(len(rows)).encode()]


def check(
    job: Job, path: Path, before: list[str] | None, after: list[bytes], *, died: bool
) -> None:
    """Read the store as it was left, then run again."""
    found = jobs.digests_or_none(path)
    assert found == before or [d.encode() for d in found or []] == after[:-1]
    if died:
        job(path)
    assert content(path) == after
    assert {entry.name for entry in path.iterdir()} == {"manifest.json", "objects", "lock"}
    if job in (jobs.update, jobs.update_in_two_steps):
        assert not any(jobs.contains(path, row) for row in jobs.X[:5])


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
@pytest.mark.parametrize(
    ("first", "stride"), [(3, 5), pytest.param(0, 1, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_killed_before_a_file_is_opened_renamed_or_removed(
    job: Job,
    first: int,
    stride: int,
    trained: Path,
    undisturbed: dict[Job, list[bytes]],
    tmp_path: Path,
) -> None:
    before = None if job is jobs.train else jobs.digests_or_none(trained)
    step, died = first, True
    while died:
        path = tmp_path / f"{step}" / "model"
        start(job, trained, path)
        died = killed_at(step, job, path)
        check(job, path, before, undisturbed[job], died=died)
        step += stride
    assert step > 10


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_killed_fifty_times_at_random(
    job: Job, trained: Path, undisturbed: dict[Job, list[bytes]], tmp_path: Path
) -> None:
    rng = np.random.default_rng(7)
    before = None if job is jobs.train else jobs.digests_or_none(trained)
    kills = 0
    for attempt in range(400):
        path = tmp_path / f"{attempt}" / "model"
        start(job, trained, path)
        died = killed_after(rng.uniform(0, 0.08), job, path)
        check(job, path, before, undisturbed[job], died=died)
        kills += died
        if kills == 50:
            return
    pytest.fail(f"only {kills} of 400 children were killed in time")


def test_a_run_that_is_killed_again_and_again_loses_only_members_in_flight(
    undisturbed: dict[Job, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every member is trained once, but for the one that a kill interrupts."""
    log, path = tmp_path / "fits", tmp_path / "model"
    monkeypatch.setenv(jobs.LOG, str(log))
    step = kills = 0
    while killed_at(step, jobs.train, path):
        kills += 1
        step = 4 + kills
    assert kills > 5
    assert content(path) == undisturbed[jobs.train]
    assert jobs.K <= len(log.read_bytes()) <= jobs.K + kills


@pytest.mark.parametrize("seed", range(3))
def test_a_journal_torn_anywhere_is_read_up_to_the_tear(
    seed: int, undisturbed: dict[Job, list[bytes]], tmp_path: Path
) -> None:
    """What a power cut may leave: any number of bytes, and rubbish behind them."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "model"
    step = 14
    while not (path / "journal").exists():
        assert killed_at(step, jobs.train, path)
        step += 4
    data = (path / "journal").read_bytes()
    torn = data[: int(rng.integers(len(data)))] + rng.bytes(int(rng.integers(100)))
    (path / "journal").write_bytes(torn)
    jobs.train(path)
    assert content(path) == undisturbed[jobs.train]
