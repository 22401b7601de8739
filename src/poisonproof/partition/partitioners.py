"""What a partitioner is, and what it certifies."""

from __future__ import annotations

import dataclasses
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.blocks import (
    CanonicalColumn,
    CellBlock,
    DenseBlock,
    SparseBlock,
    canonical_column,
    inexact,
    plain_csr,
    plain_numbers,
    row_blocks,
)
from poisonproof.partition.canonical import CANONICAL_FORM, readable_rows, sample_digests
from poisonproof.partition.containers import (
    Column,
    as_container,
    frame_columns,
    frame_width,
    is_frame,
    is_pandas,
    is_sparse,
    n_rows,
    row_array,
    take_rows,
)
from poisonproof.partition.sort_keys import (
    ColumnKeys,
    DenseKeys,
    ImageKeys,
    KeySource,
    SparseKeys,
    distinct_ranks,
)

LARGEST_K = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Partitioner(ABC):
    """A rule that puts every sample into one of k partitions.

    Parameters
    ----------
    n_partitions : int, optional
        The number of partitions, k >= 1. Left out only where an estimator fills it in.

    Attributes
    ----------
    name : str
        What `make_partitioner` and saved models call this rule.
    certifies : mapping from str to int
        For each certified threat, how many partitions one unit of the attack can touch.
    unit : {"row", "group", "sample"}
        What the attacker's budget counts.
    rowwise : bool
        Whether a row's partition depends on that row alone.
    hint : mapping from str to str
        For each threat that is not certified, what to use instead.
    """

    n_partitions: int | None = None

    name: ClassVar[str]
    certifies: ClassVar[Mapping[str, int]]
    unit: ClassVar[str]
    rowwise: ClassVar[bool]
    hint: ClassVar[Mapping[str, str]]

    def __post_init__(self) -> None:
        if self.n_partitions is None:
            return
        k = self.n_partitions
        try:
            number = operator.index(k)
        except TypeError:
            number = 0
        if isinstance(k, (bool, np.bool_)) or not 1 <= number <= LARGEST_K:
            raise InvalidInputError(
                f"n_partitions must be an integer from 1 to {LARGEST_K}, but it is {k!r}."
            )
        object.__setattr__(self, "n_partitions", number)

    @property
    def k(self) -> int:
        """The number of partitions; raises if it was left out."""
        if self.n_partitions is None:
            raise InvalidInputError(
                f"{type(self).__name__} does not know how many partitions to make. "
                "Set n_partitions."
            )
        return self.n_partitions

    @abstractmethod
    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each sample.

        Parameters
        ----------
        X : array, sparse matrix, frame, series or sequence of n samples
            The samples.
        groups : array or sequence of n identities, optional
            Who contributed each row. Read by `GroupHash` alone.

        Returns
        -------
        ndarray of int64 of shape (n,)
            Numbers in [0, k).
        """

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which samples have a partition, shape (n,); `assign` raises for the others.

        Whether a sample has one depends on that sample (and its group) alone.
        """
        return np.ones(n_rows(X), dtype=np.bool_)

    def specification(self) -> dict[str, Any]:
        """Return everything that decides the partitions, as JSON."""
        return {"name": self.name, "canonical_form": CANONICAL_FORM} | dataclasses.asdict(self)

    @classmethod
    def from_specification(cls, specification: Mapping[str, Any]) -> Self:
        """Return the partitioner that `specification` describes.

        Raises
        ------
        InvalidInputError
            If it describes another partitioner, or another version of the canonical form.
        """
        options = dict(specification)
        name, form = options.pop("name", None), options.pop("canonical_form", None)
        if name != cls.name or form != CANONICAL_FORM:
            raise InvalidInputError(
                f"This version makes {cls.name!r} partitions of canonical form {CANONICAL_FORM}, "
                f"but {name!r} partitions of canonical form {form!r} were asked."
            )
        try:
            return cls(**options)
        except TypeError:
            known = sorted(field.name for field in dataclasses.fields(cls))
            raise InvalidInputError(
                f"A {cls.name!r} partitioner has the options {known}, but {sorted(options)} came."
            ) from None


# The default partitioner: a cryptographic digest of the sample.


@dataclass(frozen=True, kw_only=True)
class ContentHash(Partitioner):
    """Put each sample where the digest of its values says; the label is not hashed.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    The partition of a row depends on its values alone. A row inserted, deleted or relabelled
    touches one partition, and a replaced row at most two.

    Examples
    --------
    >>> X = np.arange(12).reshape(4, 3)
    >>> partitioner = ContentHash(n_partitions=50)
    >>> np.array_equal(partitioner.assign(X), partitioner.assign(X.astype(np.float32)))
    True
    """

    name: ClassVar[str] = "content"
    certifies: ClassVar[Mapping[str, int]] = MappingProxyType(
        {"insert_delete": 1, "label_flip": 1, "replace": 2}
    )
    unit: ClassVar[str] = "row"
    rowwise: ClassVar[bool] = True
    hint: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each sample; `groups` are not read."""
        return self.assign_digests(sample_digests(X))

    def assign_digests(self, digests: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the partition of each sample from its digest, shape (n, 32)."""
        return reduce_digests(digests, self.k)


def reduce_digests(digests: NDArray[np.uint8], k: int) -> NDArray[np.int64]:
    """Return the first 128 bits of each digest, read as a little-endian number, modulo `k`.

    No partition is more likely than another by more than k / 2^128.

    Examples
    --------
    >>> reduce_digests(np.full((1, 32), 255, dtype=np.uint8), 1000), (2**128 - 1) % 1000
    (array([455]), 455)
    """
    words = np.ascontiguousarray(digests[:, :16]).view("<u8")
    low, high = words[:, 0] % k, words[:, 1] % k
    # With k < 2^31 no term reaches 2^62, so the exact remainder fits uint64.
    remainder = (high * np.uint64(2**64 % k) + low) % np.uint64(k)
    return np.asarray(remainder, dtype=np.int64)


