"""The rows of single partitions, apart from the rest of the training set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import as_container, as_objects, take_rows
from poisonproof.partition.frames import is_frame, is_pandas
from poisonproof.partition.order import row_keys
from poisonproof.partition.partitioned import PartitionedData

__all__ = ["Shard", "gathered", "shard_of", "stacked"]


@dataclass(frozen=True)
class Shard:
    """The rows of one partition, in canonical order.

    Attributes
    ----------
    X : array, sparse matrix, frame or list of m samples
        In the values and the kind of container they came with.
    y : ndarray of shape (m,)
        Class indices.
    sample_weight : ndarray of shape (m,) or None
        Weights.
    digests : ndarray of uint8 of shape (m, 32)
        Digests of the samples.

    Examples
    --------
    >>> shard = Shard.build(np.array([[2], [1]]), np.array([0, 1]))
    >>> len(shard)
    2
    """

    X: Any
    y: NDArray[np.int64]
    sample_weight: NDArray[np.float64] | None
    digests: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def build(
        cls,
        X: Any,
        y: NDArray[np.int64],
        sample_weight: NDArray[np.float64] | None = None,
        digests: NDArray[np.uint8] | None = None,
    ) -> Shard:
        """Put rows into canonical order; their digests are computed if they are not given."""
        X = as_container(X)
        digests = sample_digests(X) if digests is None else digests
        here = np.zeros(len(y), dtype=np.int64)
        data = PartitionedData.build(X, y, here, digests, 1, sample_weight=sample_weight)
        return cls(X, y, sample_weight, digests).take(data.order)

    def take(self, rows: NDArray[np.intp]) -> Shard:
        """Return some of the rows, in the order given."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return Shard(take_rows(self.X, rows), self.y[rows], weight, self.digests[rows])

    def joined(self, other: Shard) -> Shard:
        """Return the rows of both, in canonical order."""
        weights = [self.sample_weight, other.sample_weight]
        return Shard.build(
            stacked([self.X, other.X]),
            np.concatenate([self.y, other.y]),
            None if weights[0] is None or weights[1] is None else np.concatenate(weights),  # type: ignore[arg-type]
            np.concatenate([self.digests, other.digests]),
        )

    def keys(self) -> NDArray[np.void]:
        """Return what identifies each row."""
        return row_keys(self.digests, self.y, self.sample_weight)

    def digest(self) -> str:
        """Return the digest of the partition, as `PartitionedData.digest` does."""
        return self.alone().digest(0)

    def alone(self) -> PartitionedData:
        """Return a training set that is this partition."""
        order, offsets = np.arange(len(self)), np.array([0, len(self)])
        return PartitionedData(self.X, self.y, order, offsets, self.sample_weight, self.digests)

    def is_intact(self) -> bool:
        """Whether the samples still have the digests they had."""
        return np.array_equal(sample_digests(self.X), self.digests)


def shard_of(data: PartitionedData, index: int) -> Shard:
    """Return the rows of one partition of a training set."""
    rows = data.rows(index)
    weight = None if data.sample_weight is None else data.sample_weight[rows]
    return Shard(take_rows(as_container(data.X), rows), data.y[rows], weight, data.digests[rows])


