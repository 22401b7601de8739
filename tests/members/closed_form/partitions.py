"""Training sets that are already cut into partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from poisonproof.members.closed_form import (
    ClosedFormClassifier,
    KernelRidgeClassifier,
    RidgeClassifier,
    ScaledKernelClassifier,
    StackedMembers,
)
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Silent

LEARNERS: dict[str, ClosedFormClassifier] = {
    "ridge": RidgeClassifier(),
    "ridge-single": RidgeClassifier(precision="single"),
    "kernel-rbf": KernelRidgeClassifier(gamma=0.5),
    "kernel-rbf-single": KernelRidgeClassifier(gamma=0.5, precision="single"),
    "kernel-cosine": KernelRidgeClassifier("cosine"),
    "scaled-kernel": ScaledKernelClassifier(),
    "scaled-kernel-centers": ScaledKernelClassifier(n_centers=24),
}


def cut(
    X: Any, y: Any, ids: np.ndarray, k: int, sample_weight: np.ndarray | None = None
) -> PartitionedData:
    """Return rows cut into the partitions `ids`."""
    sizes = np.bincount(ids, minlength=k)
    return PartitionedData(
        X,
        np.asarray(y, dtype=np.int64),
        np.argsort(ids, kind="stable"),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
        sample_weight,
    )


def blobs(n: int, d: int, n_classes: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy rows around one random centre per class, in float32."""
    rng = np.random.default_rng(seed)
    centres = rng.random((n_classes, d), dtype=np.float32)
    y = rng.integers(0, n_classes, n)
    return (centres[y] + rng.standard_normal((n, d), dtype=np.float32)) / np.float32(d**0.5), y


def uneven_ids(n: int, k: int, seed: int = 0) -> np.ndarray:
    """Return ids where partition 0 is empty, 1 has one row and 2 ten times the mean."""
    ids = np.random.default_rng(seed).integers(3, k, n)
    big = 10 * n // k
    ids[:big] = 2
    ids[big] = 1
    return ids


def trained(
    learner: ClosedFormClassifier, data: PartitionedData, n_classes: int = 10, **options: Any
) -> StackedMembers:
    which = options.pop("which", range(len(data)))
    return learner.fit_members(
        data, which, n_classes, 0, n_jobs=options.pop("n_jobs", None), progress=Silent()
    )


def asked(members: StackedMembers, X: Any, n_jobs: int | None = None) -> np.ndarray:
    return members.votes(X, n_jobs=n_jobs, progress=Silent())
