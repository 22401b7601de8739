"""Members of a cluster are those of serial training, whatever happens to its workers."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier, SSDPAClassifier, load
from poisonproof.distributed import Cluster, DaskCluster, RayCluster
from poisonproof.distributed import cluster as scheduling
from poisonproof.exceptions import ClusterError, ClusterWarning
from poisonproof.members.closed_form import KernelRidgeClassifier

distributed = pytest.importorskip("distributed")
ray = pytest.importorskip("ray")

X, y = load_digits(return_X_y=True)
K = 24


class SlowBayes(GaussianNB):
    """Naive Bayes that takes its time, and kills its process in the middle if there is a log."""

    def __init__(self, log: str = "", *, priors: Any = None, var_smoothing: float = 1e-9) -> None:
        self.log = log
        super().__init__(priors=priors, var_smoothing=var_smoothing)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        time.sleep(0.05)
        with suppress(FileNotFoundError):  # no log, or another worker was the one to die
            log = os.open(self.log, os.O_WRONLY | os.O_APPEND)
            os.write(log, b".")
            size = os.fstat(log).st_size
            os.close(log)
            if size >= K // 3:
                Path(self.log).unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y, sample_weight)


TRUSTED = [f"{SlowBayes.__module__}.{SlowBayes.__qualname__}"]


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    yield
    ray.shutdown()


@pytest.fixture(params=["dask", pytest.param("ray", marks=pytest.mark.slow)])
def cluster(request: pytest.FixtureRequest) -> Callable[..., Cluster]:
    return open_here(request.param, request)


def test_another_dask_cluster_on_this_machine_does_not_matter() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # then somebody else has Dask's usual port
            taken.bind(("", 8787))
            taken.listen()
        with DaskCluster(n_workers=1) as cluster:
            assert len(cluster.workers()) == 1


def open_here(engine: str, request: pytest.FixtureRequest) -> Callable[..., Cluster]:
    if engine == "dask":
        client = request.getfixturevalue("dask_client")
        return lambda **options: DaskCluster(client, **options)
    request.getfixturevalue("ray_here")
    return lambda **options: RayCluster(n_workers=2, **options)


def same(make: Callable[[], Any], cluster: Cluster, path: Path) -> Any:
    serial = make().fit(X, y)
    there = make().fit_into(path, X, y, cluster=cluster)
    assert there.ensemble_.digests() == serial.ensemble_.digests()
    assert there.partition_digests_ == serial.partition_digests_
    assert np.array_equal(load(path, trusted=TRUSTED).votes(X[:50]), serial.votes(X[:50]))
    return there


MAKERS = {
    "trees": lambda: DPAClassifier(DecisionTreeClassifier(), K, classes=range(10)),
    "closed-form": lambda: DPAClassifier(KernelRidgeClassifier(gamma=0.1), K, classes=range(10)),
    "learned-features": lambda: SSDPAClassifier(GaussianNB(), PCA(8), K, classes=range(10)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_two_workers_train_the_members_of_serial_training(
    name: str, cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    same(MAKERS[name], cluster(), tmp_path / "model")


def slow(log: str = "") -> DPAClassifier:
    return DPAClassifier(SlowBayes(log), K, classes=range(10))


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_worker_killed_in_the_middle_changes_nothing(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    log = tmp_path / "fits"
    serial = slow(str(log)).fit(X, y)
    log.touch()
    cluster = open_here(engine, request)()
    with pytest.warns(ClusterWarning, match="was lost; [0-9]+ members go"):
        there = slow(str(log)).fit_into(tmp_path / "model", X, y, cluster=cluster)
    assert not log.exists()
    assert there.ensemble_.digests() == serial.ensemble_.digests()


class FragileBayes(GaussianNB):
    """Naive Bayes whose process dies of one value."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        if X.max() == 666:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().fit(X, y, sample_weight)


def with_hostile_row() -> tuple[Any, Any, int]:
    """Return rows of which the last is hostile, and its partition."""
    rows = np.concatenate([X[:300], np.full((1, 64), 666.0)])
    fitted = DPAClassifier(GaussianNB(), 6, classes=range(10)).fit(rows, np.append(y[:300], 0))
    return rows, np.append(y[:300], 0), int(fitted.partitioner_.assign(rows[-1:])[0])


@pytest.mark.filterwarnings("ignore::poisonproof.exceptions.ClusterWarning")
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_row_that_kills_its_worker_stops_the_fit_and_is_named(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    rows, labels, place = with_hostile_row()
    model = DPAClassifier(FragileBayes(), 6, classes=range(10))
    cluster = open_here(engine, request)()
    with pytest.raises(ClusterError, match=f"^Partition {place} lost 3 workers"):
        model.fit_into(tmp_path / "model", rows, labels, cluster=cluster)
    model.fit_into(tmp_path / "model", rows[:-1], labels[:-1], cluster=cluster)
    assert model.ensemble_.digests() == clone(model).fit(X[:300], y[:300]).ensemble_.digests()


def pretend(marker: Path, everyone: bool) -> dict[str, Any]:
    """Say that the worker which is asked first, or every worker, has another Python."""
    from poisonproof.store.manifest import environment_here

    try:
        marker.touch(exist_ok=everyone)
    except FileExistsError:
        return environment_here()
    return {**environment_here(), "python": "2.7"}


@pytest.fixture
def unlike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[bool], None]:
    def _patch(everyone: bool) -> None:
        asked = functools.partial(pretend, tmp_path / "asked", everyone)
        monkeypatch.setattr(scheduling, "describe_worker", asked)

    return _patch


def test_a_worker_unlike_this_machine_is_refused(
    cluster: Callable[..., Cluster], unlike: Callable[[bool], None], tmp_path: Path
) -> None:
    unlike(False)
    with pytest.warns(ClusterWarning, match=r"is refused: it has python 2.7 \(here"):
        same(MAKERS["trees"], cluster(), tmp_path / "model")


def test_without_a_worker_like_this_machine_nothing_is_trained(
    cluster: Callable[..., Cluster], unlike: Callable[[bool], None], tmp_path: Path
) -> None:
    unlike(True)
    with (
        pytest.warns(ClusterWarning, match="is refused"),
        pytest.raises(ClusterError, match="All 2 workers differ"),
    ):
        MAKERS["trees"]().fit_into(tmp_path / "model", X, y, cluster=cluster())
