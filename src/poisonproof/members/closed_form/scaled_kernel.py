"""Kernel ridge on raw tables, whose columns every member scales and weighs by itself.

A member that has few rows knows little of each column: where its values lie, how far they spread
and whether they depend on the class. That is what a column is centred by, divided by and
weighted with. The result is a short row of integers, so its products with the member's rows are
exact; a test row is scaled for each member.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.members.closed_form.classifier import ClosedFormClassifier, MemberData
from poisonproof.members.closed_form.stacked import (
    MemberParts,
    StackedMembers,
    Tile,
    Visit,
    cut_tiles,
    padded,
)
from poisonproof.members.scikit import is_count

UNIT = 2.0**10  # a row of length one becomes a row of integers of this length
LONGEST = 3.0  # cells are clipped at this many standard deviations, so no row is longer
WIDEST = 2**20  # more columns could round up to rows whose products are not exact in float32
MISSING = np.int16(-(2**15))  # stands for a missing cell among the integers of a training row
LEAST_GAMMA, LARGEST_GAMMA = 1e-30, 1e30

OVERFLOW = (
    "values are so large that products of them overflow. Scale the features, or bound them by a "
    "schema"
)
"""The reason of a member that abstains because of one huge cell."""

# Kernels become integers of 24 or 26 bits. A member's coefficients for one class may then add up
# to 2^29 or 2^27 without any rounding in float64.
KERNEL_BITS = {"single": 24, "double": 26}
_COLUMN_BITS = {"single": 29, "double": 27}

_CONSTANT = 1e-12  # a column whose spread is so small a part of its values is constant
_KERNEL_BITS = 24
_KERNEL_EXPONENT = 4  # kernels lie within 2^4: at most 1 + 3 * 3, and what rounding adds
_JITTER = 1e-8  # keeps the system of centres solvable where two of them are the same row
_ROWS = 256
# Cells of test rows that are scaled at once: more do not fit into the cache, fewer cost more calls.
# At least as many rows, because a member's rows are read anew for each such chunk; at most as many,
# because a product of every centre with every test row is kept.
_CELLS, _LEAST_ROWS, _MOST_ROWS = 2**19, 256, 1024

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnScales:
    """The scales of the d columns, learned by one member.

    A cell x becomes ``(x - centre) * factor``, clipped at `bound`; a factor of zero leaves the
    column out. `absent` and `present` are what a missing and a known cell become in one more column
    that says what is missing; both zero leave it out.
    """

    centre: Floats
    factor: Floats
    bound: NDArray[np.int16]
    absent: NDArray[np.int16]
    present: NDArray[np.int16]

    def columns(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Return which columns are scaled in float32, which in float64, and which have flags.

        Where values lie far from zero beside their spread, or are huge or tiny, float32 is too
        coarse. Elsewhere it is off by less than a tenth of an integer, and much faster.
        """
        factor = self.factor
        ordinary = (factor > 2.0**-60) & (factor < 2.0**60)
        coarse = ordinary & (np.abs(self.centre) * factor <= 2.0**20)
        used = factor > 0
        return (
            np.flatnonzero(used & coarse),
            np.flatnonzero(used & ~coarse),
            np.flatnonzero((self.absent != 0) | (self.present != 0)),
        )

    def integers(self, rows: Floats) -> NDArray[np.int16]:
        """Return rows (m, d) as integers, `MISSING` where a cell is NaN."""
        used = self.factor > 0
        bound = self.bound[used].astype(np.float64)
        scaled = (rows[:, used] - self.centre[used]) * self.factor[used]
        values = np.zeros(rows.shape, dtype=np.int16)
        missing = np.isnan(rows)
        values[:, used] = np.rint(np.clip(np.where(missing[:, used], 0.0, scaled), -bound, bound))
        values[missing] = MISSING
        return values

    def support(self, values: NDArray[np.int16]) -> NDArray[np.float32]:
        """Return training rows from `integers`, column after column as in `columns`; (m, width)."""
        coarse, fine, flagged = self.columns()
        used = np.concatenate([coarse, fine])
        support = np.empty((len(values), len(used) + len(flagged)), dtype=np.float32)
        support[:, : len(used)] = np.take(values, used, axis=1)
        numbers, flags = support[:, : len(used)], support[:, len(used) :]
        numbers[numbers == MISSING] = 0
        missing = values[:, flagged] == MISSING
        flags[:] = np.where(missing, self.absent[flagged], self.present[flagged])
        return support


