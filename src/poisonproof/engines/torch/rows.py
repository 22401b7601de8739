"""The rows of one partition, as tensors a network takes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.partition.partitioned import Partition

__all__ = ["MemberRows", "as_samples", "dummy_rows", "input_shape", "partition_rows"]


@dataclass(frozen=True)
class MemberRows:
    """One member's training data.

    Attributes
    ----------
    index : int
        Number of the partition; -1 for a dummy lane.
    X : float32 tensor of shape (m, ...)
        Samples before normalisation.
    y : int64 tensor of shape (m,)
        Class indices.
    mean, std : float32 tensors that broadcast against a sample
        Of this partition alone.
    """

    index: int
    X: Tensor
    y: Tensor
    mean: Tensor
    std: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def digest(self) -> str:
        """Return a digest of the partition's content."""
        sha = hashlib.sha256(f"{self.index}{tuple(self.X.shape)}".encode())
        sha.update(self.X.numpy().tobytes())
        sha.update(self.y.numpy().tobytes())
        return sha.hexdigest()


def input_shape(X: Any, image_shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the shape of one sample, (d,) or (C, H, W).

    >>> input_shape(np.zeros((5, 28, 28)), None)
    (1, 28, 28)
    """
    shape = tuple(int(side) for side in np.shape(X)[1:])
    if image_shape is None:
        return (1, *shape) if len(shape) == 2 else shape
    declared = tuple(int(side) for side in image_shape)
    if len(declared) != 3 or np.prod(declared) != np.prod(shape):
        raise InvalidInputError(
            f"image_shape={declared} does not fit samples of shape {shape}: it must be"
            " (channels, height, width) with the same number of values."
        )
    if _is_turned(shape, declared):
        raise InvalidInputError(
            f"Images come channels first, as image_shape={declared}; got samples of shape {shape}."
            " Move the axes first: numpy.moveaxis(X, -1, 1)."
        )
    return declared


def _is_turned(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return whether images of `shape` would be scrambled, and not just unpacked, as `wanted`."""
    found, expected = ([side for side in sides if side != 1] for sides in (shape, wanted))
    return len(shape) == len(wanted) == 3 and found != expected


def as_samples(X: Any, spec: TorchSpec) -> NDArray[np.float32]:
    """Return samples as float32, shape (n, *input_shape), in units of the specification."""
    if hasattr(X, "toarray"):
        raise InvalidRowsError("Deep members take dense samples, got a sparse matrix.")
    try:
        # A value beyond float32 becomes infinite: its member diverges, and the others go on.
        with np.errstate(over="ignore"):
            array = np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidRowsError(f"Deep members take numbers only: {error}") from error
    if array[0:1].size != (np.prod(spec.input_shape) if len(array) else 0):
        raise InvalidRowsError(
            f"The network takes samples of shape {spec.input_shape}, got {array.shape[1:]}."
        )
    if _is_turned(array.shape[1:], spec.input_shape):
        raise InvalidRowsError(
            f"The network takes images of shape {spec.input_shape}, channels first; got"
            f" {array.shape[1:]}."
        )
    array = array.reshape(len(array), *spec.input_shape)
    return array if spec.input_scale == 1.0 else array * np.float32(spec.input_scale)


def partition_rows(partition: Partition, spec: TorchSpec) -> MemberRows:
    """Bring one partition to tensors and compute its own normalisation."""
    if partition.sample_weight is not None:
        raise InvalidInputError("TorchLearner takes no sample_weight; repeat rows instead.")
    X = as_samples(partition.X, spec)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite values: see `as_samples`
        mean, std = _normalisation(X, spec)
    return MemberRows(
        partition.index,
        torch.from_numpy(np.ascontiguousarray(X)),
        torch.from_numpy(np.ascontiguousarray(partition.y, dtype=np.int64)),
        torch.from_numpy(mean),
        torch.from_numpy(std),
    )


def dummy_rows(spec: TorchSpec) -> MemberRows:
    """Return the rows of a lane that holds no member."""
    mean, std = _normalisation(np.zeros((0, *spec.input_shape), np.float32), spec)
    empty = torch.zeros((0, *spec.input_shape))
    no_labels = torch.zeros(0, dtype=torch.int64)
    return MemberRows(-1, empty, no_labels, torch.from_numpy(mean), torch.from_numpy(std))


def _normalisation(
    X: NDArray[np.float32], spec: TorchSpec
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    image = len(spec.input_shape) == 3
    per_feature = spec.normalize == "feature"
    shape = spec.input_shape if per_feature or not image else (spec.input_shape[0], 1, 1)
    zeros, ones = np.zeros(shape, np.float32), np.ones(shape, np.float32)
    if spec.normalize == "fixed":
        given = (
            np.asarray(v, np.float32).reshape(-1, *(1,) * (len(shape) - 1))
            for v in (spec.mean, spec.std)
        )
        mean, std = given
        return np.broadcast_to(mean, shape).copy(), np.broadcast_to(std, shape).copy()
    if spec.normalize == "none" or not len(X):
        return zeros, ones
    axes = (0, 2, 3) if image and not per_feature else (0,)
    mean = X.mean(axis=axes, dtype=np.float64, keepdims=True)[0].astype(np.float32)
    std = X.std(axis=axes, dtype=np.float64, keepdims=True)[0].astype(np.float32)
    return mean, np.where(std > 0, std, np.float32(1.0))
