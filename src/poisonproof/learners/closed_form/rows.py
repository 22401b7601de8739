"""Training rows before they are fitted: checked, put in order and cut into blocks, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.partitioned import PartitionedData

__all__ = ["MemberRows", "blocks", "canonical_order", "n_features", "problems"]

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
_BLOCK_ROWS = 4096
_BLOCK_CELLS = 2**22


@dataclass(frozen=True)
class MemberRows:
    """The training rows of one member, in canonical order.

    Attributes
    ----------
    rows : array or object of m rows
        What the learner prepared.
    y : ndarray of shape (m,)
        Class indices.
    weight : ndarray of shape (m,)
        Weights, all positive.
    present : ndarray of shape (p,)
        The classes among `y`, ascending.
    """

    rows: Any
    y: NDArray[np.int64]
    weight: NDArray[np.float64]
    present: NDArray[np.intp]

    @property
    def classes(self) -> NDArray[np.int16]:
        """The classes this member can vote for, shape (p,)."""
        return self.present.astype(np.int16)

    @property
    def positions(self) -> NDArray[np.intp]:
        """The place of each row's class in `classes`, shape (m,)."""
        return self.present.searchsorted(self.y)


def problems(
    X: NDArray[np.float64],
    weights: NDArray[np.float64],
    owner: NDArray[np.intp],
    *,
    allow_missing: bool = False,
) -> dict[int, Exception]:
    """Return why members cannot be fitted whose rows or weights are no numbers."""
    found: dict[int, Exception] = {}
    # Sums and products of weights far outside this range are rounded to zero or overflow.
    good = (weights == 0) | ((weights >= LEAST_WEIGHT) & (weights <= LARGEST_WEIGHT))
    for member in np.unique(owner[~good]).tolist():
        found[member] = InvalidInputError(
            f"sample_weight must be 0 or lie between {LEAST_WEIGHT:g} and {LARGEST_WEIGHT:g}, but "
            f"is {weights[~good & (owner == member)][0]:g} in one row. Multiply all weights by a "
            "fixed number"
        )
    bad = np.isinf(X) if allow_missing else ~np.isfinite(X)
    what = "infinity" if allow_missing else "NaN or infinity"
    for member in np.unique(owner[bad.any(axis=1)]).tolist():
        found[member] = InvalidRowsError(f"the partition holds {what}")
    return found


def canonical_order(
    X: NDArray[np.float64],
    y: NDArray[Any],
    weights: NDArray[np.float64],
    owner: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Return the rows member after member, in an order that depends on their values only.

    Rows of a member that tie are equal in every bit, so their order cannot matter.
    """
    record = np.concatenate(
        [X, y.astype(np.float64)[:, np.newaxis], weights[:, np.newaxis]], axis=1
    )
    as_bytes = record.view(np.dtype((np.void, record.shape[1] * record.itemsize)))
    by_value = np.argsort(as_bytes[:, 0], kind="stable")
    return by_value[np.argsort(owner[by_value], kind="stable")]


def n_features(X: Any) -> int:
    """Return how many numbers a sample has, whatever its shape."""
    return int(np.prod(np.shape(X)[1:]))


def blocks(data: PartitionedData, which: Sequence[int]) -> Iterator[list[int]]:
    """Group partitions so that a few thousand rows, fewer of wide ones, are gathered at once."""
    block: list[int] = []
    rows = 0
    enough = min(_BLOCK_ROWS, _BLOCK_CELLS // max(1, n_features(data.X)))
    sizes = data.sizes
    for index in which:
        block.append(int(index))
        rows += int(sizes[index])
        if rows >= enough:
            yield block
            block, rows = [], 0
    if block:
        yield block
