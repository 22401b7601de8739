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

__all__ = ["KernelMembers", "integer_coefficients"]

# Kernels become integers of 24 or 26 bits; a member's coefficients for one class then may add up
# to 2^53 / 2^26 without any rounding in float64.
_KERNEL_UNIT = {"single": 2.0**24, "double": 2.0**26}
_LONGEST_COLUMN = 2.0**26


def integer_coefficients(
    coefficients: NDArray[np.float64], exponents: NDArray[np.int32]
) -> tuple[NDArray[np.float64], np.int32]:
    """Round one member's dual coefficients to integers with a common power of two.

    Parameters
    ----------
    coefficients : ndarray of shape (m, p)
        How much each row's kernel counts for each class.
    exponents : ndarray of shape (m,)
        Powers of two by which the rows' kernels will be divided.

    Returns
    -------
    integers : ndarray of shape (m, p)
        Rounded so that the absolute values of a column add up to at most 2^26.
    exponent : int32
        ``integers * 2.0 ** exponent`` is `coefficients` times the rows' powers of two.
    """
    top = int(exponents.max(initial=0))
    scaled = np.ldexp(coefficients, (exponents - top)[:, np.newaxis])
    if not np.isfinite(scaled).all():
        raise FloatingPointError("the coefficients are not finite")
    heaviest = np.abs(scaled).sum(axis=0).max(initial=0.0)
    power = int(np.frexp(heaviest / (_LONGEST_COLUMN - len(scaled)))[1]) if heaviest else 0
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
    def _readouts(self) -> list[NDArray[np.float64]]:
        """Coefficients of the classes each member knows, (p_i, m_i)."""
        return [
            np.ascontiguousarray(self.rows["coefficients"][low:high, classes].T)
            for low, high, classes in zip(
                self.offsets[:-1], self.offsets[1:], self.classes, strict=True
            )
        ]

    def _worth(self, asked: ExactRows) -> NDArray[np.float64]:
        worth: NDArray[np.float64] = np.ldexp(1.0, self._kernel.terms(asked).exponents)
        return worth

    def _unit(self, index: int) -> float:
        unit = np.ldexp(1.0, int(self.single["exponent"][index]))
        return float(unit / _KERNEL_UNIT[self.settings["precision"]])

    def _score_chunk(self, asked: ExactRows, visit: Visit) -> None:
        support, terms = self._support
        asked_terms = self._kernel.terms(asked)
        unit = support.values.dtype.type(_KERNEL_UNIT[self.settings["precision"]])
        products = np.empty((self._tile_rows(), len(asked)), dtype=support.values.dtype)
        integers = np.empty(products.shape)
        turned = asked.values.T
        unfinished: NDArray[np.float64] | None = None
        for start, stop, inside in self._tiles():
            tile, whole = products[: stop - start], integers[: stop - start]
            np.matmul(support.values[start:stop], turned, out=tile)
            self._kernel.bounded(tile, terms[start:stop], asked_terms)
            tile *= unit
            np.rint(tile, out=whole)
            for index, low, high in inside:
                first = int(self.offsets[index])
                scores = (
                    self._readouts[index][:, low - first : high - first]
                    @ (whole[low - start : high - start])
                )
                if low > first and unfinished is not None:
                    scores += unfinished
                if high < self.offsets[index + 1]:
                    unfinished = scores
                else:
                    visit(index, scores)
