"""What travels to a worker, and what comes back, seen by workers that write it down."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from poisonproof import DPAClassifier
from poisonproof.distributed import Cluster
from poisonproof.distributed import cluster as scheduling
from poisonproof.distributed.cluster import WorkerLostError
from poisonproof.estimators.saving import TrainingTask
from poisonproof.exceptions import ClusterError, ClusterWarning
from poisonproof.partition.partitioned import Shard

X, y = load_digits(return_X_y=True)
X = X + np.arange(len(X))[:, np.newaxis] * 1e-6  # every row can be told from every other
K = 30


class Diary(Cluster):
    """Two workers in this process; a fragile second one is lost when it is sent its first block."""

    def __init__(self, *, fragile: bool = False) -> None:
        super().__init__()
        self.alive = {"one", "two"}
        self.fragile = fragile
        self.blocks: list[tuple[str, dict[int, Shard]]] = []
        self.results: list[Any] = []
        self.recipes: list[TrainingTask] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def workers(self) -> set[str]:
        return set(self.alive)

    def send(self, worker: str, value: Any) -> Any:
        value = pickle.loads(pickle.dumps(value))  # what does not travel is not there
        if isinstance(value, TrainingTask):
            self.recipes.append(value)
            return value
        self.blocks.append((worker, value))
        if self.fragile and worker == "two":
            self.alive.discard("two")
            raise WorkerLostError
        return value

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        self.results.append(function(*arguments))
        return len(self.results) - 1

    def wait(self, tickets: Mapping[Any, str], seconds: float) -> list[Any]:
        return list(tickets)

    def result(self, ticket: Any, worker: str) -> Any:
        return self.results[ticket]


class Bar:
    """A progress bar that remembers."""

    def __init__(self) -> None:
        self.total = 0
        self.steps: list[int] = []
        self.stopped = False

    def start(self, total: int, what: str) -> None:
        self.total = total

    def advance(self, amount: int = 1) -> None:
        self.steps.append(amount)

    def stop(self) -> None:
        self.stopped = True


def classifier() -> DPAClassifier:
    return DPAClassifier(GaussianNB(), K, classes=range(10))


def test_a_worker_receives_the_rows_of_its_partitions_and_no_others(tmp_path: Path) -> None:
    diary = Diary()
    there = classifier().fit_into(tmp_path / "model", X, y, cluster=diary)
    serial = classifier().fit(X, y)
    assert there.ensemble_.digests() == serial.ensemble_.digests()
    assert len(diary.blocks) > 2
    sent = [index for _, block in diary.blocks for index in block]
    assert sorted(sent) == list(range(K))
    for _, block in diary.blocks:
        for index, shard in block.items():
            assert shard.digest() == serial.partition_digests_[index]


def test_what_all_workers_receive_holds_no_row(tmp_path: Path) -> None:
    diary = Diary()
    classifier().fit_into(tmp_path / "model", X, y, cluster=diary)
    assert len(diary.recipes) == 2
    for recipe in diary.recipes:
        assert not any(X[row].tobytes() in pickle.dumps(recipe) for row in range(0, len(X), 50))


def test_blocks_of_a_lost_worker_go_to_another(tmp_path: Path) -> None:
    diary = Diary(fragile=True)
    with pytest.warns(ClusterWarning, match="Worker two was lost"):
        there = classifier().fit_into(tmp_path / "model", X, y, cluster=diary)
    assert there.ensemble_.digests() == classifier().fit(X, y).ensemble_.digests()
    lost = next(reversed([set(block) for worker, block in diary.blocks if worker == "two"]))
    assert lost <= {i for worker, block in diary.blocks if worker == "one" for i in block}


class Hostile(Diary):
    """Workers die of some partitions; new workers come for them."""

    def __init__(self, deadly: set[int]) -> None:
        super().__init__()
        self.deadly = deadly
        self.come = 0
        self.asked: list[tuple[str, list[int] | None]] = []
        self.queues: dict[str, list[int]] = {}

    def workers(self) -> set[str]:
        while len(self.alive) < 3:
            self.come += 1
            self.alive.add(f"worker {self.come}")
        return set(self.alive)

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        block = sorted(arguments[1]) if len(arguments) > 1 else None
        self.asked.append((worker, block))
        self.results.append(function(*arguments))
        self.queues.setdefault(worker, []).append(len(self.results) - 1)
        return len(self.results) - 1

    def wait(self, tickets: Mapping[Any, str], seconds: float) -> list[Any]:
        """Let every worker go on to the end of its queue or to its death."""
        done = []
        for worker, queue in self.queues.items():
            while queue:
                block = set(self.asked[queue[0]][1] or ())
                if block & self.deadly:
                    self.alive.discard(worker)
                    done += queue
                    queue.clear()
                    break
                done.append(queue.pop(0))
        return [ticket for ticket in done if ticket in tickets]

    def result(self, ticket: Any, worker: str) -> Any:
        if worker not in self.alive:
            raise WorkerLostError(worker)
        return self.results[ticket]


def trained_again(path: Path) -> list[int]:
    """Return the partitions that a second run trains: those that the first did not finish."""
    diary = Diary()
    there = classifier().fit_into(path, X, y, cluster=diary)
    assert there.ensemble_.digests() == classifier().fit(X, y).ensemble_.digests()
    return sorted(index for _, block in diary.blocks for index in block)


@pytest.mark.filterwarnings("ignore::poisonproof.exceptions.ClusterWarning")
@pytest.mark.parametrize("deadly", [{7}, {0, 11, 29}], ids=str)
def test_rows_that_kill_their_workers_are_named_when_all_else_is_finished(
    deadly: set[int], tmp_path: Path
) -> None:
    cluster = Hostile(deadly)
    named = ", ".join(map(str, sorted(deadly)))
    with pytest.raises(ClusterError, match=f"Partitions? {named} lost 3 workers each"):
        classifier().fit_into(tmp_path / "model", X, y, cluster=cluster)
    for index in range(K):
        tries = [block for _, block in cluster.asked if index in (block or ())]
        assert tries[1:] == [[index]] * (len(tries) - 1)  # after a loss, alone
        assert len(tries) <= (3 if index in deadly else 2)
    assert trained_again(tmp_path / "model") == sorted(deadly)


class OtherLibraries(Diary):
    """The second worker has another version of a package that only the member's learner needs."""

    def submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        ticket = super().submit(worker, function, *arguments)
        if worker == "two" and function is scheduling.train_block:
            others = {"packages": {"a learner's own": "0.1"}}
            self.results[ticket] = (*self.results[ticket][:2], others)
        return ticket


def test_a_worker_whose_learner_has_other_libraries_is_refused(tmp_path: Path) -> None:
    with pytest.warns(ClusterWarning, match="Worker two is refused: its learner names"):
        there = classifier().fit_into(tmp_path / "model", X, y, cluster=OtherLibraries())
    assert there.ensemble_.digests() == classifier().fit(X, y).ensemble_.digests()


def test_members_come_one_block_after_the_other_with_a_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = Bar()
    monkeypatch.setattr(scheduling, "make_progress", lambda verbose: bar)
    classifier().fit_into(tmp_path / "model", X, y, cluster=Diary())
    assert (bar.total, sum(bar.steps), bar.stopped) == (K, K, True)
    assert len(bar.steps) > 2
