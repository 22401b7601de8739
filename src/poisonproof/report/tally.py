"""How many test rows withstand each attack size, class by class, in whole rows.

The page's script counts with the same numbers and rounds by the same rule, so that what it shows at
any attack size is what Python computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates import Certificates
from poisonproof.evaluation.accuracy import radius_if_correct

__all__ = ["Radii", "Tally", "percent"]


@dataclass(frozen=True, eq=False)
class Radii:
    """The radii of some of `n_rows` rows; the others, -1 here, withstand nothing.

    Attributes
    ----------
    values : ndarray of int, shape (m,)
        Sorted radii that count.
    n_rows : int
        Rows they are a share of, at least m.

    Examples
    --------
    >>> radii = Radii.of(np.array([3, -1, 0, 3]))
    >>> [radii.at(size) for size in (0, 1, 3, 4)], radii.n_rows
    ([3, 2, 2, 0], 4)
    >>> radii.runs()
    [0, 1, 3, 2]
    """

    values: NDArray[np.int64]
    n_rows: int

    @classmethod
    def of(cls, radius: NDArray[np.int64]) -> Self:
        """Keep the radii that are not -1."""
        return cls(np.sort(radius[radius >= 0]), len(radius))

    def at(self, size: int) -> int:
        """Return how many rows withstand an attack of `size` units."""
        return int(len(self.values) - np.searchsorted(self.values, size, side="left"))

    def median(self) -> int | None:
        """Return the largest size that at least half of the rows withstand."""
        half = (self.n_rows + 1) // 2
        return int(self.values[-half]) if 0 < half <= len(self.values) else None

    def runs(self) -> list[int]:
        """Return radius, count, radius, count, ...: a short form for the page."""
        radius, count = np.unique(self.values, return_counts=True)
        return [int(number) for pair in zip(radius, count, strict=True) for number in pair]


@dataclass(frozen=True, eq=False)
class Tally:
    """What the certificates of one test set hold, in all and class by class.

    Attributes
    ----------
    kept : Radii
        Rows that count as kept: those with the correct label, or all of them where no true label
        is known.
    fixed : Radii
        Every prediction, right or wrong.
    labels : tuple of str
        The classes.
    by_class : tuple of Radii
        `kept`, by true class; by predicted class where no true label is known.
    """

    kept: Radii
    fixed: Radii
    labels: tuple[str, ...]
    by_class: tuple[Radii, ...]

    @classmethod
    def of(cls, certificates: Certificates, y_true: ArrayLike | None) -> Self:
        """Count the certificates of a test set."""
        radius = certificates.radius
        kept = radius if y_true is None else radius_if_correct(certificates, y_true)
        member_of = certificates.labels if y_true is None else np.asarray(y_true)
        values: list[Any] = (
            list(range(certificates.n_classes))
            if certificates.classes is None
            else certificates.classes.tolist()
        )
        return cls(
            kept=Radii.of(kept),
            fixed=Radii.of(radius),
            labels=tuple(str(value) for value in values),
            by_class=tuple(Radii.of(kept[member_of == value]) for value in values),
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        return {
            "kept": [self.kept.n_rows, self.kept.runs()],
            "fixed": [self.fixed.n_rows, self.fixed.runs()],
            "classes": [[radii.n_rows, radii.runs()] for radii in self.by_class],
        }


def percent(part: int, whole: int) -> str:
    """Return a share with one decimal, rounded half up; 0 and 100 are said only of none and all.

    Examples
    --------
    >>> percent(1, 8), percent(9_999, 10_000), percent(1, 10_000), percent(0, 3)
    ('12.5 %', '99.9 %', '0.1 %', '0.0 %')
    >>> percent(0, 0)
    '-'
    """
    if not whole:
        return "-"
    tenths = (2000 * part + whole) // (2 * whole)
    if 0 < part < whole:
        tenths = min(max(tenths, 1), 999)
    return f"{tenths // 10}.{tenths % 10} %"