# Partitions by contributor instead of by row.


@dataclass(frozen=True, kw_only=True)
class GroupHash(Partitioner):
    """Put all rows of a contributor (user, device, domain) into one partition.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    The radius counts malicious contributors, whatever each does to however many rows.

    Assumes
    -------
    Identities cannot be forged: nobody can contribute under another name, or under many.

    Examples
    --------
    >>> X = np.zeros((4, 2))
    >>> first, *_, last = GroupHash(n_partitions=50).assign(X, groups=["ada", "bo", "cy", "ada"])
    >>> bool(first == last)
    True
    """

    name: ClassVar[str] = "group"
    certifies: ClassVar[Mapping[str, int]] = MappingProxyType(
        {"replace": 1, "insert_delete": 1, "label_flip": 1}
    )
    unit: ClassVar[str] = "group"
    rowwise: ClassVar[bool] = True
    hint: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each row from its group; the samples are not read.

        Identities are compared in canonical form: ``1``, ``1.0`` and ``numpy.int64(1)`` are one
        group, ``"1"`` is another. A tuple is an identity of several parts.

        Raises
        ------
        InvalidInputError
            If `groups` is left out, has another length than `X`, or a group is missing.
        """
        if groups is None:
            raise InvalidInputError("GroupHash needs groups: one identity per row of X.")
        if n_rows(groups) != n_rows(X):
            raise InvalidInputError(
                f"groups has {n_rows(groups)} entries, but X has {n_rows(X)} rows. "
                "Give one identity per row."
            )
        try:
            missing = _rows_without_group(groups)
            digests = sample_digests(groups)
        except InvalidRowsError as error:
            raise InvalidInputError(f"groups cannot be read as identities: {error}") from None
        if len(missing):
            raise InvalidInputError(
                f"Row {missing[0]} has no group ({len(missing)} rows in all). Give every row an "
                "identity: rows without one could come from any number of contributors."
            )
        return reduce_digests(digests, self.k)

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which rows have a group that can be read; without any, `assign` says so."""
        if groups is None or n_rows(groups) != n_rows(X):
            return np.ones(n_rows(X), dtype=np.bool_)
        try:
            placeable = readable_rows(groups)
            kept = np.flatnonzero(placeable)
            placeable[kept[_rows_without_group(take_rows(as_container(groups), kept))]] = False
        except InvalidRowsError as error:
            raise InvalidInputError(f"groups cannot be read as identities: {error}") from None
        return placeable


def _rows_without_group(groups: Any) -> NDArray[np.intp]:
    found = []
    for block in row_blocks(groups):
        if isinstance(block, SparseBlock):
            raise InvalidRowsError("a sparse matrix holds no identities")
        if isinstance(block, CellBlock):
            columns = [canonical_column(c, block.rows, j) for j, c in enumerate(block.columns)]
            missing = [np.isnan(column.floats) & ~column.odd for column in columns]
            # An identity of no parts is none.
            found.append(block.rows[np.any(missing, axis=0)] if missing else block.rows)
        else:
            found.append(block.rows[np.isnan(block.values).any(axis=1)])
    return np.sort(np.concatenate(found)) if found else np.empty(0, dtype=np.intp)


# The hash of the published experiments: the sum of all pixels, modulo k.


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


# The partitions of SS-DPA: samples in sorted order, dealt out one by one.

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


# Partitioners by name.

PARTITIONERS: Mapping[str, type[Partitioner]] = {
    cls.name: cls for cls in (ContentHash, PixelSum, SortedIndex, GroupHash)
}


def make_partitioner(
    partitioner: str | Partitioner, n_partitions: int | None = None
) -> Partitioner:
    """Return a partitioner with its number of partitions.

    Parameters
    ----------
    partitioner : {"content", "pixel_sum", "sorted", "group"} or Partitioner
        The rule. An instance must leave its number of partitions open or agree with `n_partitions`.
    n_partitions : int, optional
        The number of partitions, k; left out, that of the instance.

    Raises
    ------
    InvalidInputError
        If the name is unknown, or the two numbers of partitions differ.

    Examples
    --------
    >>> make_partitioner("content", 50)
    ContentHash(n_partitions=50)
    """
    if isinstance(partitioner, str) and partitioner in PARTITIONERS:
        partitioner = PARTITIONERS[partitioner]()
    if not isinstance(partitioner, Partitioner):
        raise InvalidInputError(
            f"partitioner must be one of {', '.join(map(repr, PARTITIONERS))} or a Partitioner, "
            f"but it is {partitioner!r}."
        )
    if n_partitions is None:
        n_partitions = partitioner.k
    if partitioner.n_partitions not in {None, n_partitions}:
        raise InvalidInputError(
            f"n_partitions is {n_partitions}, but the partitioner makes "
            f"{partitioner.n_partitions} partitions. Give the number once, or twice the same."
        )
    return dataclasses.replace(partitioner, n_partitions=n_partitions)


def partitioner_from_specification(specification: Mapping[str, Any]) -> Partitioner:
    """Return the partitioner that a saved specification describes.

    Examples
    --------
    >>> partitioner_from_specification(SortedIndex(n_partitions=7).specification())
    SortedIndex(n_partitions=7, channels='first')
    """
    name = str(specification.get("name"))
    if name not in PARTITIONERS:
        known = ", ".join(map(repr, PARTITIONERS))
        raise InvalidInputError(f"A saved partitioner is one of {known}, but {name!r} came.")
    return PARTITIONERS[name].from_specification(specification)
