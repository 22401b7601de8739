"""Fixed maps of images: deskewing, histograms of gradients, patch features; shifted copies.

The histogram is hand-written for equal bits everywhere: scikit-image's `hog` takes arctangents,
which libraries round differently.

Images are turned so that the image number is the *last* axis. Every step is then one IEEE
operation on whole planes (add, multiply, divide, square root, compare), which is correctly rounded
whatever SIMD lane or remainder loop an image falls into, so neighbours cannot change its bits.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer, as_numbers
from poisonproof.features.exact import ExactRows, exact_product, exact_rows
from poisonproof.partition.canonical import sample_digests


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
        side = isqrt(rows.shape[1])
        shape = self.image_shape or (side, side)
        if self.image_shape is None and side * side != rows.shape[1]:
            raise InvalidRowsError(
                f"Rows of {rows.shape[1]} columns are not square gray images. Pass "
                "image_shape=(height, width) or (height, width, channels)."
            )
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


class ImageCopies(NamedTuple):
    """Images and their copies.

    Attributes
    ----------
    images : ndarray of shape (copies * n, ...)
        All images as they are, then copy after copy of all.
    origin : ndarray of shape (copies * n,)
        Which image each is a copy of.
    groups : ndarray of shape (copies * n,)
        Name of that image, a digest of its pixels: equal images are one contributor.
    """

    images: NDArray[Any]
    origin: NDArray[np.intp]
    groups: NDArray[np.str_]


def image_copies(X: Any, *, reach: int = 4, mirrored: bool = True) -> ImageCopies:
    """Return images with their copies: moved into four corners, and mirrored.

    An image and its copies must fall into one partition, or one inserted image would reach several
    members: fit with ``partitioner="group"`` and `groups`. A contributor is then an image.

    Parameters
    ----------
    X : array of shape (n, height, width) or (n, height, width, channels)
        Images.
    reach : int, default=4
        Pixels by which copies are moved, both down or up and left or right; borders are filled by
        reflection. 0 moves nothing.
    mirrored : bool, default=True
        Whether to mirror images and moved images, too: then there are ten of each, else five.
        Mirrored signs and digits mean something else.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from poisonproof import DPAClassifier
    >>> digits, y = load_digits(return_X_y=True)
    >>> seen = image_copies(digits.reshape(-1, 8, 8), reach=1, mirrored=False)
    >>> clf = DPAClassifier(n_partitions=20, partitioner="group", classes=range(10))
    >>> rows = seen.images.reshape(len(seen.images), -1)
    >>> clf = clf.fit(rows, y[seen.origin], groups=seen.groups)
    >>> float(clf.score(digits, y)) > 0.9
    True
    """
    images = np.asarray(X)
    if images.ndim not in {3, 4}:
        raise InvalidRowsError(
            "Images come as (n, height, width) or (n, height, width, channels), but X has shape "
            f"{images.shape}."
        )
    sides = images.shape[1:3]
    if not isinstance(reach, (int, np.integer)) or not 0 <= reach < min(sides):
        raise InvalidInputError(
            f"reach must be an integer from 0 to {min(sides) - 1}, less than a side of the "
            f"images, but is {reach!r}."
        )
    seen = [images]
    if reach:
        height, width = sides
        beyond = [(0, 0), (reach, reach), (reach, reach), (0, 0)][: images.ndim]
        wide = np.pad(images, beyond, mode="reflect")
        seen += [
            wide[:, top : top + height, left : left + width]
            for top, left in product((0, 2 * reach), repeat=2)
        ]
    if mirrored:
        seen += [one[:, :, ::-1] for one in seen]
    names = np.array([digest.tobytes().hex() for digest in sample_digests(images)])
    origin = np.tile(np.arange(len(images)), len(seen))
    return ImageCopies(np.concatenate(seen), origin, names[origin])


class Deskew(ImageMap):
    """Shear every image so that its horizontal and vertical moments are uncorrelated.

    The slant of a digit is the regression of column on row, weighted by ink. Each image row is
    shifted sideways, with linear interpolation, until that slant is zero and the centre of ink is
    in the middle column. At most one column per row is corrected. An image without ink is left as
    it is.

    Parameters
    ----------
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
        self, *, image_shape: tuple[int, ...] | None = None, n_jobs: int | None = None
    ) -> None:
        self.image_shape = image_shape
        self.n_jobs = n_jobs

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        n, height, width, channels = rows.shape
        planes = np.ascontiguousarray(np.moveaxis(rows, 0, -1), dtype=np.float32)
        slant, centre_row, centre_column = _moments(planes.sum(axis=2))
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


