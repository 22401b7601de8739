"""Columns whose cells are whole samples: arrays of an npz file, images of a folder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from poisonproof.caches import cache_folder
from poisonproof.schema.columns import MAX_FEATURES, Column

if TYPE_CHECKING:
    from poisonproof.features.images import ImageMap

__all__ = ["ArrayColumn", "ImageColumn"]

LARGEST_SIDE = 4096


@dataclass(frozen=True, kw_only=True)
class ArrayColumn(Column):
    """The samples of an npz file: one array of numbers per row.

    Parameters
    ----------
    name : str
        Name of the array in the file.
    shape : tuple of int
        Shape of one sample.
    values : {"float64", "uint8"}
        Which numbers are allowed: all, or whole ones from 0 to 255.
    missing : {"reject", "nan"}
        What a NaN in a sample does: it rejects its row, or stays.
    """

    type: ClassVar[str] = "array"

    shape: tuple[int, ...]
    values: str = "float64"
    missing: str = "reject"

    def __post_init__(self) -> None:
        sides = tuple(self.shape) if isinstance(self.shape, (list, tuple)) else ()
        if not sides or not all(type(side) is int and side > 0 for side in sides):
            raise self._refuse(f"shape is a list of positive numbers. Got {self.shape!r}.")
        object.__setattr__(self, "shape", sides)
        self._check_count("the product of shape", math.prod(sides), 2**31)
        self._check_choice("values", self.values, ("float64", "uint8"))
        self._check_choice("missing", self.missing, ("reject", "nan"))

    @property
    def n_features(self) -> int:
        """The numbers of a sample."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class ImageColumn(Column):
    """The images of a folder with one folder per class.

    Parameters
    ----------
    name : str
        What messages call it.
    height, width : int
        Every image is resized to this, bilinear.
    gray : bool
        One gray channel instead of three colours.
    encoder : {"pixels", "orientations", "network"}
        The pixels from 0 to 255, colours first, or histograms of the directions of edges, a fixed
        map that suits closed-form members, or the network in the file `model`.
    cell : int
        Side of the squares in which directions are counted.
    model : str
        A file with a network that was trained on other data; empty without one.
    digest : str
        SHA-256 of that file, filled in when the schema is proposed.
    size : int
        Features that the network returns; 0 without one.
    """

    type: ClassVar[str] = "image"

    height: int
    width: int
    gray: bool = False
    encoder: str = "pixels"
    cell: int = 4
    model: str = ""
    digest: str = ""
    size: int = 0

    def __post_init__(self) -> None:
        self._check_count("height", self.height, LARGEST_SIDE)
        self._check_count("width", self.width, LARGEST_SIDE)
        self._check_choice("encoder", self.encoder, ("pixels", "orientations", "network"))
        self._check_count("cell", self.cell, LARGEST_SIDE)
        if not isinstance(self.gray, bool):
            raise self._refuse(f"gray is true or false. Got {self.gray!r}.")
        if not isinstance(self.model, str) or not isinstance(self.digest, str):
            raise self._refuse("model is a file and digest its SHA-256, both texts.")
        if (self.encoder == "network") != bool(self.model and self.digest and self.size):
            raise self._refuse("model, digest and size belong to the encoder 'network' alone.")
        if self.encoder == "network":
            self._check_count("size", self.size, MAX_FEATURES)

    def to_json(self) -> dict[str, Any]:
        """Return the column; without a network as it was written before there were any."""
        values = super().to_json()
        if self.encoder != "network":
            for key in ("model", "digest", "size"):
                del values[key]
        return values

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the pixels: (height, width) if gray, else (3, height, width)."""
        return (self.height, self.width) if self.gray else (3, self.height, self.width)

    @property
    def n_features(self) -> int:
        """The number of pixels, or of what the map makes of them."""
        if self.encoder == "pixels":
            return math.prod(self.shape)
        if self.encoder == "network":
            return self.size
        channels = 1 if self.gray else 3
        blank = np.zeros((1, self.height, self.width, channels))
        return int(self.feature_map().transform(blank).shape[1])

    def feature_map(self) -> ImageMap:
        """Return the fixed map of images with colours last."""
        from poisonproof.features import NetworkFeatures, OrientationHistogram

        shape = (self.height, self.width, 1 if self.gray else 3)
        if self.encoder == "network":
            return NetworkFeatures(
                self.model,
                digest=self.digest,
                image_shape=shape,
                cache=cache_folder() / "features",
                n_jobs=-1,
                verbose=int(find_spec("rich") is not None),
            )
        return OrientationHistogram(cell=self.cell, image_shape=shape)
