"""Members that compare a test row with every row of their partition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.features.exact import ExactRows
from poisonproof.learners.closed_form.kernels import Kernel, RowTerms, make_kernel
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.readouts import Readout, tile_readouts
from poisonproof.learners.closed_form.stacked import StackedMembers, Visit
from poisonproof.learners.closed_form.tiles import Tile

__all__ = ["KernelMembers", "integer_coefficients"]

# Kernels become integers of 24 or 26 bits. A member's coefficients for one class may then add up
# to 2^29 or 2^27 without any rounding in float64.
_KERNEL_BITS = {"single": 24, "double": 26}
_SUM_BITS = 53


def _column_bits(precision: str) -> int:
    return _SUM_BITS - _KERNEL_BITS[precision]


def _fine_bits(n_rows: int, precision: str) -> int:
    """Return how many bits a second, finer set of coefficients can add; none in single."""
    if precision == "single":
        return 0
    return max(_column_bits(precision) - int(np.ceil(np.log2(max(n_rows, 1)))), 0)


def integer_coefficients(
    coefficients: NDArray[np.float64], exponents: NDArray[np.int32], precision: str
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Round the dual coefficients of members to integers, each member with one power of two.

    Parameters
    ----------
    coefficients : ndarray of shape (g, m, p)
        How much each of m rows' kernels counts for each class, for g members.
    exponents : ndarray of shape (g, m)
        Powers of two by which the rows' kernels will be divided.
    precision : {"single", "double"}
        How many bits to keep.

    Returns
    -------
    integers : ndarray of shape (g, m, p)
        In "single", the absolute values of a column add up to at most 2^29. In "double" they are
        longer, and `KernelMembers` adds up their upper and lower bits apart.
    powers : ndarray of int32 of shape (g,)
        ``integers * 2.0 ** power`` is `coefficients` times the rows' powers of two.
    """
    n_rows = coefficients.shape[1]
    top = exponents.max(axis=1, initial=0)
    scaled = np.ldexp(coefficients, (exponents - top[:, np.newaxis])[..., np.newaxis])
    # Added up row after row, whatever lies beside it in memory.
    columns = np.add.accumulate(np.abs(scaled), axis=1)[:, -1]
    heaviest = columns.max(axis=1, initial=0.0)
    longest = 2.0 ** _column_bits(precision) - n_rows
    powers = np.where(heaviest > 0, np.frexp(heaviest / longest)[1], 0)
    powers -= _fine_bits(n_rows, precision)
    integers = np.rint(np.ldexp(scaled, -powers[:, np.newaxis, np.newaxis])) + 0.0
    return integers, (powers + top).astype(np.int32)


class KernelMembers(StackedMembers):
    """Kernel machines: the kernels of a test row with all rows, times each member's coefficients.

    The kernel matrix is computed once for all members, in tiles, and rounded to integers, so that
    the sums over a member's rows are exact as well.
    """

    kind: ClassVar[str] = "kernel"

    @classmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows."""
        return MemberParts.without_rows(
            settings,
            {"coefficients": np.empty((0, settings["n_classes"]))},
            {"exponent": np.zeros((), dtype=np.int32)},
        )

    @cached_property
    def _kernel(self) -> Kernel:
        return make_kernel(**self.settings["kernel"])

    @cached_property
    def _support(self) -> tuple[ExactRows, RowTerms]:
        support = ExactRows(self.rows["values"], self.rows["exponents"])
        return support, self._kernel.terms(support)

    @cached_property
    def _readouts(self) -> list[list[Readout]]:
        """The coefficients by which the kernels of each tile are multiplied."""
        sizes = np.diff(self.offsets)
        bits = np.repeat(self._lower_bits, sizes)[:, np.newaxis]
        integers = self.rows["coefficients"]
        upper = np.rint(np.ldexp(integers, -bits))
        parts = [upper]
        if bits.any():
            parts.append(integers - np.ldexp(upper, bits))
        return [tile_readouts(tile, parts, self.classes) for tile in self._tiles]

    @cached_property
    def _lower_bits(self) -> NDArray[np.intp]:
        precision = self.settings["precision"]
        sizes = np.diff(self.offsets)
        return np.array([_fine_bits(int(size), precision) for size in sizes], dtype=np.intp)

    def _worth(self, asked: ExactRows) -> NDArray[np.float64]:
        worth: NDArray[np.float64] = np.ldexp(1.0, self._kernel.terms(asked).exponents)
        return worth

    def _unit(self, index: int) -> float:
        bits = _KERNEL_BITS[self.settings["precision"]]
        return float(np.ldexp(1.0, int(self.single["exponent"][index]) - bits))

    def _score_chunk(self, asked: ExactRows, visit: Visit) -> None:
        support, terms = self._support
        asked_terms = self._kernel.terms(asked)
        unit = support.values.dtype.type(2.0 ** _KERNEL_BITS[self.settings["precision"]])
        products = np.empty((self._tile_rows(), len(asked)), dtype=support.values.dtype)
        integers = np.empty(products.shape)
        turned = np.ascontiguousarray(asked.values.T)
        sums = _Sums(self._tiles, len(asked))
        for tile, readouts in zip(self._tiles, self._readouts, strict=True):
            here, size = slice(tile.start, tile.stop), tile.stop - tile.start
            np.matmul(support.values[here], turned, out=products[:size])
            self._kernel.bounded(products[:size], terms[here], asked_terms)
            products[:size] *= unit
            np.rint(products[:size], out=integers[:size])
            sums.add(readouts, integers)
            if len(tile.members):
                bits = np.repeat(self._lower_bits[tile.members], tile.counts)
                visit(tile, sums.joined(bits))


class _Sums:
    """Kernels times coefficients of the members of one tile, upper and lower bits apart.

    Both sums are exact; adding them is the only rounding of a score.
    """

    def __init__(self, tiles: Sequence[Tile], width: int) -> None:
        most = max((tile.n_scores for tile in tiles), default=0)
        self._upper, self._lower = np.zeros((most, width)), np.zeros((most, width))
        self._carried: list[NDArray[np.float64]] = []

    def add(self, readouts: Sequence[Readout], integers: NDArray[np.float64]) -> None:
        for readout in readouts:
            kernels = integers[readout.low : readout.high]
            found = []
            for part, target in zip(readout.parts, (self._upper, self._lower), strict=False):
                here = target[readout.first : readout.last]
                np.matmul(part, kernels, out=here)
                found.append(here)
            if readout.continues:
                for now, before in zip(found, self._carried, strict=True):
                    np.add(now, before, out=now)
            if readout.is_open:
                self._carried = [now.copy() for now in found]

    def joined(self, bits: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return scores, shape (rows, width); `bits` says how many are lower, per row."""
        upper, lower = self._upper[: len(bits)], self._lower[: len(bits)]
        if bits.any():
            upper *= np.ldexp(1.0, bits)[:, np.newaxis]
            upper += lower
        return upper