def learn_scales(
    rows: Floats, positions: NDArray[np.intp], weight: Floats, least_relevance: float
) -> ColumnScales:
    """Learn the scales of one partition: rows (m, d), NaN where missing, classes and weights."""
    if rows.shape[1] > WIDEST:
        raise InvalidInputError(
            f"rows of {rows.shape[1]} columns are too wide; at most {WIDEST} are possible"
        )
    missing = np.isnan(rows)
    known = np.where(missing, 0.0, weight[:, np.newaxis])
    total = known.sum(axis=0)
    share = known / np.where(total > 0, total, 1.0)
    filled = np.where(missing, 0.0, rows)
    centre = (share * filled).sum(axis=0)
    scaled, spread = _standardised(filled, missing, share, centre)
    belongs = np.zeros((int(positions.max()) + 1, len(positions)))
    belongs[positions, np.arange(len(positions))] = weight / weight.sum()
    n_rows = float(weight.sum())

    lost = 1.0 - total / weight.sum()
    flagged = missing.any(axis=0) & (lost > 0) & (lost < 1)
    swing = np.sqrt(np.where(flagged, lost * (1 - lost), 1.0))
    flags = np.where(flagged, (missing - lost) / swing, 0.0)

    worth = (_relevance(scaled, belongs, n_rows) + least_relevance) * (spread > 0)
    flag_worth = (_relevance(flags, belongs, n_rows) + least_relevance) * flagged
    everything = worth.sum() + flag_worth.sum()
    root = UNIT * np.sqrt(worth / (everything if everything > 0 else 1.0))
    flag_root = UNIT * np.sqrt(flag_worth / (everything if everything > 0 else 1.0))
    factor = root / np.where(spread > 0, spread, 1.0)
    usable = np.isfinite(factor) & (factor > 0)
    return ColumnScales(
        np.where(usable, centre, 0.0),
        np.where(usable, factor, 0.0),
        np.where(usable, np.rint(LONGEST * root), 0.0).astype(np.int16),
        np.rint(np.clip((1 - lost) / swing, 0, LONGEST) * flag_root).astype(np.int16),
        np.rint(np.clip(-lost / swing, -LONGEST, 0) * flag_root).astype(np.int16),
    )


def _standardised(
    filled: Floats, missing: NDArray[np.bool_], share: Floats, centre: Floats
) -> tuple[Floats, Floats]:
    """Return cells in standard deviations (m, d), and these (d,), zero if constant or infinite."""
    off = np.where(missing, 0.0, filled - centre)
    # Divided by the largest first: squares of what a float64 can hold may not fit into one.
    farthest = np.abs(off).max(axis=0)
    size = np.abs(filled).max(axis=0)
    varies = (farthest > _CONSTANT * size) & np.isfinite(farthest)
    off = np.where(varies, off / np.where(varies, farthest, 1.0), 0.0)
    spread = np.sqrt((share * np.square(off)).sum(axis=0))
    scaled = np.clip(off / np.where(varies, spread, 1.0), -LONGEST, LONGEST)
    return scaled, np.where(varies, spread * farthest, 0.0)


def _relevance(scaled: Floats, belongs: Floats, n_rows: float) -> Floats:
    """Return which part of each column's variance lies between the classes, (d,).

    Of few rows some part lies between the classes by chance; that part is taken off (epsilon
    squared, Kelley 1935). `scaled` (m, d) has mean zero and variance one, `belongs` (p, m) each
    row's share of all weights in the row of its class, which add up to `n_rows`.
    """
    n_classes = len(belongs)
    if n_rows <= n_classes:
        return np.zeros(scaled.shape[1])
    shares = belongs.sum(axis=1)
    means = (belongs @ scaled) / shares[:, np.newaxis]
    between = (shares[:, np.newaxis] * np.square(means)).sum(axis=0)
    unexplained = (1 - between) * (n_rows - 1) / (n_rows - n_classes)
    return np.asarray(np.clip(1 - unexplained, 0.0, 1.0))


@dataclass(frozen=True)
class _Queries:
    """Test rows turned into columns (d, width), and where cells are missing, if any are.

    The last four are for one member's numbers after the other's, for fresh memory is slow.
    """

    cells: Floats
    short: NDArray[np.float32]
    missing: NDArray[np.bool_] | None
    seen: NDArray[np.float32]
    inner: NDArray[np.float32]
    kernel: NDArray[np.float32]
    integers: Floats

    def __len__(self) -> int:
        return int(self.cells.shape[1])


