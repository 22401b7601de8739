"""Neighbour votes: every training row near a test row votes for its own label."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone

from poisonproof.certificates import Certificates, Threat, make_threat
from poisonproof.certificates.row_votes import ROW_TOUCHES, certify_row_votes
from poisonproof.estimators.row_voting import RowVoting, flat_numbers
from poisonproof.estimators.surroundings import learns_nothing, refuse_learned_steps
from poisonproof.exceptions import GuaranteeError
from poisonproof.features.exact import Precision
from poisonproof.learners.similarity import Metric, Neighborhood
from poisonproof.partition import take_canonical

__all__ = ["NeighborVoteClassifier"]


class NeighborVoteClassifier(RowVoting):
    """A vote of all training rows that are near the test row in a fixed feature space.

    It is partition aggregation with a partition for every row: a member knows one row, votes for
    its label if the test row is near, and abstains otherwise. An inserted or deleted row moves
    the gap between two labels by one, so the radius is the whole gap, without the half.

    Parameters
    ----------
    features : transformer, optional
        A fixed map of a sample that learns nothing, from `poisonproof.features`.
    threshold : float, default=0.9
        Smallest cosine, or largest Euclidean distance, of rows that vote. A declared constant:
        smaller neighbourhoods are more accurate, larger ones have larger radii.
    metric : {"cosine", "euclidean"}, default="cosine"
        How rows are compared.
    classes : array of shape (C,), optional
        The label set; see `DPAClassifier`.
    precision : {"single", "double"}, default="single"
        Bits kept of a row, 11 or 25; see `poisonproof.features.exact_rows`.
    device : str, optional
        "cuda" counts on a GPU, with the same result.
    invalid_rows : {"raise", "drop"}, default="raise"
        What to do with a training row that has an unknown label or values that are not finite.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The label set, sorted.
    n_rows_ : int
        Number of training rows, m.

    Guarantee
    ---------
    Whether a row votes is a function of that row, the test row and the parameters, bit for bit:
    neither other rows, nor their order, nor the device can change it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = NeighborVoteClassifier(threshold=0.9, classes=range(10)).fit(X[:1500], y[:1500])
    >>> int(clf.certify(X[1500:]).radius.max()) > 100
    True
    """

    threats: ClassVar = ("insert_delete", "label_flip", "replace")

    def __init__(
        self,
        features: Any = None,
        threshold: float = 0.9,
        *,
        metric: Metric = "cosine",
        classes: Any = None,
        precision: Precision = "single",
        device: str | None = None,
        invalid_rows: str = "raise",
    ) -> None:
        self.features = features
        self.threshold = threshold
        self.metric = metric
        self.classes = classes
        self.precision = precision
        self.device = device
        self.invalid_rows = invalid_rows

    def fit(self, X: Any, y: Any) -> Self:
        """Map the rows to features and keep them.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame, shape (m, ...)
            Samples.
        y : array of shape (m,)
            Labels.
        """
        refuse_learned_steps(self)
        near = self._neighborhood()
        rows = self._training_rows(X, y)
        if self.features is not None and not learns_nothing(self.features):
            raise GuaranteeError(
                f"{type(self.features).__name__} learns from all training rows, so one inserted "
                "row could change every vote. Use a map from poisonproof.features."
            )
        samples = take_canonical(rows.X, None)
        self.features_ = None if self.features is None else clone(self.features).fit(samples[:1])
        self.rows_ = near.prepare(self._mapped(samples))
        self.labels_ = rows.y
        return self

    def _certify(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        near = self._neighborhood()
        asked = near.prepare(self._mapped(X))
        counts = near.count_by_class(asked, self.rows_, self.labels_, len(self.classes_))
        return certify_row_votes(counts, self.n_rows_, threat, target)

    def _threat(self, name: str, assumptions: tuple[str, ...]) -> Threat:
        return make_threat(name, "row", ROW_TOUCHES[name], assumptions)

    def _neighborhood(self) -> Neighborhood:
        return Neighborhood(self.threshold, self.metric, self.precision, self.device)

    def _mapped(self, X: Any) -> np.ndarray[Any, Any]:
        return flat_numbers(X if self.features_ is None else self.features_.transform(X))
