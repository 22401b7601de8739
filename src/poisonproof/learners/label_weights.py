"""Kernel ridge as a fixed weighting of labels: integers that no label can change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import GuaranteeError
from poisonproof.features.exact import ExactRows, exact_product, exact_rows
from poisonproof.learners.closed_form import KernelRidgeClassifier
from poisonproof.learners.closed_form.kernels import Kernel, make_kernel
from poisonproof.learners.closed_form.solve import positive_solve

__all__ = [
    "LabelWeights",
    "check_linear",
    "join_members",
    "make_label_weights",
    "split_members",
]

_BITS = 28  # the absolute weights of a test row add up to less than 2^29


@dataclass(frozen=True)
class LabelWeights:
    """One member: how much each of its labels counts for a test row.

    Scores are ``K(x, rows) (K(rows, rows) + alpha I)^-1 Y``, linear in the one-hot labels Y. What
    stands in front of Y is scaled and rounded to integers; the member *is* the vote by them.

    Attributes
    ----------
    rows : ExactRows of length m
        The member's rows.
    inverse : ndarray of shape (m, m)
        Inverse of the ridge system.
    first : ndarray of int, shape (m,)
        For every row the first row of the same sample; equal samples have equal weights.
    kernel : Kernel
        The kernel.
    """

    rows: ExactRows
    inverse: NDArray[np.float64]
    first: NDArray[np.intp]
    kernel: Kernel

    def integers(self, asked: ExactRows) -> NDArray[np.int32]:
        """Return the integer weights of the member's rows for every asked row, shape (n, m).

        Guarantee
        ---------
        A function of samples and parameters; no label enters.
        """
        if not len(self.rows):
            return np.empty((len(asked), 0), dtype=np.int32)
        left, right = (self.kernel.terms(rows, np.float64) for rows in (asked, self.rows))
        kernels = exact_product(asked, self.rows).astype(np.float64)
        self.kernel.bounded(kernels, left, right)
        # The power of two of a test row scales all its weights alike, and is left out.
        weights = np.ldexp(kernels, right.exponents) @ self.inverse
        weights = weights[:, self.first]
        total = np.abs(weights).sum(axis=1, keepdims=True)
        power = np.frexp(total)[1]
        integers: NDArray[np.int32] = np.rint(np.ldexp(weights, _BITS - power)).astype(np.int32)
        return integers


def make_label_weights(estimator: Any, X: NDArray[Any]) -> LabelWeights:
    """Return the member that `estimator` stands for on the samples `X`, shape (m, d).

    Raises
    ------
    GuaranteeError
        If the estimator is not linear in its labels, with weights that labels cannot change.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> member = make_label_weights(KernelRidgeClassifier("linear", alpha=1.0), X)
    >>> member.integers(exact_rows(np.array([[0.0, 3.0]]))).tolist()
    [[201326592, 0]]
    """
    check_linear(estimator)
    rows = exact_rows(X, estimator.precision)
    kernel = make_kernel(**estimator._kernel_settings(X.shape[1]))
    terms = kernel.terms(rows, np.float64)
    gram = exact_product(rows, rows).astype(np.float64)
    kernel.bounded(gram, terms, terms)
    gram = np.ldexp(gram, terms.exponents[:, None] + terms.exponents)
    gram[np.diag_indices(len(gram))] += float(estimator.alpha)
    inverse = positive_solve(gram, np.eye(len(gram))) if len(gram) else gram
    return LabelWeights(rows, inverse, _first_of_equals(rows), kernel)


def join_members(members: Sequence[LabelWeights]) -> dict[str, NDArray[Any]]:
    """Return members as a few arrays, one member after the other."""
    full = [member.rows for member in members if len(member.rows)]
    width = full[0].values.shape[1] if full else 0
    values = [np.empty((0, width), full[0].values.dtype if full else np.float64)]
    return {
        "sizes": np.array([len(member.rows) for member in members], dtype=np.int64),
        "values": np.concatenate([*values, *(rows.values for rows in full)]),
        "exponents": np.concatenate([np.empty(0, np.int32), *(rows.exponents for rows in full)]),
        "inverse": np.concatenate([np.empty(0), *(member.inverse.ravel() for member in members)]),
        "first": np.concatenate(
            [np.empty(0, np.int64), *(member.first.astype(np.int64) for member in members)]
        ),
    }


def split_members(
    estimator: Any, arrays: Mapping[str, NDArray[Any]], count: int
) -> list[LabelWeights]:
    """Return what `join_members` joined, or raise `ValueError` if the arrays do not fit.

    Parameters
    ----------
    estimator : KernelRidgeClassifier
        What the members stand for.
    arrays : mapping of str to ndarray
        The arrays.
    count : int
        Number of members.
    """
    sizes, values, first = arrays["sizes"], arrays["values"], arrays["first"]
    inverse, exponents = arrays["inverse"], arrays["exponents"]
    shapes = (sizes.shape, values.ndim, len(values), len(inverse), inverse.ndim)
    total = int(sizes.sum())
    wanted = ((count,), 2, total, int((sizes * sizes).sum()), 1)
    if shapes != wanted or exponents.shape != (total,) or first.shape != (total,):
        raise ValueError("the arrays of the members do not fit together")
    kernel = make_kernel(**estimator._kernel_settings(values.shape[1]))
    members, row, entry = [], 0, 0
    for size in sizes.tolist():
        own = slice(row, row + size)
        square = inverse[entry : entry + size * size].reshape(size, size)
        places = first[own].astype(np.intp)
        if size and not (places.min() >= 0 and places.max() < size):
            raise ValueError("a member refers to rows that it does not have")
        members.append(LabelWeights(ExactRows(values[own], exponents[own]), square, places, kernel))
        row, entry = row + size, entry + size * size
    return members


def check_linear(estimator: Any) -> None:
    """Raise unless the estimator's scores are linear in the labels, with fixed weights."""
    name = type(estimator).__name__
    if not isinstance(estimator, KernelRidgeClassifier):
        raise GuaranteeError(
            f"Flips can be counted within members that are linear in their labels; {name} is not "
            "known to be. Use KernelRidgeClassifier, or SSDPAClassifier, which counts members."
        )
    if isinstance(estimator.alpha, str):
        raise GuaranteeError(
            f"alpha={estimator.alpha!r} chooses the ridge by the labels, so a flipped label could "
            "change every weight. Use a number."
        )


def _first_of_equals(rows: ExactRows) -> NDArray[np.intp]:
    """Return for every row the position of the first equal row."""
    table = np.column_stack([rows.values, rows.exponents])
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.ravel()], dtype=np.intp)
