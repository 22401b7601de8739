"""On the real data sets the partitions have the published sizes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from poisonproof.partition import PixelSum, SortedIndex


def load(name):
    folder = os.environ.get("POISONPROOF_DATA")
    if folder is None or not (Path(folder) / name).exists():
        pytest.skip(f"POISONPROOF_DATA names no folder with {name}")
    with np.load(Path(folder) / name) as data:
        return data["x_train"]


def sizes(partitioner, X):
    counts = np.bincount(partitioner.assign(X), minlength=partitioner.n_partitions)
    return counts.min(), counts.max()


@pytest.mark.mnist
@pytest.mark.parametrize(("k", "smallest", "largest"), [(1200, 25, 81), (3000, 7, 38)])
def test_mnist_hash_partitions_have_the_published_sizes(k, smallest, largest):
    assert sizes(PixelSum(n_partitions=k), load("mnist.npz")) == (smallest, largest)


@pytest.mark.mnist
@pytest.mark.parametrize("k", [1200, 3000])
def test_mnist_sorted_partitions_are_those_of_lexsort(k):
    X = load("mnist.npz")
    order = np.lexsort(X.reshape(len(X), -1).T)
    expected = np.empty(len(X), dtype=np.int64)
    expected[order] = np.arange(len(X)) % k
    assert np.array_equal(SortedIndex(n_partitions=k).assign(X), expected)


@pytest.mark.mnist
@pytest.mark.parametrize(
    ("k", "smallest", "largest"), [(50, 891, 1099), (250, 159, 230), (1000, 31, 73)]
)
def test_cifar_hash_partitions_have_the_published_sizes(k, smallest, largest):
    assert sizes(PixelSum(n_partitions=k), load("cifar10.npz")) == (smallest, largest)


@pytest.mark.mnist
def test_cifar_sorted_partitions_are_those_of_lexsort():
    X = load("cifar10.npz")
    channel_first = X if X.shape[1] == 3 else X.transpose(0, 3, 1, 2)
    order = np.lexsort(channel_first.reshape(len(X), -1).T)
    expected = np.empty(len(X), dtype=np.int64)
    expected[order] = np.arange(len(X)) % 250
    assert np.array_equal(SortedIndex(n_partitions=250).assign(channel_first), expected)
