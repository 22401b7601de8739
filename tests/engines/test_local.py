"""Training on this machine: workers only schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_info, threadpool_limits

from poisonproof.engines.local import fit_one, train
from poisonproof.learners.base import BatchedLearner, Ensemble, Learner, Member
from poisonproof.learners.members import AbstainingMember, ConstantMember, MemberList
from poisonproof.learners.scikit import ScikitLearner
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
        OSError("disk"),
        KeyboardInterrupt(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] can't allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_machine_raises_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        fit_one(_Raises(error), partition_of([0, 1]), 0, 2, 0)


def test_what_a_cell_says_about_memory_silences_one_member() -> None:
    error = ValueError("could not convert string to float: 'CUDA out of memory'")
    assert fit_one(_Raises(error), partition_of([0, 1]), 0, 2, 0).failure is not None


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
