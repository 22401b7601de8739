"""Images of different sizes in one flat array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["RaggedImages"]


class RaggedImages(Sequence[NDArray[np.uint8]]):
    """A sequence of n images, each with its own shape, kept in one array (memory-mapped or not).

    Iterating yields views, channels first; nothing is copied. ``list(images)`` is a list of
    arrays, which every partitioner takes: each image carries its size.

    Parameters
    ----------
    values : ndarray of shape (total,)
        All pixels, image after image, each in C order.
    offsets : ndarray of shape (n + 1,)
        Image i is ``values[offsets[i]:offsets[i + 1]]``.
    shapes : ndarray of shape (n, dimensions)
        The shape of each image.

    Examples
    --------
    >>> values = np.arange(10, dtype=np.uint8)
    >>> images = RaggedImages(values, np.array([0, 4, 10]), np.array([[2, 2], [2, 3]]))
    >>> [image.shape for image in images]
    [(2, 2), (2, 3)]
    >>> images.sums()
    array([ 6, 39])
    """

    def __init__(
        self,
        values: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        shapes: NDArray[np.int64],
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.shapes = shapes

    def __len__(self) -> int:
        """Return the number of images, n."""
        return len(self.shapes)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[np.uint8]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[np.uint8] | list[NDArray[np.uint8]]:
        """Return one image, or a list of them."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        return self.values[self.offsets[i] : self.offsets[i + 1]].reshape(self.shapes[i])

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return (self[i] for i in range(len(self)))

    def sums(self) -> NDArray[np.int64]:
        """Return the sum of all pixel values of each image, shape (n,): what the paper hashes."""
        return np.array([image.sum(dtype=np.int64) for image in self], dtype=np.int64)

    @classmethod
    def gather(cls, images: Sequence[NDArray[np.uint8]]) -> RaggedImages:
        """Copy images of one number of dimensions into a new flat array."""
        shapes = np.array([image.shape for image in images], dtype=np.int64)
        sizes = [image.size for image in images]
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        return cls(np.concatenate([image.reshape(-1) for image in images]), offsets, shapes)
