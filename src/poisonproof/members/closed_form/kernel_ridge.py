"""Kernel ridge: members that compare a test row with every row of their partition.

Kernels are computed entry by entry from exact inner products of integer rows, and rounded to
integers, so that a member's sums are exact as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features.exact import ExactRows, Precision, exact_product, exact_rows
from poisonproof.members.closed_form.classifier import (
    MAX_BYTES,
    ClosedFormClassifier,
    MemberData,
    best_alpha,
    check_alpha,
)
from poisonproof.members.closed_form.scaled_kernel import (
    KERNEL_BITS,
    fine_bits,
    integer_coefficients,
    positive_solve,
)
from poisonproof.members.closed_form.stacked import MemberParts, Piece, StackedMembers, Tile, Visit
from poisonproof.members.scikit import is_count, is_number

KERNELS = ("linear", "rbf", "polynomial", "cosine")


@dataclass(frozen=True)
class RowTerms:
    """What a kernel needs of n rows, (n,) or (g, n), beside the inner products.

    ``2.0 ** exponents`` is at least the square root of the kernel of a row with itself, so kernels
    divided by both rows' powers lie in [-1, 1].
    """

    factor: NDArray[Any]
    constant: NDArray[Any]
    exponents: NDArray[np.int32]

    def __getitem__(self, rows: Any) -> RowTerms:
        return RowTerms(self.factor[rows], self.constant[rows], self.exponents[rows])


@dataclass(frozen=True)
class Kernel:
    """A positive semi-definite function of two rows.

    The rbf kernel ``exp(-gamma |x - y|^2)``, the polynomial ``(gamma <x, y> + coef0) ** degree``
    with the linear one, or the cosine, which is zero for a zero row.
    """

    name: str
    gamma: float
    coef0: float
    degree: int

    def terms(self, rows: ExactRows, dtype: type[np.floating[Any]] | None = None) -> RowTerms:
        """Return what `bounded` needs of each row, in the dtype of the products."""
        constant, exponents = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int32)
        if self.name == "cosine":
            length = np.sqrt(rows.square_lengths())
            factor = np.where(length > 0, 1 / np.where(length > 0, length, 1), 0)
        elif self.name == "rbf":
            factor = np.ldexp(np.sqrt(self.gamma), rows.exponents)
            constant = factor * factor * rows.square_lengths()
            if not (constant < 1e30).all():
                raise InvalidRowsError(
                    "A row is too long for the rbf kernel: gamma |x|^2 must stay below 1e30. Scale "
                    "the features, for example with FixedScale, or use a smaller gamma."
                )
        else:
            length = np.sqrt(rows.square_lengths()) * np.sqrt(self.gamma)
            root = np.sqrt(self.coef0)
            # Powers of two stay exponents until the end: a row may be 1e-200 or 1e200 long.
            mantissa, power = np.frexp(length)
            power = np.where(mantissa > 0, power + rows.exponents, -(2**20))
            if self.coef0 > 0:
                # The sum of two squares, each below 4^power, is below 4^(power + 1).
                power = np.maximum(power, np.frexp(root)[1]) + 1
            power = np.where(power < -(2**19), 0, power)
            factor = np.ldexp(np.sqrt(self.gamma), rows.exponents - power)
            constant = np.ldexp(root, -power)
            exponents = (self.degree * power).astype(np.int32)
        kind = rows.values.dtype if dtype is None else dtype
        return RowTerms(factor.astype(kind), constant.astype(kind), exponents)

    def bounded(self, products: NDArray[Any], left: RowTerms, right: RowTerms) -> None:
        """Turn inner products into kernels divided by both rows' powers of two, in place."""
        if self.name == "rbf":
            products *= 2 * left.factor[..., np.newaxis]
            products *= right.factor[..., np.newaxis, :]
            products -= left.constant[..., np.newaxis]
            products -= right.constant[..., np.newaxis, :]
            np.minimum(products, 0, out=products)
            np.exp(products, out=products)
            return
        products *= left.factor[..., np.newaxis]
        products *= right.factor[..., np.newaxis, :]
        if self.coef0 > 0:
            products += left.constant[..., np.newaxis] * right.constant[..., np.newaxis, :]
        if self.degree > 1:
            base = products.copy()
            for _ in range(self.degree - 1):
                products *= base
        np.clip(products, -1, 1, out=products)


