"""Certified accuracy of a grid against rows and features at once, as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from poisonproof.certificates.result import GridCertificates
from poisonproof.certificates.threats import Threat
from poisonproof.evaluation.accuracy import Radii, radius_if_correct, round_sizes
from poisonproof.partition.grids import Blocks

_MOST_LINES = 12


@dataclass(frozen=True, eq=False)
class Surface:
    """The share of test rows that withstand r units of attack and f changed features.

    Attributes
    ----------
    kept : tuple of Radii
        For f = 0, 1, ... changed features the radii of the rows that are correct; of all rows
        where no true label is known.
    threat : Threat
        The unit of the radii.
    outer : {"rows", "features"}
        The side of the grid that votes last.
    blocks : Blocks
        What a feature is.
    with_truth : bool
        Whether true labels are known.

    Examples
    --------
    >>> from poisonproof.certificates import certify_grid
    >>> certificates = certify_grid(np.zeros((1, 9, 9), dtype=int), n_classes=2)
    >>> surface = Surface.of(certificates, Blocks(n_blocks=9, widths=(1,) * 9))
    >>> surface.medians
    (4, 4, 4, 4, 4)
    >>> print(surface.sentence())
    At least half of the predictions stay as they are even if any 4 rows are inserted or deleted (or
    2 rewritten) and any 4 columns of the row to predict are changed.
    """

    kept: tuple[Radii, ...]
    threat: Threat
    outer: str
    blocks: Blocks
    with_truth: bool

    @classmethod
    def of(
        cls, certificates: GridCertificates, blocks: Blocks, y_true: ArrayLike | None = None
    ) -> Self:
        """Count the certificates of a test set."""
        steps = range(certificates.rows.shape[1])
        if y_true is None:
            radii = [certificates.rows[:, f] for f in steps]
        else:
            radii = [radius_if_correct(certificates.at(f), y_true) for f in steps]
        kept = tuple(map(Radii.of, radii))
        return cls(kept, certificates.threat, certificates.outer, blocks, y_true is not None)

    @cached_property
    def medians(self) -> tuple[int | None, ...]:
        """For every f the largest attack that at least half of the rows withstand, if any."""
        return tuple(radii.median() for radii in self.kept)

    def lines(self, most: int = _MOST_LINES) -> list[int]:
        """Return numbers of features to show: all, or round ones if there are more than `most`."""
        last = len(self.kept) - 1
        return list(range(last + 1)) if last < most else round_sizes(last)

    def sizes(self) -> list[int]:
        """Return attack sizes to show: none, and about half the median without other changes."""
        half = (self.medians[0] or self.largest) // 2
        return [0, *round_sizes(max(1, half))[-1:]] if self.largest else [0]

    @property
    def largest(self) -> int:
        """The largest radius, whatever the features."""
        return int(self.kept[0].values.max(initial=0))

    @cached_property
    def best(self) -> tuple[int, int] | None:
        """Units and features that half of the rows withstand at once, of the largest product."""
        pairs = [(r, f) for f, r in enumerate(self.medians) if r and f]
        return max(pairs, key=lambda pair: (pair[0] * pair[1], pair), default=None)

    def sentence(self, n_groups: int | None = None) -> str:
        """Return in words what at least half of the rows withstand."""
        subject = "test rows keep their correct label"
        if not self.with_truth:
            subject = "predictions stay as they are"
        if self.best is not None:
            r, f = self.best
            parts = [self._rows_clause(r, n_groups), self.features_clause(f)]
            return f"At least half of the {subject} even if {' and '.join(parts)}."
        f = max((f for f, r in enumerate(self.medians) if r is not None), default=0)
        parts = [self._rows_clause(r, n_groups)] if (r := self.medians[0] or 0) else []
        parts += [self.features_clause(f)] if f else []
        if not parts:
            return "No attack on rows or features is proved to leave half of the test rows right."
        return f"At least half of the {subject} even if {' or else '.join(parts)}."

    def _rows_clause(self, r: int, n_groups: int | None) -> str:
        if n_groups is not None and self.threat.by_group:
            return f"an attacker controls any {r:,} of the {n_groups:,} {self.threat.noun()}"
        rewritten = f" (or {r // 2:,} rewritten)" * (self.threat.code == "insert_delete" and r > 1)
        return f"any {self.threat.clause(r)}{rewritten}"

    def features_clause(self, f: int) -> str:
        """Return a change of f features as a clause."""
        blocks = self.blocks
        what, act = blocks.features(f), "changed"
        if blocks.kind == "words":
            # A word is n features of n - 1 neighbours; one that comes parts those that were there.
            words, replaced = f // (2 * blocks.ngram - 1), f // (2 * blocks.ngram)
            if words:
                f, what, act = words, "word" + "s" * (words != 1), "inserted or deleted"
                act += f" (or {replaced:,} replaced)" if replaced else ""
        are = "is" if f == 1 else "are"
        if self.outer == "features":
            where = f"in all training rows and in the {blocks.whole} to predict"
            return f"any {f:,} {what} {are} {act} {where}"
        return f"any {f:,} {what} of the {blocks.whole} to predict {are} {act}"

    def coverage(self) -> tuple[str, str]:
        """Return what the surface covers, and what it does not, in words."""
        one, many = self.blocks.features(1), self.blocks.features(2)
        if self.outer == "rows":
            return (
                f"At most r {self.threat.plural}, and f {many} of the {self.blocks.whole} to "
                f"predict changed in any way. So it covers a backdoor whose trigger is at most f "
                f"{many}, planted by at most r of these.",
                f"A {one} that is changed in many training rows: each such row counts as an "
                "attacked one.",
            )
        return (
            f"At most r {self.threat.plural}, and the same f {many} rewritten in all training rows "
            "and in the row to predict, in any way, as by a broken sensor.",
            f"More than f {many}, over training rows and the row to predict together.",
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Return medians and shares for every f, as JSON values."""
        sizes = round_sizes(self.largest)
        return [
            {
                "features": f,
                "median_radius": self.medians[f],
                "certified_accuracy": [
                    {"size": size, "accuracy": float(share)}
                    for size, share in zip(sizes, radii.shares(sizes), strict=True)
                ],
            }
            for f, radii in enumerate(self.kept)
        ]

    def shares(self, sizes: Sequence[int]) -> list[list[float]]:
        """Return the share of rows for every shown f and size."""
        return [np.asarray(self.kept[f].shares(sizes)).tolist() for f in self.lines()]
