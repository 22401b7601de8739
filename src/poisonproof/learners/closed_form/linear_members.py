"""Members that score a test row with one weight vector per class."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.features.exact import ExactRows, exact_rows
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.solve import OVERFLOW
from poisonproof.learners.closed_form.stacked import StackedMembers, Visit

__all__ = ["LinearMembers", "linear_parts"]


def linear_parts(
    classes: NDArray[np.int16],
    weights: NDArray[np.float64],
    bias: NDArray[np.float64],
    settings: dict[str, Any],
) -> MemberParts:
    """Return a linear member: `weights` (p, columns) and `bias` (p,) of its classes."""
    if not (np.isfinite(weights).all() and np.isfinite(bias).all()):
        raise FloatingPointError(OVERFLOW)
    rows = exact_rows(weights, settings["precision"])
    return MemberParts(
        classes,
        {"values": rows.values, "exponents": rows.exponents, "bias": bias + 0.0},
    )


class LinearMembers(StackedMembers):
    """Linear classifiers: one weight vector and one constant per member and class."""

    kind: ClassVar[str] = "linear"

    @classmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows."""
        return MemberParts.without_rows(settings, {"bias": np.empty(0)})

    @cached_property
    def _weights(self) -> ExactRows:
        return ExactRows(self.rows["values"], self.rows["exponents"])

    def _score_chunk(self, asked: ExactRows, visit: Visit) -> None:
        weights = self._weights
        scales, bias = weights.scales, self.rows["bias"]
        asked_scales = asked.scales
        products = np.empty((self._tile_rows(), len(asked)), dtype=weights.values.dtype)
        scores = np.empty(products.shape)
        turned = np.ascontiguousarray(asked.values.T)
        for tile in self._tiles:
            here, size = slice(tile.start, tile.stop), tile.stop - tile.start
            np.matmul(weights.values[here], turned, out=products[:size])
            np.multiply(products[:size], scales[here, np.newaxis], out=scores[:size])
            scores[:size] *= asked_scales
            scores[:size] += bias[here, np.newaxis]
            visit(tile, scores[:size])

    def _tile_rows(self) -> int:
        # A member has at most one row per class and must lie within one tile.
        return max(256, int(self.settings["n_classes"]))
