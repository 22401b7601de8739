"""Training and test arrays as readers hand them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.entry_writing import EntryWriter
from poisonproof.datasets.images.ragged import RaggedImages
from poisonproof.exceptions import InvalidInputError

__all__ = ["SPLITS", "Split", "put_originals", "put_split"]

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Split:
    """Images of one size with their labels, and what they were read from."""

    images: NDArray[np.uint8]
    labels: NDArray[Any]
    where: str


def put_split(entry: EntryWriter, name: str, split: Split, n_classes: int) -> None:
    """Check one split and write it as ``x_<name>`` and ``y_<name>``."""
    if len(split.images) != len(split.labels):
        raise InvalidInputError(
            f"{split.where}: there are {len(split.images):,} {name} images but "
            f"{len(split.labels):,} labels."
        )
    outside = np.flatnonzero((split.labels < 0) | (split.labels >= n_classes))
    if len(outside):
        raise InvalidInputError(
            f"{split.where}: label {outside[0]} of the {name} images is "
            f"{split.labels[outside[0]]}; allowed are 0 to {n_classes - 1}."
        )
    entry.put(f"x_{name}", split.images, np.uint8)
    entry.put(f"y_{name}", split.labels, np.int64)


def put_originals(entry: EntryWriter, name: str, images: RaggedImages) -> None:
    """Write images at their own sizes as the three arrays ``originals_<name>_...``."""
    entry.put(f"originals_{name}_values", images.values, np.uint8)
    entry.put(f"originals_{name}_offsets", images.offsets, np.int64)
    entry.put(f"originals_{name}_shapes", images.shapes, np.int64)
