"""Kernel ridge: members that compare a test row with every row of their partition.

Kernels are computed entry by entry from exact inner products of integer rows, and rounded to
integers, so that a member's sums are exact as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.exact import ExactRows, Precision, exact_product, exact_rows
from poisonproof.members.closed_form.classifier import ClosedFormClassifier, MemberData
from poisonproof.members.closed_form.scaled_kernel import (
    KERNEL_BITS,
    fine_bits,
    integer_coefficients,
    positive_solve,
)
from poisonproof.members.closed_form.stacked import MemberParts, StackedMembers, Visit
from poisonproof.members.scikit import is_number

KERNELS = ("rbf", "cosine")


@dataclass(frozen=True)
class Kernel:
    """``exp(-gamma |x - y|^2)``, or the cosine, which is zero for a zero row."""

    name: str
    gamma: float

    def __post_init__(self) -> None:
        if self.name not in KERNELS:
            raise InvalidInputError(f"kernel must be one of {KERNELS}, but is {self.name!r}.")
        if not (is_number(self.gamma) and 0 < self.gamma < np.inf):
            raise InvalidInputError(f"gamma must be positive and finite, but is {self.gamma!r}.")

    def terms(
        self, rows: ExactRows, dtype: type[np.floating[Any]] | None = None
    ) -> NDArray[np.floating[Any]]:
        """Return a factor and a constant of each row, (2, n), in the dtype of the products."""
        if self.name == "cosine":
            length = np.sqrt(rows.square_lengths())
            factor = np.where(length > 0, 1 / np.where(length > 0, length, 1), 0)
            constant = np.zeros(len(rows))
        else:
            factor = np.ldexp(np.sqrt(self.gamma), rows.exponents)
            constant = factor * factor * rows.square_lengths()
            if not (constant < 1e30).all():
                raise InvalidRowsError(
                    "A row is too long for the rbf kernel: gamma |x|^2 must stay below 1e30. Scale "
                    "the features, for example with FixedScale, or use a smaller gamma."
                )
        return np.stack([factor, constant]).astype(rows.values.dtype if dtype is None else dtype)

    def apply(self, products: NDArray[Any], left: NDArray[Any], right: NDArray[Any]) -> None:
        """Turn inner products of rows with these `terms` into kernels, in place."""
        factor, constant = left[..., np.newaxis]
        if self.name == "cosine":
            products *= factor
            products *= right[0, ..., np.newaxis, :]
            np.clip(products, -1, 1, out=products)
            return
        products *= 2 * factor
        products *= right[0, ..., np.newaxis, :]
        products -= constant
        products -= right[1, ..., np.newaxis, :]
        np.minimum(products, 0, out=products)
        np.exp(products, out=products)


class KernelMembers(StackedMembers):
    """Kernel machines: one kernel matrix, in tiles, times each member's coefficients."""

    kind: ClassVar[str] = "kernel"

    @classmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows."""
        like = cls._like_exact(settings, coefficients=np.empty((0, settings["n_classes"])))
        return replace(like, single={"exponent": np.zeros((), dtype=np.int32)})

    @cached_property
    def _kernel(self) -> Kernel:
        return Kernel(**self.settings["kernel"])

    @cached_property
    def _terms(self) -> NDArray[np.floating[Any]]:
        return self._kernel.terms(ExactRows(self.rows["values"], self.rows["exponents"]))

    def _coefficients(self, index: int) -> list[NDArray[np.float64]]:
        """Return one member's coefficients (p, m), those in double as upper and lower bits."""
        start, stop = self.offsets[index : index + 2].tolist()
        whole = self.rows["coefficients"][start:stop, self.classes[index]].T
        bits = fine_bits(stop - start, self.settings["precision"])
        if bits == 0:
            return [whole]
        upper = np.ldexp(np.rint(np.ldexp(whole, -bits)), bits)
        return [upper, whole - upper]

    def _unit(self, index: int) -> float:
        bits = KERNEL_BITS[self.settings["precision"]]
        return float(np.ldexp(1.0, int(self.single["exponent"][index]) - bits))

    def _score_chunk(self, queries: ExactRows, visit: Visit) -> None:
        query_terms = self._kernel.terms(queries)
        unit = self.rows["values"].dtype.type(2.0 ** KERNEL_BITS[self.settings["precision"]])
        integers = np.empty((self._tile_rows(), len(queries)))
        for tile, here, products in self._products(queries):
            self._kernel.apply(products, self._terms[:, here], query_terms)
            np.multiply(products, unit, out=products)
            np.rint(products, out=integers[: len(products)])
            scores = np.empty((len(tile.classes), len(queries)))
            row = 0
            for index, count in zip(tile.members.tolist(), tile.counts.tolist(), strict=True):
                low, high = (self.offsets[index : index + 2] - tile.start).tolist()
                upper, *lower = self._coefficients(index)
                found = np.matmul(upper, integers[low:high], out=scores[row : row + count])
                for part in lower:  # both products are exact, and their sum is rounded once
                    found += part @ integers[low:high]
                row += count
            visit(tile, scores)


