"""Nearest neighbours."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import ExactRows, Precision, exact_rows
from poisonproof.learners.closed_form.classifier import MAX_BYTES, UnweightedClassifier
from poisonproof.learners.closed_form.neighbor_members import NeighborMembers
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import MemberRows
from poisonproof.learners.closed_form.stacked import StackedMembers

__all__ = ["NeighborsClassifier"]


class NeighborsClassifier(UnweightedClassifier):
    """The most frequent class among the nearest rows.

    Classes with equally many neighbours: the smaller wins. A partition with fewer rows than
    `n_neighbors` lets all of them vote.

    Parameters
    ----------
    n_neighbors : int, default=1
        Rows that vote.
    metric : {"euclidean", "cosine"}, default="euclidean"
        What near means.
    precision : {"double", "single"}, default="double"
        Rows are rounded to 25 bits of their length and multiplied in float64, or to 11 bits and
        multiplied in float32.
    max_bytes : int, default=2**28
        Working memory for votes. Has no influence on them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> float(NeighborsClassifier(n_neighbors=5).fit(X, y).score(X, y)) > 0.95
    True
    """

    _members: ClassVar[type[StackedMembers]] = NeighborMembers

    def __init__(
        self,
        n_neighbors: int = 1,
        *,
        metric: str = "euclidean",
        precision: Precision = "double",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.precision = precision
        self.max_bytes = max_bytes

    def _check_parameters(self) -> None:
        if not (isinstance(self.n_neighbors, (int, np.integer)) and self.n_neighbors >= 1):
            raise InvalidInputError(
                f"n_neighbors must be an integer of at least 1, but is {self.n_neighbors!r}."
            )
        if self.metric not in {"euclidean", "cosine"}:
            raise InvalidInputError(
                f"metric must be 'euclidean' or 'cosine', but is {self.metric!r}."
            )

    def _member_settings(self, n_features: int) -> dict[str, Any]:
        return {"lift": "none", "n_neighbors": int(self.n_neighbors), "metric": self.metric}

    def _prepare(self, X: NDArray[np.float64], settings: dict[str, Any]) -> ExactRows:
        return exact_rows(X, settings["precision"])

    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        rows = member.rows
        return MemberParts(
            member.classes,
            {
                "values": rows.values,
                "exponents": rows.exponents,
                "labels": member.y.astype(np.int16),
            },
        )
