"""The hash of the published experiments: the sum of all pixels, modulo k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.base import Partitioner
from poisonproof.partition.blocks import CellBlock, DenseBlock, SparseBlock, row_blocks
from poisonproof.partition.columns import CanonicalColumn, canonical_column
from poisonproof.partition.containers import as_container, n_rows

__all__ = ["PixelSum"]


@dataclass(frozen=True, kw_only=True)
class PixelSum(Partitioner):
    """Put each image where the sum of its integer pixel values, modulo k, says.

    This is the hash of the paper (its h). Sums are exact in every dtype. Images of different
    sizes come as a list of arrays.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    That of `ContentHash`. Nothing stops an attacker from choosing the partition of a row, and the
    certificate does not need that; but `ContentHash` spreads ordinary data more evenly.

    Examples
    --------
    >>> PixelSum(n_partitions=10).assign(np.array([[250, 5], [1, 1]], dtype=np.uint8))
    array([5, 2])
    """

    name: ClassVar[str] = "pixel_sum"
    certifies: ClassVar[Mapping[str, int]] = MappingProxyType(
        {"insert_delete": 1, "label_flip": 1, "replace": 2}
    )
    unit: ClassVar[str] = "row"
    rowwise: ClassVar[bool] = True
    hint: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each image; `groups` are not read.

        Raises
        ------
        InvalidRowsError
            If a pixel is negative, broken or missing: the published hash is not defined there.
        """
        X = as_container(X)
        result = np.empty(n_rows(X), dtype=np.int64)
        for block in row_blocks(X):
            if isinstance(block, SparseBlock):
                result[block.rows] = _sparse(block, self.k)
            elif isinstance(block, CellBlock):
                result[block.rows] = _cells(block, self.k)
            else:
                result[block.rows] = _dense(block, self.k)
        return result

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which images hold whole numbers from 0 on, and nothing else."""
        X = as_container(X)
        result = np.ones(n_rows(X), dtype=np.bool_)
        for block in row_blocks(X):
            if isinstance(block, SparseBlock):
                bad = np.flatnonzero(~_is_pixel(block.matrix.data))
                owner = np.searchsorted(block.matrix.indptr, bad, side="right") - 1
                result[block.rows[owner]] = False
            elif isinstance(block, CellBlock):
                for j, column in enumerate(block.columns):
                    cells = canonical_column(column, block.rows, j)
                    result[block.rows] &= _holds_pixels(cells)
            else:
                result[block.rows] = _is_pixel(block.values).all(axis=1)
        return result


def _refuse(row: int, column: int, value: object) -> InvalidRowsError:
    return InvalidRowsError(
        f"Row {row}, column {column}: PixelSum adds integer pixels, but {value!r} came. "
        "Pass the original pixels (0, 1, 2, ...), or use ContentHash, which takes any values."
    )


def _remainders(pixels: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return each pixel modulo k, exactly; sums of these cannot overflow."""
    if pixels.dtype.kind == "f":
        return (pixels % k).astype(np.int64)
    if pixels.dtype == np.uint64:
        return (pixels % np.uint64(k)).astype(np.int64)
    return pixels.astype(np.int64) % k


def _is_pixel(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind in "bu":
        return np.ones(values.shape, dtype=bool)
    if values.dtype.kind == "i":
        return np.asarray(values >= 0)
    return np.asarray((values >= 0) & (np.trunc(values) == values) & np.isfinite(values))


def _holds_pixels(column: CanonicalColumn) -> NDArray[np.bool_]:
    good = _is_pixel(np.where(column.odd, 0, column.floats))
    for i in np.flatnonzero(column.odd):
        cell = column.cell(i)
        good[i] = isinstance(cell, int) and cell >= 0
    return good


def _dense(block: DenseBlock, k: int) -> NDArray[np.int64]:
    values = block.values
    if values.dtype.itemsize == 1 and values.dtype.kind in "bu":
        return np.asarray(values.sum(axis=1, dtype=np.int64) % k)
    good = _is_pixel(values)
    if not good.all():
        row, column = np.argwhere(~good)[0]
        raise _refuse(block.rows[row], column, values[row, column].item())
    return np.asarray(_remainders(values, k).sum(axis=1) % k)


def _sparse(block: SparseBlock, k: int) -> NDArray[np.int64]:
    matrix = block.matrix
    good = _is_pixel(matrix.data)
    if not good.all():
        first = int(good.argmin())
        row = int(np.searchsorted(matrix.indptr, first, side="right")) - 1
        raise _refuse(block.rows[row], matrix.indices[first], matrix.data[first].item())
    sums = np.concatenate([[0], np.cumsum(_remainders(matrix.data, k))])
    return np.asarray((sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]]) % k)


def _cells(block: CellBlock, k: int) -> NDArray[np.int64]:
    total = np.zeros(len(block.rows), dtype=np.int64)
    for j, column in enumerate(block.columns):
        total += _column(canonical_column(column, block.rows, j), block.rows, j, k)
    return total % k


def _column(
    column: CanonicalColumn, rows: NDArray[np.intp], position: int, k: int
) -> NDArray[np.int64]:
    pixels = np.where(column.odd, 0, column.floats)
    good = _is_pixel(pixels)
    result = _remainders(np.where(good, pixels, 0), k)
    for i in np.flatnonzero(column.odd | ~good):
        cell = column.cell(i)
        if not isinstance(cell, int) or cell < 0:
            raise _refuse(rows[i], position, cell)
        result[i] = cell % k
    return result
