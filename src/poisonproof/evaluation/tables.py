"""Certified accuracy class by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates import Certificates, Threat
from poisonproof.evaluation.accuracy import certified_accuracy, check_sizes, median_radius
from poisonproof.extras import needing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ClassRow", "ClassTable", "per_class_table"]


@dataclass(frozen=True)
class ClassRow:
    """The test rows of one true class.

    Attributes
    ----------
    label : object
        The class value.
    n_rows : int
        Test rows of this class.
    accuracy : float or None
        Share of them that is classified correctly; None without rows.
    median_radius : int or None
        Largest attack size that at least half of them withstand, correctly classified.
    certified : tuple of float
        Certified accuracy at the sizes of the table; empty without rows.
    """

    label: Any
    n_rows: int
    accuracy: float | None
    median_radius: int | None
    certified: tuple[float, ...]


@dataclass(frozen=True)
class ClassTable:
    """One `ClassRow` per class, in the order of the classes.

    Attributes
    ----------
    rows : tuple of ClassRow
        The table.
    sizes : tuple of int
        Attack sizes of the certified accuracies.
    threat : Threat
        The unit of the sizes.
    """

    rows: tuple[ClassRow, ...]
    sizes: tuple[int, ...]
    threat: Threat

    def columns(self) -> dict[str, list[Any]]:
        """Return the table column by column, with None where a class has no test rows."""
        table: dict[str, list[Any]] = {
            "class": [row.label for row in self.rows],
            "rows": [row.n_rows for row in self.rows],
            "accuracy": [row.accuracy for row in self.rows],
            "median_radius": [row.median_radius for row in self.rows],
        }
        for i, size in enumerate(self.sizes):
            table[f"certified_at_{size}"] = [
                row.certified[i] if row.n_rows else None for row in self.rows
            ]
        return table

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame, with ``attrs["threat"]``."""
        with needing("pandas", "data"):
            import pandas as pd
        frame = pd.DataFrame(self.columns())
        frame.attrs["threat"] = self.threat.to_dict()
        return frame

    def __str__(self) -> str:
        lines = [["class", "rows", "accuracy", "median", *(f"at {size:,}" for size in self.sizes)]]
        for row in self.rows:
            shares = [row.accuracy, *(row.certified or (None,) * len(self.sizes))]
            texts = ["-" if share is None else f"{100 * share:.1f} %" for share in shares]
            median = "-" if row.median_radius is None else f"{row.median_radius:,}"
            lines.append([str(row.label), f"{row.n_rows:,}", texts[0], median, *texts[1:]])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        )


def per_class_table(
    certificates: Certificates, y_true: ArrayLike, sizes: ArrayLike = ()
) -> ClassTable:
    """Evaluate the test rows of every true class on their own.

    Parameters
    ----------
    certificates : Certificates
        Untargeted certificates of n test rows.
    y_true : array-like of shape (n,)
        True labels, in the form of ``certificates.labels``.
    sizes : array-like of int
        Attack sizes at which to give the certified accuracy.

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 1, 1]], n_classes=2)
    >>> certificates = certificates.with_classes(["ham", "spam"])
    >>> print(per_class_table(certificates, ["ham", "spam", "spam"], sizes=[1]))
    class  rows  accuracy  median     at 1
      ham     1   100.0 %       2  100.0 %
     spam     2    50.0 %       0    0.0 %
    """
    attacks = tuple(np.atleast_1d(check_sizes(sizes)).tolist())
    certified_accuracy(certificates, y_true, attacks)  # refuses what does not fit together
    truth = np.asarray(y_true)
    labels = (
        range(certificates.n_classes)
        if certificates.classes is None
        else certificates.classes.tolist()
    )
    rows = tuple(_row(certificates, truth, label, attacks) for label in labels)
    return ClassTable(rows, attacks, certificates.threat)


def _row(
    certificates: Certificates, truth: NDArray[Any], label: Any, sizes: tuple[int, ...]
) -> ClassRow:
    members = truth == label
    n_rows = int(members.sum())
    if not n_rows:
        return ClassRow(label, 0, None, None, ())
    own, own_truth = certificates[members], truth[members]
    accuracy, *certified = certified_accuracy(own, own_truth, (0, *sizes)).tolist()
    return ClassRow(label, n_rows, accuracy, median_radius(own, own_truth), tuple(certified))