class ScaledKernelMembers(StackedMembers):
    """Kernel machines with the kernel ``exp(-gamma |u - v|^2) + <u, v>`` of scaled rows."""

    kind: ClassVar[str] = "scaled_kernel"

    @classmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows."""
        columns, n_classes = settings["n_features"], settings["n_classes"]
        floats, shorts = np.zeros(columns), np.zeros(columns, dtype=np.int16)
        scales = ColumnScales(floats, floats, shorts, shorts, shorts)
        values = np.empty((0, columns), dtype=np.int16)
        return MemberParts(
            np.empty(0, dtype=np.int16),
            {"values": values, "coefficients": np.empty((0, n_classes))},
            {**vars(scales), "exponent": np.zeros((), np.int32), "bias": np.zeros(n_classes)},
        )

    def _tile_rows(self) -> int:
        return max(_ROWS, int(self.settings["n_classes"]))

    def _widest(self) -> int:
        within_cache = _CELLS // max(int(self.settings["n_features"]), 1)
        return min(max(within_cache, _LEAST_ROWS), _MOST_ROWS)

    @cached_property
    def _tiles(self) -> list[Tile]:
        return cut_tiles(self.offsets, self.classes, [len(known) for known in self.classes])

    def _chunk(self, samples: NDArray[Any], start: int, stop: int) -> _Queries:
        n_columns, width = samples.shape[1], padded(stop - start)
        cells = np.zeros((n_columns, width))
        cells[:, : stop - start] = samples[start:stop].T
        if np.isinf(cells).any():
            raise InvalidRowsError("X contains infinity; every value must be finite or missing.")
        missing = np.isnan(cells)
        with np.errstate(over="ignore"):
            short = cells.astype(np.float32)
        seen = np.empty((2 * n_columns, width), dtype=np.float32)
        inner, kernel = (np.empty((_ROWS, width), dtype=np.float32) for _ in range(2))
        known = missing if missing.any() else None
        return _Queries(cells, short, known, seen, inner, kernel, np.empty((_ROWS, width)))

    def _score_chunk(self, queries: _Queries, visit: Visit) -> None:
        scores = np.empty((self._tile_rows(), len(queries)))
        for tile in self._tiles:
            row = 0
            for index in tile.members.tolist():
                count = len(self.classes[index])
                self._score_member(index, queries, scores[row : row + count])
                row += count
            visit(tile, scores[:row])

    def _score_member(self, index: int, queries: _Queries, out: Floats) -> None:
        """Write one member's scores for its classes, shape (p, width)."""
        known = self.classes[index]
        scales = ColumnScales(
            **{field.name: self.single[field.name][index] for field in fields(ColumnScales)}
        )
        seen = _scaled(queries, scales)
        lengths = np.einsum("ij,ij->j", seen, seen)
        per_unit = np.float32(1 / (UNIT * UNIT))
        gamma = np.float32(self.settings["gamma"]) * per_unit
        out[:] = 0.0
        start, stop = self.offsets[index : index + 2].tolist()
        for low in range(start, stop, _ROWS):
            rows = slice(low, min(low + _ROWS, stop))
            support = scales.support(self.rows["values"][rows])
            n = len(support)
            inner, kernel, integers = queries.inner[:n], queries.kernel[:n], queries.integers[:n]
            np.matmul(support, seen, out=inner)
            np.multiply(inner, np.float32(2), out=kernel)
            kernel -= np.einsum("ij,ij->i", support, support)[:, np.newaxis]
            kernel -= lengths
            kernel *= gamma
            np.minimum(kernel, np.float32(0), out=kernel)
            np.exp(kernel, out=kernel)
            inner *= per_unit
            kernel += inner
            kernel *= np.float32(2.0 ** (_KERNEL_BITS - _KERNEL_EXPONENT))
            np.rint(kernel, out=integers)
            coefficients = self.rows["coefficients"][rows, known]
            out += coefficients.T @ integers
        out *= np.ldexp(1.0, int(self.single["exponent"][index]) - _KERNEL_BITS)
        out += self.single["bias"][index][known, np.newaxis]


