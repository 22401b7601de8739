"""Shared by the closed-form benchmarks: the data, and facts about the machine."""

from __future__ import annotations

import os
import platform
import resource
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof.members.closed_form import RidgeClassifier
from poisonproof_research.datasets import ImageDataset, import_images, load_images


def ridge() -> RidgeClassifier:
    """Return a linear learner on the same features."""
    return RidgeClassifier(1.0, precision="single")


def load(name: str, folder: Path) -> ImageDataset:
    """Read a published dataset from a folder, into a cache that is thrown away."""
    with tempfile.TemporaryDirectory() as cache:
        import_images(name, folder, cache=cache)
        dataset = load_images(name, cache=cache)
        arrays = ("x_train", "y_train", "x_test", "y_test")
        in_memory = {array: np.array(getattr(dataset, array)) for array in arrays}
    return ImageDataset(**{**vars(dataset), **in_memory})


@contextmanager
def timed(times: dict[str, float], name: str) -> Any:
    """Write down the seconds a block takes, of wall clock and of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    times[name] = round(time.perf_counter() - wall, 3)
    times[f"{name}_cpu"] = round(time.process_time() - cpu, 3)


def matrix_product_peak(n_jobs: int, size: int = 4096) -> float:
    """Return the speed of the machine's own float32 matrix product, in GFLOP/s."""
    from threadpoolctl import threadpool_limits

    A = np.random.default_rng(0).random((size, size), dtype=np.float32)
    with threadpool_limits(n_jobs):
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            A @ A
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds) / 1e9


def machine(n_jobs: int) -> dict[str, Any]:
    """Return what a reader needs to judge the times."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "n_jobs": n_jobs,
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def peak_gib() -> float:
    """Return the largest memory this process has had resident, in GiB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
