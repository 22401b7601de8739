"""Responses of an image to small patches of photographs (Coates and Ng, 2011)."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import ExactRows, exact_product, exact_rows
from poisonproof.features.images import ImageMap

__all__ = ["PatchResponses"]

# Photographs are shrunk by this factor: small images show whole objects, so their patches do not
# look like those of a photograph with all its pixels.
_SHRINK = 4
# What keeps flat patches flat where contrast is evened out, and faint directions faint where
# patches are whitened; both as in Coates and Ng, for pixels of 0 to 255.
_FLAT, _FAINT = 10.0, 0.1


class PatchResponses(ImageMap):
    """How strongly each quarter of an image looks like, or unlike, small patches of photographs.

    Every patch of the image is evened out in contrast, whitened and compared with `n_patches`
    patches that were treated alike. What exceeds `threshold`, in either sign, is averaged over
    the cells of a grid. The patches and the whitening come from the two photographs that
    scikit-learn ships, so no row has a say in them.

    Parameters
    ----------
    n_patches : int, default=1600
        Patches to compare with; each gives two columns per cell.
    size : int, default=6
        Side of a patch, in pixels.
    grid : int, default=2
        Cells across and down.
    threshold : float, default=0.5
        Responses below it count as none.
    seed : int, default=0
        Key of the random stream that draws the patches.
    image_shape : tuple of int or None, default=None
        (height, width) or (height, width, channels) of flat rows; None takes square gray images.
        Images are gray or have three colours, with pixels of 0 to 255.
    n_jobs : int or None, default=None
        Threads. Has no influence on the result.

    Guarantee
    ---------
    The result for an image is a function of that image alone, bit for bit: products of patches
    are exact (see `exact_rows`). An image that is not finite, or too large to be
    evened out, becomes NaN.

    Notes
    -----
    Reading the photographs takes Pillow: ``pip install 'poisonproof[data]'``.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    >>> PatchResponses(n_patches=50).transform(images).shape
    (3, 400)
    """

    def __init__(
        self,
        n_patches: int = 1600,
        *,
        size: int = 6,
        grid: int = 2,
        threshold: float = 0.5,
        seed: int = 0,
        image_shape: tuple[int, ...] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_patches = n_patches
        self.size = size
        self.grid = grid
        self.threshold = threshold
        self.seed = seed
        self.image_shape = image_shape
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name, least in (("n_patches", 1), ("size", 2), ("grid", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or value < least:
                raise InvalidInputError(
                    f"{name} must be an integer of at least {least}, but is {value!r}."
                )
        if not 0 <= self.threshold < np.inf:
            raise InvalidInputError(f"threshold must be at least 0, but is {self.threshold!r}.")

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        n, height, width, channels = rows.shape
        if channels not in {1, 3}:
            raise InvalidInputError(
                f"PatchResponses takes images of one channel or three, not of {channels}."
            )
        if min(height, width) < self.size + self.grid - 1:
            raise InvalidInputError(
                f"Images of {height} x {width} are too small for patches of {self.size} pixels in "
                f"{self.grid} x {self.grid} cells. Use smaller patches or fewer cells."
            )
        patches, offsets = _dictionary(int(self.n_patches), int(self.size), channels, self.seed)
        responses = np.empty((n, 2 * self.grid**2 * self.n_patches), dtype=np.float32)
        for image, row in zip(rows, responses, strict=True):
            evened = _even(_patches_of(image, self.size))
            if not np.isfinite(evened).all():
                row[:] = np.nan
                continue
            exact = exact_rows(evened, "single")
            alike = exact_product(exact, patches) * exact.scales.astype(np.float32)[:, np.newaxis]
            alike -= offsets
            field = alike.reshape(height - self.size + 1, width - self.size + 1, -1)
            row[:] = self._averaged(field)
        return responses

    def _averaged(self, field: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the mean of what exceeds the threshold in each cell, of both signs."""
        least = np.float32(self.threshold)
        strong = np.maximum(field - least, 0), np.maximum(-least - field, 0)
        down, across = (np.linspace(0, side, self.grid + 1).astype(int) for side in field.shape[:2])
        return np.concatenate(
            [
                one[top:bottom, left:right].reshape(-1, field.shape[2]).mean(axis=0)
                for one, (top, bottom), (left, right) in product(
                    strong, pairwise(down), pairwise(across)
                )
            ]
        )


def _patches_of(image: NDArray[Any], size: int) -> NDArray[np.float64]:
    """Return all patches of (height, width, channels), one per row."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(0, 1))
    return windows.reshape(-1, image.shape[2] * size * size).astype(np.float64)


def _even(patches: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return patches of mean 0 and deviation 1, less where there is little to see."""
    centred = patches - patches.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    evened: NDArray[np.float64] = centred / np.sqrt(variance + _FLAT)
    return evened


@lru_cache(maxsize=8)
def _dictionary(
    n_patches: int, size: int, channels: int, seed: int
) -> tuple[ExactRows, NDArray[np.float32]]:
    """Return whitened patches of length one, to compare evened patches with, and their offsets.

    Whitening is folded in: <d, W (x - m)> = <W d, x> - <W d, m>.
    """
    photographs = [_shrunk(photograph, channels) for photograph in load_sample_images().images]
    patches = _even(np.concatenate([_patches_of(one, size) for one in photographs]))
    mean = patches.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(patches, rowvar=False))
    whiten = (vectors / np.sqrt(values + _FAINT)) @ vectors.T
    stream = np.random.Generator(np.random.Philox(key=seed))
    drawn = patches[stream.choice(len(patches), n_patches, replace=n_patches > len(patches))]
    white = (drawn - mean) @ whiten
    white /= np.maximum(np.linalg.norm(white, axis=1, keepdims=True), 1e-12)
    exact = exact_rows(white @ whiten, "single")
    # Powers of two: the scaled integers are as exact as the integers.
    scaled = exact.values * exact.scales.astype(np.float32)[:, np.newaxis]
    offsets = (exact.floats() @ mean).astype(np.float32)
    return ExactRows(scaled, np.zeros_like(exact.exponents)), offsets


def _shrunk(photograph: NDArray[Any], channels: int) -> NDArray[np.float64]:
    height, width = (side // _SHRINK for side in photograph.shape[:2])
    cut = photograph[: height * _SHRINK, : width * _SHRINK].astype(np.float64)
    blocks = cut.reshape(height, _SHRINK, width, _SHRINK, -1)
    small: NDArray[np.float64] = blocks.mean(axis=(1, 3))
    return small if channels == 3 else small.mean(axis=2, keepdims=True)