@cache
def make_kernel(name: str, gamma: float, coef0: float, degree: int) -> Kernel:
    """Return a kernel by name, after checking its parameters."""
    if name not in KERNELS:
        raise InvalidInputError(f"kernel must be one of {KERNELS}, but is {name!r}.")
    if not (is_number(gamma) and gamma > 0 and np.isfinite(gamma)):
        raise InvalidInputError(f"gamma must be positive and finite, but is {gamma!r}.")
    if not (is_number(coef0) and coef0 >= 0 and np.isfinite(coef0)):
        raise InvalidInputError(f"coef0 must be zero or positive and finite, but is {coef0!r}.")
    if not (is_count(degree) and degree <= 10):
        raise InvalidInputError(f"degree must be an integer from 1 to 10, but is {degree!r}.")
    if name in {"linear", "cosine"}:
        return Kernel(name, 1.0, 0.0, 1)
    return Kernel(name, float(gamma), float(coef0), int(degree))


_SHARED_ROWS = 32  # members share a matrix until they have so many rows


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
        return make_kernel(**self.settings["kernel"])

    @cached_property
    def _terms(self) -> RowTerms:
        return self._kernel.terms(ExactRows(self.rows["values"], self.rows["exponents"]))

    @cached_property
    def _readouts(self) -> list[list[_Readout]]:
        """The coefficients by which the kernels of each tile are multiplied."""
        bits = np.repeat(self._lower_bits, np.diff(self.offsets))[:, np.newaxis]
        integers = self.rows["coefficients"]
        upper = np.rint(np.ldexp(integers, -bits))
        parts = [upper]
        if bits.any():
            parts.append(integers - np.ldexp(upper, bits))
        return [_tile_readouts(tile, parts, self.classes) for tile in self._tiles]

    @cached_property
    def _lower_bits(self) -> NDArray[np.intp]:
        precision = self.settings["precision"]
        sizes = np.diff(self.offsets)
        return np.array([fine_bits(int(size), precision) for size in sizes], dtype=np.intp)

    def _worth(self, queries: ExactRows) -> NDArray[np.float64]:
        worth: NDArray[np.float64] = np.ldexp(1.0, self._kernel.terms(queries).exponents)
        return worth

    def _unit(self, index: int) -> float:
        bits = KERNEL_BITS[self.settings["precision"]]
        return float(np.ldexp(1.0, int(self.single["exponent"][index]) - bits))

    def _score_chunk(self, queries: ExactRows, visit: Visit) -> None:
        query_terms = self._kernel.terms(queries)
        unit = self.rows["values"].dtype.type(2.0 ** KERNEL_BITS[self.settings["precision"]])
        integers = np.empty((self._tile_rows(), len(queries)))
        sums = _Sums(self._tiles, len(queries))
        scored = zip(self._products(queries), self._readouts, strict=True)
        for (tile, here, products), readouts in scored:
            self._kernel.bounded(products, self._terms[here], query_terms)
            np.multiply(products, unit, out=products)
            np.rint(products, out=integers[: len(products)])
            sums.add(readouts, integers)
            if len(tile.members):
                bits = np.repeat(self._lower_bits[tile.members], tile.counts)
                visit(tile, sums.joined(bits))