def _scaled(queries: _Queries, scales: ColumnScales) -> NDArray[np.float32]:
    """Return test rows as one member sees them: columns of integers, entry by entry."""
    coarse, fine, flagged = scales.columns()
    used = np.concatenate([coarse, fine])
    seen = queries.seen[: len(used) + len(flagged)]
    numbers = seen[: len(coarse)]
    centre = scales.centre[coarse, np.newaxis].astype(np.float32)
    if len(coarse) == len(queries.short):  # all columns: no need to gather them first
        np.subtract(queries.short, centre, out=numbers)
    else:
        np.take(queries.short, coarse, axis=0, out=numbers, mode="clip")
        numbers -= centre
    numbers *= scales.factor[coarse, np.newaxis].astype(np.float32)
    if len(fine):
        cells = queries.cells[fine] - scales.centre[fine, np.newaxis]
        seen[len(coarse) : len(used)] = cells * scales.factor[fine, np.newaxis]
    numbers = seen[: len(used)]
    bound = scales.bound[used, np.newaxis].astype(np.float32)
    np.minimum(numbers, bound, out=numbers)
    np.maximum(numbers, -bound, out=numbers)
    np.rint(numbers, out=numbers)
    if queries.missing is not None:
        numbers[queries.missing[used]] = 0
    if len(flagged):
        flags = seen[len(used) :]
        flags[:] = scales.present[flagged, np.newaxis]
        if queries.missing is not None:
            absent = np.broadcast_to(scales.absent[flagged, np.newaxis], flags.shape)
            np.copyto(flags, absent, where=queries.missing[flagged], casting="same_kind")
    return seen


