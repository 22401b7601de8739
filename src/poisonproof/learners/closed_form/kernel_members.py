"""Members that compare a test row with every row of their partition."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.features.exact import ExactRows
from poisonproof.learners.closed_form.kernels import Kernel, RowTerms, make_kernel
from poisonproof.learners.closed_form.parts import MemberParts
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
) -> tuple[NDArray[np.float64], np.int32]:
    """Round one member's dual coefficients to integers with a common power of two.

    Parameters
    ----------
    coefficients : ndarray of shape (m, p)
        How much each row's kernel counts for each class.
    exponents : ndarray of shape (m,)
        Powers of two by which the rows' kernels will be divided.
    precision : {"single", "double"}
        How many bits to keep.

    Returns
    -------
    integers : ndarray of shape (m, p)
        In "single", the absolute values of a column add up to at most 2^29. In "double" they are
        longer, and `KernelMembers` adds up their upper and lower bits apart.
    exponent : int32
        ``integers * 2.0 ** exponent`` is `coefficients` times the rows' powers of two.
    """
    top = int(exponents.max(initial=0))
    scaled = np.ldexp(coefficients, (exponents - top)[:, np.newaxis])
    if not np.isfinite(scaled).all():
        raise FloatingPointError("the coefficients are not finite")
    heaviest = np.abs(scaled).sum(axis=0).max(initial=0.0)
    longest = 2.0 ** _column_bits(precision) - len(scaled)
    power = int(np.frexp(heaviest / longest)[1]) if heaviest else 0
    power -= _fine_bits(len(scaled), precision)
    integers = np.rint(np.ldexp(scaled, -power)) + 0.0
    return integers, np.int32(power + top)


class KernelMembers(StackedMembers):
    """Kernel machines: the kernels of a test row with all rows, times each member's coefficients.

    The kernel matrix is computed once for all members, in tiles, and rounded to integers, so that
    the sums over a member's rows are exact as well.
    """

    kind: ClassVar[str] = "kernel"

    @classmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows."""
        dtype = np.float32 if settings["precision"] == "single" else np.float64
        return MemberParts(
            np.empty(0, dtype=np.int16),
            {
                "values": np.empty((0, settings["n_columns"]), dtype=dtype),
                "exponents": np.empty(0, dtype=np.int32),
                "coefficients": np.empty((0, settings["n_classes"])),
            },
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
    def _readouts(self) -> list[tuple[NDArray[np.float64], ...]]:
        """Coefficients (p_i, m_i) of the classes each member knows: upper and lower bits."""
        readouts: list[tuple[NDArray[np.float64], ...]] = []
        for index, classes in enumerate(self.classes):
            here = slice(self.offsets[index], self.offsets[index + 1])
            integers = np.ascontiguousarray(self.rows["coefficients"][here, classes].T)
            bits = int(self._lower_bits[index])
            upper = np.rint(np.ldexp(integers, -bits))
            lower = integers - np.ldexp(upper, bits)
            readouts.append((upper, lower) if bits else (upper,))
        return readouts

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
        sums = _Sums(self._readouts, len(asked))
        for tile in self._tiles:
            here, size = slice(tile.start, tile.stop), tile.stop - tile.start
            np.matmul(support.values[here], turned, out=products[:size])
            self._kernel.bounded(products[:size], terms[here], asked_terms)
            products[:size] *= unit
            np.rint(products[:size], out=integers[:size])
            sums.add(tile, integers, self.offsets)
            if len(tile.members):
                bits = np.repeat(self._lower_bits[tile.members], tile.counts)
                visit(tile, sums.joined(bits))


class _Sums:
    """Kernels times coefficients of the members of one tile, upper and lower bits apart.

    Both sums are exact; adding them is the only rounding of a score.
    """

    def __init__(self, readouts: list[tuple[NDArray[np.float64], ...]], width: int) -> None:
        self._readouts = readouts
        most = max((len(parts[0]) for parts in readouts), default=0)
        rows = max(most, 256)
        self._upper, self._lower = np.zeros((rows, width)), np.zeros((rows, width))
        self._carried: list[NDArray[np.float64]] = []

    def add(self, tile: Tile, integers: NDArray[np.float64], offsets: NDArray[np.intp]) -> None:
        row = 0
        for piece in tile.pieces:
            begin = int(offsets[piece.member])
            kernels = integers[piece.low - tile.start : piece.high - tile.start]
            targets = (self._upper, self._lower)
            parts = self._readouts[piece.member]
            count = len(parts[0])
            for part, target in zip(parts, targets, strict=False):
                cut = part[:, piece.low - begin : piece.high - begin]
                np.matmul(cut, kernels, out=target[row : row + count])
            found = [target[row : row + count] for target in targets[: len(parts)]]
            if not piece.is_first:
                for now, before in zip(found, self._carried, strict=True):
                    np.add(now, before, out=now)
            if piece.is_last:
                row += count
            else:
                self._carried = [now.copy() for now in found]
        self._filled = row

    def joined(self, bits: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return scores, shape (rows, width); `bits` says how many are lower, per row."""
        upper, lower = self._upper[: self._filled], self._lower[: self._filled]
        if bits.any():
            upper *= np.ldexp(1.0, bits)[:, np.newaxis]
            upper += lower
        return upper