def _moments(ink: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
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
    slant = np.clip(slant, -1.0, 1.0)
    return slant.astype(np.float32), row.astype(np.float32), column.astype(np.float32)


class OrientationHistogram(ImageMap):
    """Compute histograms of oriented gradients (HOG, Dalal and Triggs, 2005).

    The gradient at each pixel is written as a combination of the two nearest of `n_orientations`
    directions, and its two shares are spread over the nearest cells of a grid. No
    angle is ever computed: the shares are cross products. Every cell is normalised together with
    its neighbours, once for each block of `block` x `block` cells it belongs to, then the whole
    row is scaled to length one.

    Parameters
    ----------
    n_orientations : int, default=8
        Directions.
    cell : int, default=4
        Side of a cell, in pixels.
    block : int, default=2
        Side of a block, in cells; 1 leaves cells as they are.
    signed : bool, default=True
        Whether dark-to-light and light-to-dark are different directions.
    root : bool, default=False
        Whether to take square roots before the last scaling, so that Euclidean distance becomes
        Hellinger's.
    image_shape : tuple of int or None, default=None
        (height, width) or (height, width, channels) of flat rows; None takes square gray images.
    n_jobs : int or None, default=None
        Threads. Has no influence on the result.

    Guarantee
    ---------
    The result for an image is a function of that image alone, bit for bit.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    >>> OrientationHistogram().transform(images).shape
    (3, 1152)
    """

    def __init__(
        self,
        *,
        n_orientations: int = 8,
        cell: int = 4,
        block: int = 2,
        signed: bool = True,
        root: bool = False,
        image_shape: tuple[int, ...] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_orientations = n_orientations
        self.cell = cell
        self.block = block
        self.signed = signed
        self.root = root
        self.image_shape = image_shape
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require_integers(n_orientations=3, cell=1, block=1)

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        planes = np.ascontiguousarray(np.moveaxis(rows, 0, -1), dtype=np.float32)
        down, across = _strongest_gradient(planes)
        shares = _direction_shares(down, across, self.n_orientations, self.signed)
        cells = _pool(_pool(shares, 1, self.cell), 2, self.cell)
        blocks = _normalised_blocks(cells, self.block)
        if self.root:
            blocks = np.sqrt(blocks)
        flat = blocks.reshape(-1, blocks.shape[-1])
        length = np.sqrt(np.add.reduce(flat * flat, axis=0))
        flat = flat / np.maximum(length, np.float32(1e-12))
        return np.ascontiguousarray(flat.T)


def _strongest_gradient(planes: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
    """Return central differences (height, width, n), of the channel where they are largest."""
    edged = np.pad(planes, ((1, 1), (1, 1), (0, 0), (0, 0)), mode="edge")
    down = edged[2:, 1:-1] - edged[:-2, 1:-1]
    across = edged[1:-1, 2:] - edged[1:-1, :-2]
    best_down, best_across = down[:, :, 0], across[:, :, 0]
    strength = best_down * best_down + best_across * best_across
    for channel in range(1, planes.shape[2]):
        other = down[:, :, channel] ** 2 + across[:, :, channel] ** 2
        stronger = other > strength
        best_down = np.where(stronger, down[:, :, channel], best_down)
        best_across = np.where(stronger, across[:, :, channel], best_across)
        strength = np.maximum(strength, other)
    return best_down, best_across


def _direction_shares(
    down: NDArray[np.float32], across: NDArray[np.float32], n_orientations: int, signed: bool
) -> NDArray[np.float32]:
    """Write each gradient as a sum of its two nearest directions, (orientations, h, w, n).

    Between neighbours u and v at an angle delta, g = (g x v / sin delta) u + (u x g / sin delta) v.
    So the share of u is the smaller of its two cross products, where that is positive.
    """
    n_directions = n_orientations if signed else 2 * n_orientations
    step = 2 * np.pi / n_directions
    crosses = [
        (across * np.float32(np.sin(step * b)) - down * np.float32(np.cos(step * b)))
        * np.float32(1 / np.sin(step))
        for b in range(n_directions)
    ]
    shares = np.zeros((n_orientations, *down.shape), dtype=np.float32)
    for b in range(n_directions):
        share = np.minimum(crosses[(b + 1) % n_directions], -crosses[b - 1])
        shares[b % n_orientations] += np.maximum(share, np.float32(0), out=share)
    return shares


def _pool(planes: NDArray[np.float32], axis: int, cell: int) -> NDArray[np.float32]:
    """Add up pixels into cells along `axis`, each pixel shared by the two nearest cells."""
    planes = np.moveaxis(planes, axis, 0)
    n_cells = max(planes.shape[0] // cell, 1)
    margin = (planes.shape[0] - n_cells * cell) / 2
    pooled = np.zeros((n_cells, *planes.shape[1:]), dtype=np.float32)
    for pixel in range(planes.shape[0]):
        place = (pixel + 0.5 - margin) / cell - 0.5
        lower = int(np.floor(place))
        for index, weight in ((lower, lower + 1 - place), (lower + 1, place - lower)):
            if 0 <= index < n_cells and weight > 0:
                pooled[index] += planes[pixel] * np.float32(weight)
    return np.moveaxis(pooled, 0, axis)


def _normalised_blocks(cells: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """Scale all blocks to length one; the result has shape (..., n) with one image per column."""
    if block == 1:
        return cells
    lines, columns = cells.shape[1] - block + 1, cells.shape[2] - block + 1
    if min(lines, columns) < 1:
        raise InvalidInputError(
            f"block={block} needs at least {block} x {block} cells, but the images have "
            f"{cells.shape[1]} x {cells.shape[2]}. Use a smaller block or smaller cells."
        )
    corners = [(i, j) for i in range(block) for j in range(block)]
    parts = [cells[:, i : i + lines, j : j + columns] for i, j in corners]
    energy = np.zeros((lines, columns, cells.shape[-1]), dtype=np.float32)
    for part in parts:
        energy += np.add.reduce(part * part, axis=0)
    # The floor is small against any visible edge, and keeps empty blocks at zero.
    scale = np.float32(1) / np.sqrt(energy + np.float32(1e-3))
    return np.stack([part * scale for part in parts])


# Photographs are shrunk by this factor: small images show whole objects, so their patches do not
# look like those of a photograph with all its pixels.
_SHRINK = 4
# What keeps flat patches flat where contrast is evened out, and faint directions faint where
# patches are whitened; both as in Coates and Ng, for pixels of 0 to 255.
_FLAT, _FAINT = 10.0, 0.1
_SIDE = 6  # of a patch, in pixels
_LEAST = np.float32(0.5)


class PatchResponses(ImageMap):
    """Compare each quarter of an image with small patches of photographs (Coates and Ng, 2011).

    Every patch of the image is evened out in contrast, whitened and compared with `n_patches`
    patches that were treated alike. What exceeds one half, in either sign, is averaged over each
    quarter of the image. Patches have 6 x 6 pixels. They and the whitening come from the two
    photographs that scikit-learn ships, so no row has a say in them.

    Parameters
    ----------
    n_patches : int, default=1600
        Patches to compare with; each gives eight columns.
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
        image_shape: tuple[int, ...] | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_patches = n_patches
        self.image_shape = image_shape
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require_integers(n_patches=1)

    def _map_chunk(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        n, height, width, channels = rows.shape
        if channels not in {1, 3}:
            raise InvalidInputError(
                f"PatchResponses takes images of one channel or three, not of {channels}."
            )
        if min(height, width) < _SIDE + 1:
            raise InvalidInputError(
                f"PatchResponses takes images of {_SIDE + 1} x {_SIDE + 1} pixels at least, not of "
                f"{height} x {width}."
            )
        patches, offsets = _dictionary(int(self.n_patches), channels)
        responses = np.empty((n, 8 * self.n_patches), dtype=np.float32)
        for image, row in zip(rows, responses, strict=True):
            evened = _even(_patches_of(image))
            if not np.isfinite(evened).all():
                row[:] = np.nan
                continue
            exact = exact_rows(evened, "single")
            alike = exact_product(exact, patches) * exact.scales.astype(np.float32)[:, np.newaxis]
            alike -= offsets
            row[:] = _averaged(alike.reshape(height - _SIDE + 1, width - _SIDE + 1, -1))
        return responses


def _averaged(field: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean of what exceeds the threshold in each quarter, of both signs."""
    strong = np.maximum(field - _LEAST, 0), np.maximum(-_LEAST - field, 0)
    down, across = ((0, side // 2, side) for side in field.shape[:2])
    return np.concatenate(
        [
            one[top:bottom, left:right].reshape(-1, field.shape[2]).mean(axis=0)
            for one, (top, bottom), (left, right) in product(
                strong, pairwise(down), pairwise(across)
            )
        ]
    )


def _patches_of(image: NDArray[Any]) -> NDArray[np.float64]:
    """Return all patches of (height, width, channels), one per row."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (_SIDE, _SIDE), axis=(0, 1))
    return windows.reshape(-1, image.shape[2] * _SIDE**2).astype(np.float64)


def _even(patches: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return patches of mean 0 and deviation 1, less where there is little to see."""
    centred = patches - patches.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    evened: NDArray[np.float64] = centred / np.sqrt(variance + _FLAT)
    return evened


@lru_cache(maxsize=8)
def _dictionary(n_patches: int, channels: int) -> tuple[ExactRows, NDArray[np.float32]]:
    """Return whitened patches of length one, to compare evened patches with, and their offsets.

    Whitening is folded in: <d, W (x - m)> = <W d, x> - <W d, m>.
    """
    photographs = [_shrunk(photograph, channels) for photograph in load_sample_images().images]
    patches = _even(np.concatenate([_patches_of(one) for one in photographs]))
    mean = patches.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(patches, rowvar=False))
    whiten = (vectors / np.sqrt(values + _FAINT)) @ vectors.T
    stream = np.random.Generator(np.random.Philox(key=0))
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
