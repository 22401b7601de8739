"""Deskewing: shear each image until its strokes stand upright."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.features.images import ImageMap

__all__ = ["Deskew"]


class Deskew(ImageMap):
    """Shear every image so that its horizontal and vertical moments are uncorrelated.

    The slant of a digit is the regression of column on row, weighted by ink. Each image row is
    shifted sideways, with linear interpolation, until that slant is zero and the centre of ink is
    in the middle column. An image without ink is left as it is.

    Parameters
    ----------
    max_slant : float, default=1.0
        Largest slant that is corrected, in columns per row; larger ones are corrected by this much.
    image_shape : tuple of int or None, default=None
        (height, width) or (height, width, channels) of flat rows; None takes square gray images.
        Arrays with three or four axes carry their own shape.
    n_jobs : int or None, default=None
        Threads. Has no influence on the result.

    Guarantee
    ---------
    The result for an image is a function of that image alone, bit for bit.

    Examples
    --------
    >>> import numpy as np
    >>> slanted = np.zeros((1, 5, 5), dtype=np.uint8)
    >>> slanted[0, range(5), range(5)] = 255
    >>> Deskew().transform(slanted).reshape(5, 5)[:, 2]
    array([255., 255., 255., 255., 255.], dtype=float32)
    """

    def __init__(
        self,
        *,
        max_slant: float = 1.0,
        image_shape: tuple[int, ...] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.max_slant = max_slant
        self.image_shape = image_shape
        self.n_jobs = n_jobs

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        n, height, width, channels = rows.shape
        planes = np.ascontiguousarray(np.moveaxis(rows, 0, -1), dtype=np.float32)
        slant, centre_row, centre_column = _moments(planes.sum(axis=2), self.max_slant)
        middle = np.float32((width - 1) / 2)
        lines = np.arange(height, dtype=np.float32)[:, np.newaxis]
        # Column of the source that lands in column 0, for every line of every image.
        origin = (centre_column - middle) + slant * (lines - centre_row)
        whole = np.floor(origin)
        part = (origin - whole)[:, np.newaxis, np.newaxis, :]
        first = whole.astype(np.intp)[:, np.newaxis, :] + np.arange(width)[:, np.newaxis]
        # One empty column on either side takes everything from outside the image.
        padded = np.zeros((height, width + 2, channels, n), dtype=np.float32)
        padded[:, 1:-1] = planes
        left, right = (
            np.take_along_axis(padded, at[:, :, np.newaxis, :], axis=1)
            for at in (np.clip(first + 1, 0, width + 1), np.clip(first + 2, 0, width + 1))
        )
        sheared = left * (np.float32(1) - part) + right * part
        return np.ascontiguousarray(np.moveaxis(sheared, -1, 0)).reshape(n, -1)


def _moments(ink: NDArray[np.float32], max_slant: float) -> tuple[NDArray[np.float32], ...]:
    """Return slant, centre row and centre column of images of shape (height, width, n)."""
    height, width, _ = ink.shape
    # Adding along the leading axes adds whole planes: each image sees the same additions.
    weights = ink.astype(np.float64)
    lines = np.arange(height, dtype=np.float64)[:, np.newaxis, np.newaxis]
    columns = np.arange(width, dtype=np.float64)[:, np.newaxis]
    total = weights.sum(axis=(0, 1))
    inked = total > 0
    total[~inked] = 1
    row = np.where(inked, (weights * lines).sum(axis=(0, 1)) / total, (height - 1) / 2)
    column = np.where(inked, (weights * columns).sum(axis=(0, 1)) / total, (width - 1) / 2)
    down, across = lines - row, columns - column
    spread = (weights * (down * down)).sum(axis=(0, 1))
    mixed = (weights * down * across).sum(axis=(0, 1))
    slanted = inked & (spread > 0)
    slant = np.where(slanted, mixed / np.where(slanted, spread, 1), 0.0)
    slant = np.clip(slant, -max_slant, max_slant)
    return slant.astype(np.float32), row.astype(np.float32), column.astype(np.float32)
