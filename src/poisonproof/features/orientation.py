"""Histograms of oriented gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.images import ImageMap

__all__ = ["OrientationHistogram"]


class OrientationHistogram(ImageMap):
    """Where in an image edges run in which direction (HOG, Dalal and Triggs, 2005).

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
        for name, least in (("n_orientations", 3), ("cell", 1), ("block", 1)):
            if getattr(self, name) < least:
                raise InvalidInputError(
                    f"{name} must be at least {least}, but is {getattr(self, name)!r}."
                )

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