@dataclass(frozen=True)
class _Readout:
    """How rows ``low:high`` of a tile's kernels add to rows ``first:last`` of its scores.

    Small members that lie side by side share one block-diagonal matrix: a product for each would be
    mostly overhead, and the sums are exact, so the zeros between the blocks change no bit. `parts`
    are upper and lower bits of the coefficients; `continues` and `is_open` say whether the member
    has rows in the tile before, and in the next.
    """

    low: int
    high: int
    first: int
    last: int
    parts: tuple[NDArray[np.float64], ...]
    continues: bool
    is_open: bool


def _tile_readouts(
    tile: Tile, parts: Sequence[NDArray[np.float64]], classes: Sequence[NDArray[np.int16]]
) -> list[_Readout]:
    """Return the readouts of a tile; `parts` are upper and lower bits of all coefficients."""
    readouts = []
    first = 0
    for pieces in _grouped(tile.pieces):
        counts = [len(classes[piece.member]) for piece in pieces]
        low, high, last = pieces[0].low, pieces[-1].high, first + sum(counts)
        blocks = tuple(np.zeros((last - first, high - low)) for _ in parts)
        row = 0
        for piece, count in zip(pieces, counts, strict=True):
            known = classes[piece.member]
            for part, block in zip(parts, blocks, strict=True):
                columns = slice(piece.low - low, piece.high - low)
                block[row : row + count, columns] = part[piece.low : piece.high, known].T
            row += count
        is_open = not pieces[-1].is_last
        span = (low - tile.start, high - tile.start, first, last)
        readouts.append(_Readout(*span, blocks, not pieces[0].is_first, is_open))
        first = first if is_open else last
    return readouts


