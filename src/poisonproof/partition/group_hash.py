"""Partitions by contributor instead of by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.base import Partitioner
from poisonproof.partition.blocks import CellBlock, SparseBlock, row_blocks
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.columns import canonical_column
from poisonproof.partition.containers import as_container, n_rows, take_rows
from poisonproof.partition.content_hash import reduce_digests
from poisonproof.partition.readable import readable_rows

__all__ = ["GroupHash"]


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
