"""Members that let the nearest rows of their partition vote."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.features.exact import ExactRows, Precision, exact_rows
from poisonproof.members.closed_form.classifier import MAX_BYTES, ClosedFormClassifier, MemberData
from poisonproof.members.closed_form.stacked import MemberParts, StackedMembers, Visit
from poisonproof.members.scikit import is_count


class NeighborMembers(StackedMembers):
    """k-nearest neighbors inside each partition; the first of equal rows or classes wins."""

    kind: ClassVar[str] = "neighbors"

    @classmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows."""
        return cls._like_exact(settings, labels=np.empty(0, dtype=np.int16))

    @cached_property
    def _closeness_terms(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Factor and constant with which a product orders rows by closeness to a test row."""
        rows = ExactRows(self.rows["values"], self.rows["exponents"])
        square = rows.square_lengths()
        if self.settings["metric"] == "cosine":
            length = np.sqrt(square)
            factor = np.where(length > 0, 1 / np.where(length > 0, length, 1), 0.0)
            return factor, np.zeros(len(rows))
        return 2 * rows.scales, square * rows.scales * rows.scales

    def _score_chunk(self, queries: ExactRows, visit: Visit) -> None:
        factor, constant = self._closeness_terms
        # A test row's own length is the same for all rows it is compared with.
        scales = queries.scales if self.settings["metric"] == "euclidean" else np.ones(len(queries))
        room = np.empty((self._tile_rows(), len(queries)))
        nearest = _Nearest(self.settings["n_neighbors"], len(queries))
        for tile, here, products in self._products(queries):
            closeness = np.multiply(products, factor[here, np.newaxis], out=room[: len(products)])
            closeness *= scales
            closeness -= constant[here, np.newaxis]
            counts = []
            for piece in tile.pieces:
                rows = slice(piece.low - tile.start, piece.high - tile.start)
                nearest.add(closeness[rows], self.rows["labels"][piece.low : piece.high])
                if piece.is_last:
                    counts.append(nearest.counts(self.classes[piece.member]))
                    nearest.forget()
            if counts:
                visit(tile, np.concatenate(counts))


class _Nearest:
    """The closest rows seen so far, for every test row, closest first."""

    def __init__(self, n_neighbors: int, width: int) -> None:
        self._n_neighbors = n_neighbors
        self._width = width
        self.forget()

    def forget(self) -> None:
        self._closeness: NDArray[np.float64] = np.empty((0, self._width))
        self._labels: NDArray[np.int16] = np.empty((0, self._width), dtype=np.int16)

    def add(self, closeness: NDArray[np.float64], labels: NDArray[np.int16]) -> None:
        """Take in rows (r, width); those seen before win ties."""
        pool = np.concatenate([self._closeness, closeness])
        known = len(self._labels)
        count = min(self._n_neighbors, len(pool))
        best = np.empty((count, self._width))
        owners = np.empty((count, self._width), dtype=np.int16)
        here = np.arange(self._width)
        for place in range(count):
            at = pool.argmax(axis=0)
            best[place] = pool[at, here]
            owners[place] = labels[np.maximum(at - known, 0)]
            if known:
                old = at < known
                owners[place, old] = self._labels[at[old], here[old]]
            pool[at, here] = -np.inf
        self._closeness, self._labels = best, owners

    def counts(self, classes: NDArray[np.int16]) -> NDArray[np.float64]:
        """Return how many of the nearest rows carry each class, shape (p, width)."""
        equal = self._labels == classes[:, np.newaxis, np.newaxis]
        counts: NDArray[np.float64] = np.add.reduce(equal, axis=1, dtype=np.float64)
        return counts


class NeighborsClassifier(ClosedFormClassifier):
    """The most frequent class among the nearest rows.

    Classes with equally many neighbors: the smaller wins. A partition with fewer rows than
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
        if not is_count(self.n_neighbors):
            raise InvalidInputError(
                f"n_neighbors must be an integer of at least 1, but is {self.n_neighbors!r}."
            )
        if self.metric not in {"euclidean", "cosine"}:
            raise InvalidInputError(
                f"metric must be 'euclidean' or 'cosine', but is {self.metric!r}."
            )

    def _member_settings(self, n_features: int) -> dict[str, Any]:
        return {"n_neighbors": int(self.n_neighbors), "metric": self.metric}

    def _fit_one(self, member: MemberData, settings: dict[str, Any]) -> MemberParts:
        rows = exact_rows(member.X, settings["precision"])
        arrays = {"values": rows.values, "exponents": rows.exponents}
        return MemberParts(member.classes, arrays | {"labels": member.classes[member.y]})

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Fit one classifier to samples of shape (n, d) and their labels."""
        return super().fit(X, y)
