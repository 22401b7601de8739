"""Partitioned data for tests of the deep engine, at the sizes members have in practice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poisonproof.partition.partitioned import PartitionedData


def partitioned(
    parts: Sequence[tuple[np.ndarray, np.ndarray]], shape: tuple[int, ...]
) -> PartitionedData:
    """Put given partitions together, in the order given."""
    X = np.concatenate([x.reshape(-1, *shape) for x, _ in parts])
    y = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    offsets = np.cumsum([0, *(len(labels) for _, labels in parts)])
    return PartitionedData(X, y, np.arange(len(y)), offsets)


def random_parts(
    sizes: Sequence[int], shape: tuple[int, ...], n_classes: int = 10, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw images of grey values with labels; partition i does not depend on the others."""
    parts = []
    for index, size in enumerate(sizes):
        draw = np.random.default_rng([seed, index])
        # One batch per row: a partition that loses or gains a last row keeps the rest.
        X = np.stack([draw.integers(0, 256, shape) for _ in range(size)] or [np.zeros(shape)])
        y = np.array([draw.integers(0, n_classes) for _ in range(size)], dtype=np.int64)
        parts.append((X[:size].astype(np.uint8), y))
    return parts
