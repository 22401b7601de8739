"""An image dataset as the rest of the library sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.ragged import RaggedImages

__all__ = ["ImageDataset"]


@dataclass(frozen=True)
class ImageDataset:
    """Training and test images with their labels, memory-mapped and read-only.

    Attributes
    ----------
    name : str
        Name of the dataset.
    x_train, x_test : ndarray of uint8, shape (n, height, width) or (n, 3, height, width)
        Images, gray or with channels first.
    y_train, y_test : ndarray of int64, shape (n,)
        Labels: indices into `class_names`.
    class_names : tuple of str
        What the labels mean.
    originals_train, originals_test : RaggedImages or None
        The images at their own sizes, where `x_train` and `x_test` were resized.
    published : bool
        Whether the files were the published ones, by their digests.
    digest : str
        SHA-256 over the digests of all arrays named here: the identity of this dataset.
    """

    name: str
    x_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    class_names: tuple[str, ...]
    originals_train: RaggedImages | None
    originals_test: RaggedImages | None
    published: bool
    digest: str

    @property
    def classes(self) -> NDArray[np.int64]:
        """The declared label set, ``0 .. C - 1``: pass it to a classifier's ``classes=``."""
        return np.arange(len(self.class_names), dtype=np.int64)