def gathered(shards: Mapping[int, Shard], n_partitions: int) -> PartitionedData:
    """Return a training set of these partitions alone; all others are empty.

    Parameters
    ----------
    shards : mapping of int to Shard
        At least one.
    n_partitions : int
        The number of partitions, k.
    """
    parts = [shards[index] for index in sorted(shards)]
    sizes = np.zeros(n_partitions, dtype=np.intp)
    sizes[sorted(shards)] = [len(part) for part in parts]
    weights = [part.sample_weight for part in parts]
    return PartitionedData(
        stacked([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.arange(sizes.sum()),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp),
        None if weights[0] is None else np.concatenate([w for w in weights if w is not None]),
        np.concatenate([part.digests for part in parts]),
    )


def stacked(parts: Sequence[Any]) -> Any:
    """Stack samples that come in the same kind of container; every cell keeps its value.

    >>> stacked([np.array([[1]]), np.array([[0.5]])]).astype(float).tolist()
    [[1.0], [0.5]]
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(
        is_frame(part) != is_frame(first) or sp.issparse(part) != sp.issparse(first)
        for part in parts
    ):
        raise InvalidRowsError(
            "rows of tables, sparse matrices and arrays cannot be held together; give all rows of "
            "a model in one kind of container."
        )
    if sp.issparse(first):
        return _joined_sparse(parts)
    if any(map(is_pandas, parts)):
        import pandas as pd

        # By position, as rows are read: pandas would look for columns of the same name.
        names = getattr(first, "columns", None)
        frames = [_as_pandas(part) for part in parts]
        frames = frames if names is None else [one.set_axis(names, axis=1) for one in frames]
        return pd.concat(_alike(frames), ignore_index=True)
    if is_frame(first):
        whole = first
        for part in parts[1:]:
            _refuse_other_types(first, part)
            whole = whole.vstack(part)
        return whole
    if any(isinstance(part, list) for part in parts):
        return [row for part in parts for row in part]
    return _joined_arrays([np.asarray(part) for part in parts])


def _joined_arrays(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Join arrays; where NumPy's common type would round or convert cells, as objects."""
    types = {array.dtype for array in arrays}
    if len(types) > 1 and not _joins_exactly(types):
        arrays = [as_objects(array) for array in arrays]
    return np.concatenate(arrays)


def _joins_exactly(types: set[np.dtype[Any]]) -> bool:
    """Whether the common type of numbers holds all of their values."""
    if not all(kind.kind in "biuf" for kind in types):
        return False
    common = np.result_type(*types)
    wide = any(kind.kind in "iu" and kind.itemsize == 8 for kind in types)
    return not (wide and common == np.float64)


def _joined_sparse(parts: Sequence[Any]) -> Any:
    whole = sp.vstack(list(parts), format="csr")
    for part in parts:
        back = part.data.astype(whole.dtype).astype(part.dtype)
        if part.dtype.kind in "iu" and (back != part.data).any():
            raise InvalidRowsError(
                f"numbers of type {part.dtype} cannot be held exactly in one sparse matrix of "
                f"{whole.dtype} with the other rows. Give all rows in one type."
            )
    return whole


def _alike(frames: list[Any]) -> list[Any]:
    """Make objects of columns that come in several types: pandas would convert or refuse them."""
    if len(frames[0].shape) == 1:
        same = len({frame.dtype for frame in frames}) == 1
        return frames if same else [frame.astype(object) for frame in frames]
    kinds = zip(*(frame.dtypes for frame in frames), strict=True)
    mixed = [place for place, kind in enumerate(kinds) if len(set(kind)) > 1]
    if not mixed:
        return frames
    return [frame.astype({frame.columns[place]: object for place in mixed}) for frame in frames]


def _refuse_other_types(first: Any, other: Any) -> None:
    """Name the first column of a Polars table that other rows hold as another type."""
    for name in getattr(first, "columns", ()):
        held, given = first[name].dtype, other[name].dtype
        if held != given:
            raise InvalidRowsError(
                f"Column {name!r} holds {given} here and {held} in the rows before. Cast it: "
                f"frame.cast({{{name!r}: pl.{held}}})."
            )


def _as_pandas(part: Any) -> Any:
    """Return a table of Polars as one of pandas that holds the same cells."""
    import pandas as pd

    if is_pandas(part):
        return part
    if len(part.shape) == 1:
        return pd.Series(part.to_list(), dtype=object)
    columns = {j: pd.Series(part[:, j].to_list(), dtype=object) for j in range(part.shape[1])}
    return pd.DataFrame(columns).set_axis(list(part.columns), axis=1)
