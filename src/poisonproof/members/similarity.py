"""Nearness of rows, decided by the two rows alone, on the CPU or on a GPU.

Hand-written because scikit-learn's neighbour searches add in floating point, in an order that
depends on the other rows of a call.

Rows are rounded to short integers, each by itself, so that every inner product is an exact sum (see
`poisonproof.features.exact`). What follows is one correctly rounded operation after the other on
the entries of a tile. So whether two rows are near is a function of these two rows and the
parameters: tiles, threads, the other rows and the device only schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from poisonproof.exceptions import InvalidInputError, needing
from poisonproof.features.exact import ExactRows, exact_rows


def torch_on(device: str | None, dtype: str = "float32") -> Any:
    """Return torch, if it can hold numbers of this type on the device and send them back."""
    with needing("torch", "torch"):
        import torch
    try:
        torch.zeros(1, dtype=getattr(torch, dtype), device=device).cpu()
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InvalidInputError(
            f"torch cannot compute with {dtype} on device={device!r}: {reason}. Use device=None, "
            "which computes the same with NumPy."
        ) from error
    return torch


_TILE, _GPU_TILE = (512, 8192), (2048, 65536)  # queries and known rows compared at once


@dataclass(frozen=True)
class Neighborhood:
    """The relation "near enough" between rows.

    `threshold` is the smallest cosine of rows that are near; a zero row has no neighbours. With a
    `device` torch computes the same.
    """

    threshold: float
    device: str | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.threshold, (int, float, np.integer, np.floating))
        if not number or not 0 < self.threshold <= 1:
            raise InvalidInputError(
                f"threshold is a cosine above 0, at most 1. Got {self.threshold!r}."
            )

    def prepare(self, X: NDArray[Any]) -> ExactRows:
        """Round the rows of `X`, shape (n, d), each by itself."""
        return exact_rows(X, "single")

    def count_by_class(
        self, queries: ExactRows, known: ExactRows, y: NDArray[Any], n_classes: int
    ) -> NDArray[np.int64]:
        """Count, for every query, the near known rows of each class `y`; shape (n, C)."""
        counts = np.zeros((len(queries), n_classes), dtype=np.int64)
        for label in range(n_classes):
            rows = np.flatnonzero(y == label)
            if len(rows):
                counts[:, label] = self._count(queries, known[rows])
        return counts

    def _count(self, queries: ExactRows, known: ExactRows) -> NDArray[np.int64]:
        counts = np.zeros(len(queries), dtype=np.int64)
        left, right = _lengths(queries), _lengths(known)
        left *= left.dtype.type(self.threshold)
        height, width = _TILE if self.device is None else _GPU_TILE
        with _placing(self.device, known.values.dtype.name) as (there, back):
            for above in _blocks(len(known), width):
                turned, terms = there(known.values[above]).T, there(right[above])
                for here in _blocks(len(queries), height):
                    product = there(queries.values[here]) @ turned
                    near = product >= there(left[here])[:, None] * terms
                    counts[here] += back(near.sum(axis=1))
        return counts


def _lengths(rows: ExactRows) -> NDArray[Any]:
    """Return the length of each row, in the dtype of products."""
    squares = rows.square_lengths()
    lengths = np.sqrt(squares)
    # An infinite length is above every product: a row of zeros is near nobody.
    lengths[squares == 0] = np.inf
    return lengths.astype(rows.values.dtype)


def nearest_rows(
    queries: ExactRows, known: ExactRows, n_neighbors: int, device: str | None = None
) -> NDArray[np.int64]:
    """Return the positions of the known rows of largest cosine with every query, nearest first.

    Of equal cosines the smaller position comes first; the cosine with a row of zeros is 0. There
    are `n_neighbors` columns, or as many as known rows. `device` has no influence on the result.
    """
    count = min(n_neighbors, len(known))
    rows = np.empty((len(queries), count), dtype=np.int64)
    with _placing(device, known.values.dtype.name) as (there, back):
        turned, right = there(known.values).T, there(_inverse_lengths(known))
        for here in _blocks(len(queries), 256):
            tile = there(queries.values[here]) @ turned
            tile *= there(_inverse_lengths(queries[here]))[:, None]
            tile *= right
            if device is None:
                rows[here] = _largest(tile, count)
            else:
                order = tile.sort(dim=1, descending=True, stable=True).indices
                rows[here] = back(order[:, :count])
    return rows


def neighbor_graph(found: NDArray[np.int64]) -> sparse.csr_array:
    """Return the symmetric graph of neighbors; a sample that is its own neighbour has no arc."""
    n, width = found.shape
    sources = np.repeat(np.arange(n), width)
    targets = found.ravel()
    arcs = sources != targets
    ones = np.ones(int(arcs.sum()))
    one_way = sparse.csr_array((ones, (sources[arcs], targets[arcs])), shape=(n, n))
    return sparse.csr_array(one_way + one_way.T)


def _largest(tile: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the columns of the `count` largest entries of each row, ties to the left."""
    width = tile.shape[1]
    if count == width:
        return np.argsort(-tile, axis=1, kind="stable")
    edge = np.partition(tile, width - count, axis=1)[:, width - count]
    chosen = np.empty((len(tile), count), dtype=np.int64)
    for row, (line, least) in enumerate(zip(tile, edge, strict=True)):
        candidates = np.flatnonzero(line >= least)
        order = np.argsort(-line[candidates], kind="stable")
        chosen[row] = candidates[order[:count]]
    return chosen


def _inverse_lengths(rows: ExactRows) -> NDArray[Any]:
    squares = rows.square_lengths()
    inverse = np.zeros(len(rows))
    np.divide(1.0, np.sqrt(squares), out=inverse, where=squares > 0)
    return inverse.astype(rows.values.dtype)


def _blocks(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


@contextmanager
def _placing(device: str | None, dtype: str) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """Yield functions that move arrays to a device and back (None: NumPy), float32 unrounded."""
    if device is None:
        yield np.asarray, np.asarray
        return
    torch = torch_on(device, dtype)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # shorter formats would round the sums
    try:
        yield partial(torch.as_tensor, device=device), lambda tensor: tensor.cpu().numpy()
    finally:
        torch.set_float32_matmul_precision(before)