class ScaledKernelClassifier(ClosedFormClassifier):
    """Kernel ridge on raw tables: any units, constant columns, timestamps, missing values.

    The default member of `DPAClassifier`. It centres every column, divides it by its standard
    deviation and clips it at three of these, then weighs it by how well it alone separates the
    classes (epsilon squared, the part of its variance that lies between the classes beyond
    chance). All of this is learned from the member's own partition. On the rows u, v so scaled,
    the kernel is ``exp(-gamma |u - v|^2) + <u, v>``: smooth where there are rows, linear beyond
    them. Its ridge regression on the one-hot labels has a constant without ridge.

    A missing value (NaN) counts as the column's mean, and as 1 in a column of flags, where some
    rows of the partition miss it.

    Parameters
    ----------
    alpha : float, default=0.1
        Ridge.
    gamma : float, default=1.0
        How fast the kernel falls; an average row has length one.
    least_relevance : float, default=0.01
        Weight of a column that does not depend on the class; one that decides it has 1 more.
    n_centers : int, default=500
        Rows of a partition that others are compared with. Of a larger partition evenly many rows
        in canonical order are taken; all rows take part in the fit.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Labels seen in `fit`.

    Guarantee
    ---------
    What a member sees of a test row is a function of its own partition and that row. It is rounded
    to integers, so products are exact and their bits depend on nothing else.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> float(ScaledKernelClassifier().fit(X, y).score(X, y)) > 0.98
    True
    """

    _members: ClassVar[type[StackedMembers]] = ScaledKernelMembers
    _takes_missing: ClassVar[bool] = True
    precision = "single"

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        gamma: float = 1.0,
        least_relevance: float = 0.01,
        n_centers: int = 500,
    ) -> None:
        self.alpha = alpha
        self.gamma = gamma
        self.least_relevance = least_relevance
        self.n_centers = n_centers

    def _check_parameters(self) -> None:
        self._require_positive("alpha", "gamma", "least_relevance")
        if not LEAST_GAMMA <= self.gamma <= LARGEST_GAMMA:
            raise InvalidInputError(
                f"gamma must lie between {LEAST_GAMMA:g} and {LARGEST_GAMMA:g}, because members "
                f"vote in single precision, but is {self.gamma!r}. Columns are scaled by each "
                "member, so useful values lie around 1."
            )
        if not is_count(self.n_centers):
            raise InvalidInputError(
                f"n_centers must be an integer of at least 1, but is {self.n_centers!r}."
            )

    def _member_settings(self) -> dict[str, Any]:
        return {"gamma": float(self.gamma)}

    def _fit_one(self, member: MemberData, settings: dict[str, Any]) -> MemberParts:
        y, weight = member.y, member.weight
        scales = learn_scales(member.X, y, weight, float(self.least_relevance))
        values = scales.integers(member.X)
        support = scales.support(values).astype(np.float64)
        targets = np.eye(len(member.classes))[y]
        if len(y) <= self.n_centers:
            chosen = np.arange(len(y))
            dual, bias = self._solve_all(support, targets, weight)
        else:
            chosen = np.arange(self.n_centers) * len(y) // self.n_centers
            dual, bias = self._solve_centers(support, chosen, targets, weight)
        integers, power = integer_coefficients(dual, "single")
        coefficients = np.zeros((len(chosen), settings["n_classes"]))
        coefficients[:, member.classes] = integers
        level = np.zeros(settings["n_classes"])
        level[member.classes] = bias
        return MemberParts(
            member.classes,
            {"values": values[chosen], "coefficients": coefficients},
            {**vars(scales), "exponent": power + np.int32(_KERNEL_EXPONENT), "bias": level},
        )

    def _solve_all(self, support: Floats, targets: Floats, weight: Floats) -> tuple[Floats, Floats]:
        """Return coefficients (m, p) that add up to zero, and the constant (p,)."""
        system = self._kernel(support, support)
        system[np.diag_indices(len(support))] += self.alpha / weight
        ones = np.ones((len(support), 1))
        solved = positive_solve(system, np.concatenate([targets, ones], axis=1))
        bias = solved[:, :-1].sum(axis=0) / solved[:, -1].sum()
        return solved[:, :-1] - solved[:, -1:] * bias, bias

    def _solve_centers(
        self, support: Floats, chosen: NDArray[np.intp], targets: Floats, weight: Floats
    ) -> tuple[Floats, Floats]:
        """Return coefficients of the chosen rows, fitted to all rows, and the constant."""
        centers = support[chosen]
        share = weight / weight.sum()
        system = self.alpha * self._kernel(centers, centers)
        right = np.zeros((len(chosen), targets.shape[1]))
        level = share @ targets
        mean = np.zeros(len(chosen))
        for start in range(0, len(support), len(chosen)):
            here = slice(start, start + len(chosen))
            kernel = self._kernel(support[here], centers)
            weighted = weight[here, np.newaxis] * kernel
            system += kernel.T @ weighted
            right += weighted.T @ (targets[here] - level)
            mean += share[here] @ kernel
        system -= weight.sum() * np.outer(mean, mean)
        system[np.diag_indices(len(chosen))] += _JITTER * weight.sum()
        dual = positive_solve(system, right)
        return dual, level - mean @ dual

    def _kernel(self, left: Floats, right: Floats) -> Floats:
        """Return the kernels of scaled rows, (len(left), len(right))."""
        inner = left @ right.T
        lengths = [np.einsum("ij,ij->i", rows, rows) for rows in (left, right)]
        apart = lengths[0][:, np.newaxis] + lengths[1] - 2 * inner
        kernel: Floats = np.exp(apart * (-self.gamma / UNIT**2))
        return kernel + inner / UNIT**2


def positive_solve(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``matrix^-1 right`` for a symmetric positive definite matrix (Cholesky)."""
    _, solution, info = dposv(matrix, right, lower=1)
    if info != 0 or not np.isfinite(solution).all():
        if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
            raise FloatingPointError(OVERFLOW)
        raise np.linalg.LinAlgError("the ridge system is not positive definite")
    found: NDArray[np.float64] = solution
    return found


def fine_bits(n_rows: int, precision: str) -> int:
    """Return how many bits a second, finer set of coefficients can add; none in single."""
    if precision == "single":
        return 0
    return max(_COLUMN_BITS[precision] - int(np.ceil(np.log2(max(n_rows, 1)))), 0)


def integer_coefficients(
    coefficients: NDArray[np.float64], precision: str
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Round a member's dual coefficients (m, p) to integers with one power of two.

    In "single" a column adds up to at most 2^29; in "double" to more, in upper and lower bits.
    """
    n_rows = len(coefficients)
    # Added up row after row, whatever lies beside it in memory.
    heaviest = np.add.accumulate(np.abs(coefficients))[-1].max()
    longest = 2.0 ** _COLUMN_BITS[precision] - n_rows
    power = np.frexp(heaviest / longest)[1] if heaviest > 0 else 0
    power -= fine_bits(n_rows, precision)
    integers = np.rint(np.ldexp(coefficients, -power)) + 0.0
    return integers, np.asarray(power, dtype=np.int32)