def _grouped(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Group whole small members; one that is cut by the tile's edge stays alone."""
    group: list[Piece] = []
    for piece in pieces:
        whole = piece.is_first and piece.is_last
        if group and (not whole or piece.high - group[0].low > _SHARED_ROWS):
            yield group
            group = []
        group.append(piece)
        if not whole:
            yield group
            group = []
    if group:
        yield group


class _Sums:
    """Exact sums of a tile's kernels times coefficients, upper and lower bits apart."""

    def __init__(self, tiles: Sequence[Tile], width: int) -> None:
        most = max((tile.n_scores for tile in tiles), default=0)
        self._upper, self._lower = np.zeros((most, width)), np.zeros((most, width))
        self._carried: list[NDArray[np.float64]] = []

    def add(self, readouts: Sequence[_Readout], integers: NDArray[np.float64]) -> None:
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


class KernelRidgeClassifier(ClosedFormClassifier):
    """Ridge regression on the one-hot labels in the feature space of a kernel.

    Scores are ``K(x, rows) (K(rows, rows) + alpha I)^-1 Y``; the largest wins, the smaller class
    on ties. As the members of an ensemble, all partitions share one test-to-train kernel matrix,
    so the votes of k members cost little more than those of one.

    Parameters
    ----------
    kernel : {"rbf", "linear", "polynomial", "cosine"}, default="rbf"
        ``exp(-gamma |x - y|^2)``, ``<x, y>``, ``(gamma <x, y> + coef0)^degree`` or the cosine.
    gamma : float or None, default=1.0
        Scale of the rbf and polynomial kernels; None is one over the number of features.
    coef0 : float, default=1.0
        Constant of the polynomial kernel.
    degree : int, default=3
        Degree of the polynomial kernel.
    alpha : float or "loo", default=0.1
        Ridge. With "loo" every member takes the one of `alphas` that has the smallest
        leave-one-out error on its own partition.
    alphas : sequence of float, default=(0.01, 0.1, 1.0, 10.0)
        Candidates for ``alpha="loo"``.
    precision : {"double", "single"}, default="double"
        Rows are rounded to 25 bits of their length and multiplied in float64, or to 11 bits and
        multiplied in float32, which is twice as fast. See `poisonproof.features.exact_rows`.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

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
        gamma: float | None = 1.0,
        coef0: float = 1.0,
        degree: int = 3,
        alpha: float | Literal["loo"] = 0.1,
        alphas: Sequence[float] = (0.01, 0.1, 1.0, 10.0),
        precision: Precision = "double",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.alpha = alpha
        self.alphas = alphas
        self.precision = precision
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        check_alpha(self.alpha, self.alphas)
        make_kernel(**self._kernel_settings(1))

    def _kernel_settings(self, n_features: int) -> dict[str, Any]:
        gamma = 1.0 / max(n_features, 1) if self.gamma is None else self.gamma
        return {
            "name": self.kernel,
            "gamma": gamma,
            "coef0": self.coef0,
            "degree": self.degree,
        }

    def _member_settings(self, n_features: int) -> dict[str, Any]:
        return {"kernel": self._kernel_settings(n_features)}

    def _fit_each(
        self, members: Sequence[MemberData], settings: dict[str, Any]
    ) -> list[MemberParts | Exception]:
        """Fit members together that have equally many rows and classes."""
        alike: dict[tuple[int, int], list[int]] = {}
        for place, one in enumerate(members):
            alike.setdefault((len(one.y), len(one.classes)), []).append(place)
        fitted: dict[int, MemberParts | Exception] = {}
        for places in alike.values():
            together = self._fit_alike([members[place] for place in places], settings)
            fitted.update(zip(places, together, strict=True))
        return [fitted[place] for place in range(len(members))]

    def _fit_alike(
        self, members: Sequence[MemberData], settings: dict[str, Any]
    ) -> list[MemberParts | Exception]:
        """Fit many small members with few calls; each operation works on one member or entry."""
        kernel, shape = make_kernel(**settings["kernel"]), (len(members), -1)
        try:
            exact = exact_rows(np.concatenate([one.X for one in members]), self.precision)
            # Ridges may be small, so the system is set up in float64 whatever the precision.
            terms = kernel.terms(exact, np.float64)
        except InvalidRowsError as error:
            if len(members) == 1:
                return [error]
            return [self._fit_alike([one], settings)[0] for one in members]
        values = exact.values.reshape(*shape, exact.values.shape[1])
        exact = ExactRows(values, exact.exponents.reshape(shape))
        terms = RowTerms(*(getattr(terms, f.name).reshape(shape) for f in fields(terms)))
        root = np.sqrt(np.stack([one.weight for one in members]))[..., np.newaxis]
        positions = np.stack([one.y for one in members])[..., np.newaxis]
        gram = exact_product(exact, exact).astype(np.float64)
        kernel.bounded(gram, terms, terms)
        exponents = terms.exponents
        if exponents.any():
            np.ldexp(gram, exponents[..., np.newaxis] + exponents[:, np.newaxis], out=gram)
        # Weighted: solve for the coefficients divided by the root of the weight.
        gram *= root
        gram *= root.swapaxes(1, 2)
        targets = root * (positions == np.arange(len(members[0].classes)))
        dual = np.zeros(targets.shape)
        errors: dict[int, Exception] = {}
        for index in range(len(members)):
            try:
                dual[index] = self._solve(gram[index], targets[index])
            except (np.linalg.LinAlgError, FloatingPointError) as error:
                errors[index] = error  # no system, or an infinite one: this member's own matter
        dual *= root
        integers, powers = integer_coefficients(dual, exponents, self.precision)
        fitted: list[MemberParts | Exception] = []
        for index, one in enumerate(members):
            coefficients = np.zeros((len(one.y), settings["n_classes"]))
            coefficients[:, one.classes] = integers[index]
            rows = {"values": exact.values[index], "exponents": exact.exponents[index]}
            single = {"exponent": np.asarray(powers[index])}
            parts = MemberParts(one.classes, rows | {"coefficients": coefficients}, single)
            fitted.append(errors.get(index, parts))
        return fitted

    def _solve(
        self, gram: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the dual coefficients (m, p) of one member."""
        alpha = self.alpha
        if alpha == "loo":
            alpha = best_alpha(gram, targets, self.alphas)
        np.einsum("ii->i", gram)[:] += float(alpha)
        return positive_solve(gram, targets)
