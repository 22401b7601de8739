"""The data of one row: its arrays and partitions, and packs that carry them to another machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.contributors import make_partitioner
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.partition.partitioners import Partitioner, SortedIndex
from poisonproof_research.datasets.library import ImageDataset, load_images
from poisonproof_research.methods.finite_aggregation import spread_rows
from poisonproof_research.methods.shared_buckets import make_spread
from poisonproof_research.reproduction.recipe import DataFacts, Recipe
from poisonproof_research.reproduction.whole_files import (
    npz_bytes,
    read_json,
    read_npz,
    sha256,
    write_bytes,
    write_json,
)

# Pixels as differences from their neighbours, which compress better than pixels. Every step is
# exact arithmetic modulo 256, so decoding gives back the same bytes. On CIFAR-10 deflate leaves
# 61 % of the size after these steps, 92 % without them.


def encode_pixels(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return red and blue minus green, then each pixel minus what its neighbours predict.

    Examples
    --------
    >>> images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    >>> encode_pixels(images)[0]
    array([[0, 1, 1, 1],
           [4, 0, 0, 0],
           [4, 0, 0, 0]], dtype=uint8)
    >>> bool((decode_pixels(encode_pixels(images)) == images).all())
    True
    """
    coded = np.array(images, dtype=np.uint8)
    if _is_colour(coded):
        coded[:, 0] -= coded[:, 1]
        coded[:, 2] -= coded[:, 1]
    for axis in (-1, -2):
        coded = np.diff(coded, axis=axis, prepend=np.uint8(0))
    return coded


def decode_pixels(coded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Undo `encode_pixels`."""
    images = np.cumsum(coded, axis=-2, dtype=np.uint8)
    np.cumsum(images, axis=-1, dtype=np.uint8, out=images)
    if _is_colour(images):
        images[:, 0] += images[:, 1]
        images[:, 2] += images[:, 1]
    return images


def _is_colour(images: NDArray[np.uint8]) -> bool:
    return images.ndim == 4 and images.shape[1] == 3


# The arrays that a row of a table is made from, and their partitions.

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
                "python -m poisonproof_research data "
                f"{facts.name.removesuffix('-equalized')} --from DIR."
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
    """Cut the training images into the published partitions, or buckets that members share."""
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


# Data on the way to another machine: checked chunks that hold only what a row needs.
#
# The originals of resized images stay at home; their pixel sums travel, and decide the partitions.

FORMAT = "poisonproof data pack"
VERSION = 1
MANIFEST = "manifest.json"
_THREADS = 8


def write_pack(data: RowData, folder: Path, *, largest: int = 24_000_000) -> list[Path]:
    """Write a dataset as npz chunks of at most `largest` bytes of pixels, then their manifest."""
    chunks, paths = [], []
    for number, (split, start, stop) in enumerate(_pieces(data, largest)):
        content = npz_bytes(_arrays(data, split, slice(start, stop)))
        path = folder / f"{data.name}-{number:03d}.npz"
        write_bytes(path, content)
        chunks.append(
            {
                "file": path.name,
                "sha256": sha256(content),
                "split": split,
                "start": start,
                "stop": stop,
            }
        )
        paths.append(path)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": data.name,
        "n_classes": data.n_classes,
        "digest": data.digest,
        "shapes": {"train": list(data.x_train.shape), "test": list(data.x_test.shape)},
        "chunks": chunks,
    }
    write_json(folder / MANIFEST, manifest)
    return [*paths, folder / MANIFEST]


def data_from_pack(folder: Path) -> RowData:
    """Read what `write_pack` wrote, and check every digest."""
    manifest = read_json(folder / MANIFEST, FORMAT, VERSION)
    try:
        shapes = {split: tuple(shape) for split, shape in manifest["shapes"].items()}
        arrays = {
            split: {
                "x": np.empty(shape, np.uint8),
                "y": np.empty(shape[0], np.int64),
                "sums": np.empty(shape[0], np.int64),
                "ranks": np.full(shape[0], -1, np.int64),
            }
            for split, shape in shapes.items()
        }
        missing = [c["file"] for c in manifest["chunks"] if not (folder / c["file"]).is_file()]
        if missing:
            raise InvalidInputError(f"{folder} lacks the chunks {', '.join(missing)}.")
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda chunk: _fill(folder, chunk, arrays), manifest["chunks"]))
        data = RowData(
            manifest["name"],
            manifest["n_classes"],
            arrays["train"]["x"],
            arrays["train"]["y"],
            arrays["test"]["x"],
            arrays["test"]["y"],
            arrays["train"]["sums"],
            None if (ranks := arrays["train"]["ranks"]).min() < 0 else ranks,
        )
        expected = manifest["digest"]
    except (KeyError, TypeError, IndexError) as error:
        raise InvalidInputError(f"{folder / MANIFEST} is incomplete: {error}.") from error
    if data.digest != expected:
        raise InvalidInputError(
            f"{folder} is not what was packed: its digest is {data.digest}, not {expected}."
        )
    return data


def _pieces(data: RowData, largest: int) -> Iterator[tuple[str, int, int]]:
    for split, images in (("train", data.x_train), ("test", data.x_test)):
        step = max(1, largest // images[:1].nbytes)
        for start in range(0, len(images), step):
            yield split, start, min(start + step, len(images))


def _arrays(data: RowData, split: str, rows: slice) -> dict[str, NDArray[Any]]:
    if split == "test":
        return {"x": encode_pixels(data.x_test[rows]), "y": data.y_test[rows]}
    ranks = {} if data.ranks is None else {"ranks": data.ranks[rows]}
    return {
        "x": encode_pixels(data.x_train[rows]),
        "y": data.y_train[rows],
        "sums": data.sums[rows],
        **ranks,
    }


def _fill(folder: Path, chunk: dict[str, Any], arrays: dict[str, dict[str, NDArray[Any]]]) -> None:
    rows = slice(chunk["start"], chunk["stop"])
    target = arrays[chunk["split"]]
    path = folder / chunk["file"]
    for name, values in read_npz(path, chunk["sha256"]).items():
        if name not in target or values.shape != target[name][rows].shape:
            raise InvalidInputError(f"{path} does not fit the manifest.")
        target[name][rows] = decode_pixels(values) if name == "x" else values
