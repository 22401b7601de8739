"""The partitions of SS-DPA: samples in sorted order, dealt out one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.base import Partitioner
from poisonproof.partition.blocks import plain_csr, plain_numbers
from poisonproof.partition.columns import canonical_column, inexact
from poisonproof.partition.containers import as_container, is_sparse, n_rows
from poisonproof.partition.frames import Column, frame_columns, frame_width, is_frame, is_pandas
from poisonproof.partition.sequences import row_array
from poisonproof.partition.sort_keys import (
    ColumnKeys,
    DenseKeys,
    ImageKeys,
    KeySource,
    SparseKeys,
    distinct_ranks,
)

__all__ = ["SortedIndex"]

_USE_CONTENT_HASH = (
    "Use ContentHash: its partitions do not move when rows are inserted, deleted or replaced."
)


@dataclass(frozen=True, kw_only=True)
class SortedIndex(Partitioner):
    """Sort the distinct samples and put number j of that order into partition j modulo k.

    The order is that of `numpy.lexsort` over the flattened, channel-first pixels: the *last* pixel
    is compared first. All rows of a repeated sample share a partition (appendix G of the paper),
    so the partitions are balanced over distinct samples. Images of different sizes, given as a list
    of arrays, are compared as if padded with black to a common size.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.
    channels : {"first", "last"}, default="first"
        Where the channels of an image are. ``"last"`` is for arrays (n, height, width, channels)
        and lists of (height, width, channels); others are flattened as they are.

    Guarantee
    ---------
    The partition depends on the values of the samples alone, never on a label, so that a sample
    whose labels are flipped touches one partition.

    Assumes
    -------
    The attacker changes labels only. One inserted sample can move all others.

    Examples
    --------
    >>> SortedIndex(n_partitions=2).assign(np.array([[9, 1], [0, 3], [5, 2], [9, 1]]))
    array([0, 0, 1, 0])
    """

    channels: Literal["first", "last"] = "first"

    name: ClassVar[str] = "sorted"
    certifies: ClassVar[Mapping[str, int]] = MappingProxyType({"label_flip": 1})
    unit: ClassVar[str] = "sample"
    rowwise: ClassVar[bool] = False
    hint: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"insert_delete": _USE_CONTENT_HASH, "replace": _USE_CONTENT_HASH}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.channels not in {"first", "last"}:
            raise InvalidInputError(
                f"channels must be 'first' or 'last', but it is {self.channels!r}."
            )

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each sample; `groups` are not read."""
        X = as_container(X)
        n = n_rows(X)
        if n == 0:
            return np.empty(0, dtype=np.int64)
        return distinct_ranks(_key_source(X, self.channels == "last"), n) % self.k


def _key_source(X: Any, channels_last: bool) -> KeySource:
    if isinstance(X, list):
        return _sequence_keys(X, channels_last)
    if channels_last and len(X.shape) != 4:
        raise InvalidInputError(
            "channels='last' is for arrays (n, height, width, channels), but X has "
            f"{len(X.shape)} dimensions."
        )
    if is_sparse(X):
        return SparseKeys(plain_csr(X))
    if is_frame(X):
        return _frame_keys(X)
    return _array_keys(X, channels_last)


def _array_keys(X: NDArray[Any], channels_last: bool) -> KeySource:
    values = X.reshape(len(X), int(np.prod(X.shape[1:])))
    if values.dtype.kind not in "biuf":
        return _table_keys(values)
    if values.dtype.itemsize > 8:
        values = plain_numbers(values, np.arange(len(X)))
    if not channels_last:
        return DenseKeys(values)
    channel_first = np.arange(values.shape[1]).reshape(X.shape[1:]).transpose(2, 0, 1)
    return DenseKeys(values, channel_first.ravel())


def _table_keys(values: NDArray[Any]) -> KeySource:
    rows = np.arange(len(values))
    return ColumnKeys(
        lambda j: canonical_column(Column(values[:, j]), rows, j), width=values.shape[1]
    )


def _frame_keys(X: Any) -> KeySource:
    rows = np.arange(n_rows(X))
    width = frame_width(X)

    def series(j: int) -> Any:
        if width is None:
            return X
        return X.iloc[:, j] if is_pandas(X) else X.to_series(j)

    return ColumnKeys(
        lambda j: canonical_column(frame_columns(series(j))[0], rows, j),
        width=1 if width is None else width,
    )


def _sequence_keys(X: list[Any], channels_last: bool) -> KeySource:
    arrays = [row_array(sample, row) for row, sample in enumerate(X)]
    kinds = {(array.dtype, array.shape) for array in arrays}
    if len(kinds) == 1:
        values = np.stack(arrays)
        return _key_source(values, channels_last) if values.ndim > 1 else _table_keys(values)
    dimensions = sorted({array.ndim for array in arrays})
    if len(dimensions) > 1:
        raise InvalidRowsError(
            f"SortedIndex compares samples of one kind, but rows of {dimensions} dimensions came."
        )
    if dimensions == [1] and len({array.size for array in arrays}) == 1:
        return _table_keys(np.stack([np.fromiter(array, dtype=object) for array in arrays]))
    common = np.result_type(*{dtype for dtype, _ in kinds})
    if common.kind not in "biuf" or any(_rounds(array, common) for array in arrays):
        raise InvalidRowsError(
            "SortedIndex pads samples of different sizes with black, so they must be arrays of "
            "numbers of one dtype."
        )
    if channels_last:
        arrays = [_channel_first(array, row) for row, array in enumerate(arrays)]
    return ImageKeys(arrays)


def _rounds(array: NDArray[Any], common: np.dtype[Any]) -> bool:
    return array.dtype != common and bool(inexact(array).any())


def _channel_first(image: NDArray[Any], row: int) -> NDArray[Any]:
    if image.ndim != 3:
        raise InvalidInputError(
            "channels='last' is for images (height, width, channels), but row "
            f"{row} has {image.ndim} dimensions."
        )
    return image.transpose(2, 0, 1)