class KernelRidgeClassifier(ClosedFormClassifier):
    """Ridge regression on the one-hot labels in the feature space of a kernel.

    Scores are ``K(x, rows) (K(rows, rows) + alpha I)^-1 Y``; the largest wins, the smaller class
    on ties. As the members of an ensemble, all partitions share one test-to-train kernel matrix,
    so the votes of k members cost little more than those of one.

    Parameters
    ----------
    kernel : {"rbf", "cosine"}, default="rbf"
        ``exp(-gamma |x - y|^2)``, or the cosine of two rows.
    gamma : float, default=1.0
        Scale of the rbf kernel.
    alpha : float, default=0.1
        Ridge.
    precision : {"double", "single"}, default="double"
        Rows are rounded to 25 bits of their length and multiplied in float64, or to 11 bits and
        multiplied in float32, which is twice as fast. See `poisonproof.features.exact_rows`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels seen in `fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> float(KernelRidgeClassifier(gamma=0.1).fit(X, y).score(X, y)) > 0.97
    True
    """

    _members: ClassVar[type[StackedMembers]] = KernelMembers

    def __init__(
        self,
        kernel: str = "rbf",
        *,
        gamma: float = 1.0,
        alpha: float = 0.1,
        precision: Precision = "double",
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.alpha = alpha
        self.precision = precision

    def _check_parameters(self) -> None:
        self._require_positive("alpha")
        Kernel(self.kernel, self.gamma)

    def _member_settings(self) -> dict[str, Any]:
        return {"kernel": {"name": self.kernel, "gamma": float(self.gamma)}}

    def _fit_one(self, member: MemberData, settings: dict[str, Any]) -> MemberParts:
        kernel, exact = Kernel(**settings["kernel"]), exact_rows(member.X, self.precision)
        # Ridges may be small, so the system is set up in float64 whatever the precision.
        terms = kernel.terms(exact, np.float64)
        gram = exact_product(exact, exact).astype(np.float64)
        kernel.apply(gram, terms, terms)
        # Weighted: solve for the coefficients divided by the root of the weight.
        root = np.sqrt(member.weight)[:, np.newaxis]
        gram *= root
        gram *= root.T
        gram[np.diag_indices(len(gram))] += float(self.alpha)
        dual = root * positive_solve(gram, root * np.eye(len(member.classes))[member.y])
        integers, power = integer_coefficients(dual, self.precision)
        coefficients = np.zeros((len(dual), settings["n_classes"]))
        coefficients[:, member.classes] = integers
        return MemberParts(
            member.classes,
            {
                "values": exact.values,
                "exponents": exact.exponents,
                "coefficients": coefficients,
            },
            {"exponent": power},
        )
