"""Training on this machine: workers only schedule."""

from __future__ import annotations

import errno
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError
from lightgbm.basic import LightGBMError
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_info, threadpool_limits
from xgboost.core import XGBoostError

from poisonproof.members.member import (
    AbstainingMember,
    BatchedLearner,
    ConstantMember,
    Ensemble,
    Learner,
    Member,
    MemberList,
)
from poisonproof.members.scikit import ScikitLearner
from poisonproof.members.training import fit_one, train
from poisonproof.partition import ContentHash, PartitionedData, partition_data
from poisonproof.partition.partitioned import Partition
from poisonproof.progress import Silent

X, y = load_digits(return_X_y=True)


def data(k: int = 20) -> PartitionedData:
    return partition_data(X, y, ContentHash(n_partitions=k))


def digests(learner: Any, rows: PartitionedData, which: Any, n_jobs: int | None) -> list[str]:
    ensemble = train(learner, rows, which, 10, 0, n_jobs=n_jobs, progress=Silent())
    return ensemble.digests()


def test_any_number_of_workers_and_any_choice_of_partitions_train_the_same_members() -> None:
    learner = ScikitLearner(RandomForestClassifier(2), np.arange(10))
    rows = data()
    everything = digests(learner, rows, range(20), 1)
    assert len(set(everything)) == 20
    assert digests(learner, rows, range(20), 2) == everything
    assert digests(learner, rows, [7, 3, 11], 1) == [everything[i] for i in (7, 3, 11)]
    assert digests(learner, rows, [7, 3, 11], 2) == [everything[i] for i in (7, 3, 11)]
    assert digests(learner, rows, [], 2) == []


class _Raises(Learner):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def specification(self) -> dict[str, Any]:
        return {}

    def fit_member(self, partition: Partition, n_classes: int, seed: int) -> Member:
        raise self.error


def partition_of(labels: list[int]) -> PartitionedData:
    codes = np.array(labels, dtype=np.int64)
    return partition_data(np.zeros((len(codes), 2)), codes, ContentHash(n_partitions=1))


def test_degenerate_partitions_need_no_learner() -> None:
    never = _Raises(AssertionError("the learner was asked"))
    assert fit_one(never, partition_of([]), 0, 3, 0) == AbstainingMember()
    assert fit_one(never, partition_of([2]), 0, 3, 0) == ConstantMember(2)
    assert fit_one(never, partition_of([1, 1, 1]), 0, 3, 0) == ConstantMember(1)


def test_what_a_learner_raises_is_kept_as_the_members_reason() -> None:
    member = fit_one(_Raises(ZeroDivisionError("by zero")), partition_of([0, 1]), 0, 2, 0)
    assert member.failure == "ZeroDivisionError: by zero"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOSPC, "disk"),
        OSError(errno.EMFILE, "too many open files", "row.png"),
        OSError(errno.EIO, "disk"),
        ConnectionResetError("by peer"),
        KeyboardInterrupt(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] can't allocate memory"),
        RuntimeError("can't start new thread"),
        TerminatedWorkerError("a worker was killed"),
        BrokenProcessPool("a worker was killed"),
        XGBoostError("std::bad_alloc"),
        LightGBMError("std::bad_alloc"),
        torch.OutOfMemoryError("HIP out of memory"),
    ],
    ids=repr,
)
def test_what_the_machine_raises_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        fit_one(_Raises(error), partition_of([0, 1]), 0, 2, 0)


def test_an_error_that_was_raised_from_a_machines_error_is_raised() -> None:
    error = ValueError("no candidate could be fitted")
    error.__cause__ = MemoryError()
    with pytest.raises(ValueError, match="no candidate"):
        fit_one(_Raises(error), partition_of([0, 1]), 0, 2, 0)


def test_a_fit_that_is_tried_again_after_an_error_trains_the_same_members() -> None:
    try:
        raise MemoryError
    except MemoryError:
        member = fit_one(_Raises(ZeroDivisionError()), partition_of([0, 1]), 0, 2, 0)
    assert member.failure is not None


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even a word")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("could not convert string to float: 'CUDA out of memory'"),
        ValueError("std::bad_alloc"),
        XGBoostError("label must be in [0, num_class)"),
        FileNotFoundError(errno.ENOENT, "no such file", "cat.png"),
        PermissionError(errno.EACCES, "not allowed", "/root/cat.png"),
        IsADirectoryError(errno.EISDIR, "a directory", "/"),
        OSError(errno.ENAMETOOLONG, "too long", "c" * 300),
        OSError("cannot identify image file"),
        _UnspeakableError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_row_makes_a_learner_raise_silences_its_own_member(error: Exception) -> None:
    failure = fit_one(_Raises(error), partition_of([0, 1]), 0, 2, 0).failure
    assert failure is not None
    assert failure.startswith(type(error).__name__)


class _MissingFile(PartitionedData):
    """A training set whose files are gone."""

    def __getitem__(self, index: int) -> Partition:
        raise FileNotFoundError(errno.ENOENT, "no such file", "shard")


def test_a_partition_that_cannot_be_read_from_disk_silences_no_member() -> None:
    whole = partition_of([0, 1])
    gone = _MissingFile(**{field.name: getattr(whole, field.name) for field in fields(whole)})
    with pytest.raises(FileNotFoundError):
        fit_one(_Raises(AssertionError()), gone, 0, 2, 0)


class _Threads(Learner):
    """Notes how many threads linear algebra may use while a member is trained."""

    def specification(self) -> dict[str, Any]:
        return {}

    def fit_member(self, partition: Partition, n_classes: int, seed: int) -> Member:
        return ConstantMember(max(library["num_threads"] for library in threadpool_info()))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_member_is_trained_on_one_thread(n_jobs: int) -> None:
    with threadpool_limits(limits=2):
        ensemble = train(_Threads(), data(), range(20), 10, 0, n_jobs=n_jobs, progress=Silent())
        assert set(ensemble.digests()) == {"constant:1"}
        assert max(library["num_threads"] for library in threadpool_info()) == 2


class _Batched(BatchedLearner):
    def specification(self) -> dict[str, Any]:
        return {}

    def fit_members(
        self, data: PartitionedData, which: Any, n_classes: int, seed: int, **_: Any
    ) -> Ensemble:
        return MemberList([ConstantMember(index) for index in which])


def test_a_batched_learner_trains_its_members_itself() -> None:
    assert digests(_Batched(), data(), [4, 2], None) == ["constant:4", "constant:2"]


def test_progress_hears_of_every_member_even_when_the_work_is_cut_short() -> None:
    class Listener(Silent):
        done, stopped = 0, False

        def advance(self, amount: int = 1) -> None:
            self.done += amount

        def stop(self) -> None:
            self.stopped = True

    heard = Listener()
    learner = ScikitLearner(GaussianNB(), np.arange(10))
    train(learner, data(), range(20), 10, 0, n_jobs=1, progress=heard)
    assert (heard.done, heard.stopped) == (20, True)
    cut = Listener()
    with pytest.raises(KeyboardInterrupt):
        train(_Raises(KeyboardInterrupt()), data(), range(20), 10, 0, n_jobs=1, progress=cut)
    assert (cut.done, cut.stopped) == (0, True)
