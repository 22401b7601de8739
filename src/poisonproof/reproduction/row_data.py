"""The arrays that a row of a table is made from, and their partitions."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import make_spread
from poisonproof.datasets.images import ImageDataset, load_images
from poisonproof.estimators.spreading import spread_rows
from poisonproof.exceptions import InvalidInputError
from poisonproof.partition import (
    PartitionedData,
    Partitioner,
    SortedIndex,
    make_partitioner,
    sample_digests,
)
from poisonproof.reproduction.recipe import DataFacts, Recipe

__all__ = ["RowData", "data_from_cache", "make_partitions"]

PARTITIONERS = ("pixel_sum", "sorted")


@dataclass(frozen=True)
class RowData:
    """Images, labels, and the pixel sums that decide the partitions.

    Attributes
    ----------
    name : str
        Name of the dataset.
    n_classes : int
        Size of the declared label set.
    x_train, x_test : ndarray of uint8, shape (n, height, width) or (n, 3, height, width)
        What members see.
    y_train, y_test : ndarray of int64, shape (n,)
        Labels.
    sums : ndarray of int64, shape (n_train,)
        Sum of all pixels of each training image as published, before any resizing.
    ranks : ndarray of int64, shape (n_train,), optional
        Place of each training image as published in the sorted order of all, where members see
        resized ones. It follows from the published images, as `sums` does; not part of `digest`.
    """

    name: str
    n_classes: int
    x_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    sums: NDArray[np.int64]
    ranks: NDArray[np.int64] | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all arrays: the identity of this data."""
        sha = hashlib.sha256(f"poisonproof.row-data1 {self.n_classes}\n".encode())
        for name in ("x_train", "y_train", "x_test", "y_test", "sums"):
            array = np.ascontiguousarray(getattr(self, name))
            sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            sha.update(array.data)
        return sha.hexdigest()

    def check(self, facts: DataFacts) -> None:
        """Raise unless this is the data that a recipe asks for."""
        if self.name != facts.name or self.digest != facts.sha256:
            raise InvalidInputError(
                f"This is not the {facts.name} of the recipe: the digest of {self.name} is "
                f"{self.digest}, expected {facts.sha256}. Import the published files again: "
                f"poisonproof data {facts.name.removesuffix('-equalized')} --from DIR."
            )


def data_from_cache(name: str, cache: str | os.PathLike[str] | None = None) -> RowData:
    """Return the data of an imported dataset."""
    images: ImageDataset = load_images(name, cache)
    ranks = None
    if images.originals_train is not None:
        sums = images.originals_train.sums()
        originals = list(images.originals_train)
        ranks = SortedIndex(n_partitions=len(originals)).assign(originals)
    else:
        sums = images.x_train.reshape(len(images.x_train), -1).sum(axis=1, dtype=np.int64)
    return RowData(
        name,
        len(images.class_names),
        images.x_train,
        np.asarray(images.y_train, dtype=np.int64),
        images.x_test,
        np.asarray(images.y_test, dtype=np.int64),
        sums,
        ranks,
    )


def _sorted_partitions(
    recipe: Recipe, data: RowData, partitioner: Partitioner
) -> NDArray[np.int64]:
    if not recipe.data.resized:
        return partitioner.assign(data.x_train)
    if data.ranks is None:
        raise InvalidInputError(
            f"{recipe.id}: partitions follow the order of the images as published, which this "
            "data does not hold. Import or pack the dataset again."
        )
    return data.ranks % recipe.n_partitions


def make_partitions(recipe: Recipe, data: RowData) -> tuple[Partitioner, PartitionedData]:
    """Cut the training images into the published partitions, or buckets that members share.

    Raises
    ------
    InvalidInputError
        If the partitions do not have the published sizes.
    """
    if recipe.partitioner not in PARTITIONERS:
        raise InvalidInputError(
            f"{recipe.id}: partitioner must be one of {', '.join(PARTITIONERS)}, got "
            f"{recipe.partitioner!r}."
        )
    partitioner = make_partitioner(recipe.partitioner, recipe.n_partitions)
    if recipe.partitioner == "sorted":
        assignment = _sorted_partitions(recipe, data, partitioner)
    else:
        # The sum of a one-pixel image is that pixel: the rule itself does the rest.
        assignment = partitioner.assign(data.sums[:, np.newaxis])
    digests = sample_digests(data.x_train)
    parts = PartitionedData.build(
        data.x_train, data.y_train, assignment, digests, recipe.n_partitions
    )
    if recipe.degree > 1:
        spread = make_spread(recipe.n_partitions // recipe.degree, recipe.degree)
        parts = spread_rows(parts, spread)
    found = (int(parts.sizes.min()), int(parts.sizes.max()))
    if found != recipe.partition_sizes:
        raise InvalidInputError(
            f"{recipe.id}: the partitions have {found[0]} to {found[1]} rows, published are "
            f"{recipe.partition_sizes[0]} to {recipe.partition_sizes[1]}. Nothing was trained."
        )
    return partitioner, parts
