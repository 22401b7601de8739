"""What the maps of images share: the accepted shapes, and the layout they compute in.

Images are turned so that the image number is the *last* axis. Every step is then one IEEE
operation on whole planes (add, multiply, divide, square root, compare), which is correctly rounded
whatever SIMD lane or remainder loop an image falls into, so neighbours cannot change its bits.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer, as_numbers

__all__ = ["ImageMap"]


class ImageMap(FrozenTransformer):
    """Base class of maps of images; see `_images` for the accepted shapes."""

    image_shape: tuple[int, ...] | None

    def _check_parameters(self) -> None:
        shape = self.image_shape
        if shape is not None and (len(shape) not in {2, 3} or min(shape) < 1):
            raise InvalidInputError(
                "image_shape must be None, (height, width) or (height, width, channels) with "
                f"positive entries, but is {shape!r}."
            )

    def _check_rows(self, X: Any) -> NDArray[Any]:
        """Return images of shape (n, height, width, channels) in their own dtype."""
        rows = as_numbers(X)
        if rows.dtype.kind not in "buif":
            raise InvalidRowsError(f"Images must be numbers, but X has dtype {rows.dtype}.")
        if rows.ndim == 4:
            return rows
        if rows.ndim == 3:
            return rows[..., np.newaxis]
        if rows.ndim != 2:
            raise InvalidRowsError(
                "Images come as (n, height, width), (n, height, width, channels) or flat "
                f"(n, pixels), but X has shape {rows.shape}."
            )
        shape = self.image_shape or _square(rows.shape[1])
        if int(np.prod(shape)) != rows.shape[1]:
            raise InvalidRowsError(
                f"image_shape={shape} has {int(np.prod(shape))} pixels, but the rows of X have "
                f"{rows.shape[1]} columns."
            )
        channels = shape[2] if len(shape) == 3 else 1
        return rows.reshape(len(rows), shape[0], shape[1], channels)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _square(n_pixels: int) -> tuple[int, int]:
    side = isqrt(n_pixels)
    if side * side != n_pixels:
        raise InvalidRowsError(
            f"Rows of {n_pixels} columns are not square gray images. Pass image_shape=(height, "
            "width) or (height, width, channels)."
        )
    return side, side
