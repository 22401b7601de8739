"""How one member sees a row of a table: columns in units of its own partition.

A member that has few rows knows little of each column: where its values lie, how far they spread
and whether they say anything about the classes. That is what a column is centred by, divided by and
weighted with. The result is a short row of integers, whatever the units of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

__all__ = ["LONGEST", "MISSING", "UNIT", "WIDEST", "ColumnScales", "learn_scales"]

UNIT = 2.0**10
"""A row of length one becomes a row of integers of this length."""

LONGEST = 3.0
"""Cells are drawn in to this many standard deviations, so no row is longer than this."""

WIDEST = 2**20
"""More columns could round up to rows whose products are not exact in float32."""

MISSING = np.int16(-(2**15))
"""Stands for a missing cell among the integers of a training row."""

# A column whose spread is so small a part of its values is constant but for rounding.
_CONSTANT = 1e-12


@dataclass(frozen=True)
class ColumnScales:
    """What one member knows of the d columns.

    Attributes
    ----------
    centre, factor : ndarray of shape (d,)
        A cell x becomes ``(x - centre) * factor``; a factor of zero leaves the column out.
    bound : ndarray of int16 of shape (d,)
        Cells beyond are drawn in to it.
    absent, present : ndarray of int16 of shape (d,)
        What a missing and a known cell become in one more column, which says that something is
        missing. Both zero leave it out.
    """

    centre: NDArray[np.float64]
    factor: NDArray[np.float64]
    bound: NDArray[np.int16]
    absent: NDArray[np.int16]
    present: NDArray[np.int16]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, for `from_arrays`."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> ColumnScales:
        """Return the scales that `arrays` described."""
        return cls(**{name: arrays[name] for name in cls.__dataclass_fields__})

    def columns(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Return which columns are scaled in float32, which in float64, and which tell of gaps.

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

    def integers(self, rows: NDArray[np.float64]) -> NDArray[np.int16]:
        """Return rows (m, d) as integers, `MISSING` where a cell is NaN."""
        used = self.factor > 0
        bound = self.bound[used].astype(np.float64)
        scaled = (rows[:, used] - self.centre[used]) * self.factor[used]
        values = np.zeros(rows.shape, dtype=np.int16)
        gone = np.isnan(rows)
        values[:, used] = np.rint(np.clip(np.where(gone[:, used], 0.0, scaled), -bound, bound))
        values[gone] = MISSING
        return values

    def support(self, values: NDArray[np.int16]) -> NDArray[np.float32]:
        """Return training rows from `integers`, column after column as in `columns`; (m, width)."""
        coarse, fine, told = self.columns()
        used = np.concatenate([coarse, fine])
        support = np.empty((len(values), len(used) + len(told)), dtype=np.float32)
        support[:, : len(used)] = np.take(values, used, axis=1)
        numbers, flags = support[:, : len(used)], support[:, len(used) :]
        numbers[numbers == MISSING] = 0
        gone = values[:, told] == MISSING
        flags[:] = np.where(gone, self.absent[told], self.present[told])
        return support


def learn_scales(
    rows: NDArray[np.float64],
    positions: NDArray[np.intp],
    weight: NDArray[np.float64],
    least_relevance: float,
) -> ColumnScales:
    """Learn the scales of one partition.

    Parameters
    ----------
    rows : ndarray of shape (m, d)
        Samples; NaN stands for a missing value.
    positions : ndarray of shape (m,)
        Their classes, counted from zero.
    weight : ndarray of shape (m,)
        Weights, all positive.
    least_relevance : float
        What a column that tells nothing about the classes counts for.
    """
    if rows.shape[1] > WIDEST:
        raise InvalidInputError(
            f"rows of {rows.shape[1]} columns are too wide; at most {WIDEST} are possible"
        )
    gone = np.isnan(rows)
    known = np.where(gone, 0.0, weight[:, np.newaxis])
    total = known.sum(axis=0)
    share = known / np.where(total > 0, total, 1.0)
    filled = np.where(gone, 0.0, rows)
    centre = (share * filled).sum(axis=0)
    scaled, spread = _standardised(filled, gone, share, centre)
    belongs = np.zeros((int(positions.max()) + 1, len(positions)))
    belongs[positions, np.arange(len(positions))] = weight / weight.sum()
    n_rows = float(weight.sum())

    lost = 1.0 - total / weight.sum()
    tells = gone.any(axis=0) & (lost > 0) & (lost < 1)
    swing = np.sqrt(np.where(tells, lost * (1 - lost), 1.0))
    flags = np.where(tells, (gone - lost) / swing, 0.0)

    worth = (_relevance(scaled, belongs, n_rows) + least_relevance) * (spread > 0)
    flag_worth = (_relevance(flags, belongs, n_rows) + least_relevance) * tells
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
    filled: NDArray[np.float64],
    gone: NDArray[np.bool_],
    share: NDArray[np.float64],
    centre: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cells in standard deviations (m, d), zero where missing, and these deviations (d,).

    A column that is constant, or not finite after all, has the deviation zero.
    """
    off = np.where(gone, 0.0, filled - centre)
    # Divided by the largest first: squares of what a float64 can hold may not fit into one.
    farthest = np.abs(off).max(axis=0)
    size = np.abs(filled).max(axis=0)
    varies = (farthest > _CONSTANT * size) & np.isfinite(farthest)
    off = np.where(varies, off / np.where(varies, farthest, 1.0), 0.0)
    spread = np.sqrt((share * np.square(off)).sum(axis=0))
    scaled = np.clip(off / np.where(varies, spread, 1.0), -LONGEST, LONGEST)
    return scaled, np.where(varies, spread * farthest, 0.0)


def _relevance(
    scaled: NDArray[np.float64], belongs: NDArray[np.float64], n_rows: float
) -> NDArray[np.float64]:
    """Return which part of each column's variance lies between the classes, (d,).

    Of few rows some part lies between the classes by chance; that part is taken off (epsilon
    squared, Kelley 1935).

    Parameters
    ----------
    scaled : ndarray of shape (m, d)
        Columns of mean zero and variance one.
    belongs : ndarray of shape (p, m)
        Each row's share of all weights, in the row of its class.
    n_rows : float
        The sum of all weights.
    """
    n_classes = len(belongs)
    if n_rows <= n_classes:
        return np.zeros(scaled.shape[1])
    shares = belongs.sum(axis=1)
    means = (belongs @ scaled) / shares[:, np.newaxis]
    between = (shares[:, np.newaxis] * np.square(means)).sum(axis=0)
    unexplained = (1 - between) * (n_rows - 1) / (n_rows - n_classes)
    return np.asarray(np.clip(1 - unexplained, 0.0, 1.0))
