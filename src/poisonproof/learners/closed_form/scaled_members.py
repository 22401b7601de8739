"""Members that see every row in the units of their own partition, and compare it with their rows.

No two members see the same numbers, so there is no matrix to share. A test row is scaled anew for
each member, to integers so short that its products with the member's rows are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError
from poisonproof.learners.closed_form.column_scales import UNIT, ColumnScales
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.stacked import StackedMembers, Visit, padded
from poisonproof.learners.closed_form.tiles import Tile, whole_tiles

__all__ = ["KERNEL_EXPONENT", "ScaledKernelMembers"]

KERNEL_EXPONENT = 4
"""Kernels lie within 2^4: at most 1 + 3 * 3, and what rounding adds."""

_KERNEL_BITS = 24
_SCORES = 256
_ROWS = 256
# Cells of test rows that are scaled at once: more do not fit into the cache, fewer cost more calls.
_CELLS = 2**19
# Test rows that are scaled at once, at least: a member's rows are read anew for each such chunk.
_LEAST_ROWS = 256


@dataclass(frozen=True)
class _Asked:
    """Test rows turned into columns (d, width), and where cells are missing, if any are."""

    cells: NDArray[np.float64]
    short: NDArray[np.float32]
    gone: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return int(self.cells.shape[1])


class ScaledKernelMembers(StackedMembers):
    """Kernel machines with the kernel ``exp(-gamma |u - v|^2) + <u, v>`` of scaled rows."""

    kind: ClassVar[str] = "scaled_kernel"

    @classmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows."""
        columns = settings["n_columns"]
        scales = ColumnScales(
            np.zeros(columns),
            np.zeros(columns),
            *(np.zeros(columns, dtype=np.int16) for _ in range(3)),
        )
        return MemberParts(
            np.empty(0, dtype=np.int16),
            {
                "values": np.empty((0, columns), dtype=np.int16),
                "coefficients": np.empty((0, settings["n_classes"])),
            },
            scales.arrays()
            | {
                "exponent": np.zeros((), dtype=np.int32),
                "bias": np.zeros(settings["n_classes"]),
            },
        )

    def _tile_rows(self) -> int:
        return max(_SCORES, int(self.settings["n_classes"]))

    def _widest(self) -> int:
        return max(_CELLS // max(int(self.settings["n_columns"]), 1), _LEAST_ROWS)

    @cached_property
    def _tiles(self) -> list[Tile]:
        return whole_tiles(self.offsets, self.classes, self._tile_rows())

    def _chunk(self, samples: NDArray[Any], start: int, stop: int) -> _Asked:
        cells = np.zeros((samples.shape[1], padded(stop - start)))
        cells[:, : stop - start] = samples[start:stop].T
        if np.isinf(cells).any():
            raise InvalidRowsError("X contains infinity; every value must be finite or missing.")
        gone = np.isnan(cells)
        with np.errstate(over="ignore"):
            short = cells.astype(np.float32)
        return _Asked(cells, short, gone if gone.any() else None)

    def _score_chunk(self, asked: _Asked, visit: Visit) -> None:
        room = _Room(self.settings["n_columns"], len(asked))
        scores = np.empty((max((tile.n_scores for tile in self._tiles), default=0), len(asked)))
        for tile in self._tiles:
            row = 0
            for index in tile.members.tolist():
                count = len(self.classes[index])
                self._score_member(index, asked, room, scores[row : row + count])
                row += count
            visit(tile, scores[:row])

    def _score_member(
        self, index: int, asked: _Asked, room: _Room, out: NDArray[np.float64]
    ) -> None:
        """Write one member's scores for its classes, shape (p, width)."""
        known = self.classes[index]
        scales = ColumnScales.from_arrays({name: a[index] for name, a in self.single.items()})
        seen = _scaled(asked, scales, room)
        lengths = np.einsum("ij,ij->j", seen, seen)
        per_unit = np.float32(1 / (UNIT * UNIT))
        gamma = np.float32(self.settings["gamma"]) * per_unit
        out[:] = 0.0
        for rows in self._row_blocks(index):
            support = scales.support(self.rows["values"][rows])
            inner, kernel, integers = room.kernels(len(support))
            np.matmul(support, seen, out=inner)
            np.multiply(inner, np.float32(2), out=kernel)
            kernel -= np.einsum("ij,ij->i", support, support)[:, np.newaxis]
            kernel -= lengths
            kernel *= gamma
            np.minimum(kernel, np.float32(0), out=kernel)
            np.exp(kernel, out=kernel)
            inner *= per_unit
            kernel += inner
            kernel *= np.float32(2.0 ** (_KERNEL_BITS - KERNEL_EXPONENT))
            np.rint(kernel, out=integers)
            coefficients = self.rows["coefficients"][rows, known]
            out += coefficients.T @ integers
        out *= np.ldexp(1.0, int(self.single["exponent"][index]) - _KERNEL_BITS)
        out += self.single["bias"][index][known, np.newaxis]

    def _row_blocks(self, index: int) -> Iterator[slice]:
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        for low in range(start, stop, _ROWS):
            yield slice(low, min(low + _ROWS, stop))


class _Room:
    """Arrays that are used for one member after the other, for fresh memory is slow."""

    def __init__(self, n_columns: int, width: int) -> None:
        self.seen = np.empty((2 * n_columns, width), dtype=np.float32)
        self._inner = np.empty((_ROWS, width), dtype=np.float32)
        self._kernel = np.empty((_ROWS, width), dtype=np.float32)
        self._integers = np.empty((_ROWS, width))

    def kernels(self, n_rows: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        return self._inner[:n_rows], self._kernel[:n_rows], self._integers[:n_rows]


def _scaled(asked: _Asked, scales: ColumnScales, room: _Room) -> NDArray[np.float32]:
    """Return test rows as one member sees them: columns of integers, entry by entry."""
    coarse, fine, told = scales.columns()
    used = np.concatenate([coarse, fine])
    seen = room.seen[: len(used) + len(told)]
    numbers = seen[: len(coarse)]
    centre = scales.centre[coarse, np.newaxis].astype(np.float32)
    if len(coarse) == len(asked.short):  # all columns: no need to gather them first
        np.subtract(asked.short, centre, out=numbers)
    else:
        np.take(asked.short, coarse, axis=0, out=numbers, mode="clip")
        numbers -= centre
    numbers *= scales.factor[coarse, np.newaxis].astype(np.float32)
    if len(fine):
        cells = asked.cells[fine] - scales.centre[fine, np.newaxis]
        seen[len(coarse) : len(used)] = cells * scales.factor[fine, np.newaxis]
    numbers = seen[: len(used)]
    bound = scales.bound[used, np.newaxis].astype(np.float32)
    np.minimum(numbers, bound, out=numbers)
    np.maximum(numbers, -bound, out=numbers)
    np.rint(numbers, out=numbers)
    if asked.gone is not None:
        numbers[asked.gone[used]] = 0
    if len(told):
        flags = seen[len(used) :]
        flags[:] = scales.present[told, np.newaxis]
        if asked.gone is not None:
            absent = np.broadcast_to(scales.absent[told, np.newaxis], flags.shape)
            np.copyto(flags, absent, where=asked.gone[told], casting="same_kind")
    return seen
