"""Neighbour votes: every training row near a test row votes for its own label."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates.plurality import ROW_TOUCHES, certify_row_votes
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.estimators.checked_table import CheckedTable, check_update
from poisonproof.estimators.maps import fresh_map, map_alone, refuse_steps_in_front
from poisonproof.estimators.row_voting import (
    RowVoting,
    flat_numbers,
    require_integers,
    require_rows,
    require_shape,
    rows_digest,
)
from poisonproof.estimators.updating import Receipt, find_rows, row_names
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.features.base import is_own_map, learns_nothing
from poisonproof.features.exact import ExactRows
from poisonproof.members.member import mapped_by
from poisonproof.members.similarity import Neighborhood
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.partitioned import row_keys
from poisonproof.partition.values import take_canonical
from poisonproof.store.manifest import environment_here


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
        Smallest cosine of rows that vote. A declared constant: smaller neighbourhoods are more
        accurate, larger ones have larger radii.
    classes : array of shape (C,), optional
        The label set; see `DPAClassifier`.
    device : str, optional
        "cuda" counts on a GPU, with the same result.
    schema : Schema, optional
        How rows are read; see `DPAClassifier`.
    invalid_rows : {"raise", "drop"}, optional
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

    threats: ClassVar = (*ROW_TOUCHES,)
    touches: ClassVar = ROW_TOUCHES

    def __init__(
        self,
        features: Any = None,
        threshold: float = 0.9,
        *,
        classes: Any = None,
        device: str | None = None,
        schema: Any = None,
        invalid_rows: str | None = None,
    ) -> None:
        self.features = features
        self.threshold = threshold
        self.classes = classes
        self.device = device
        self.schema = schema
        self.invalid_rows = invalid_rows

    def _check_parameters(self) -> None:
        refuse_steps_in_front(self)
        self._neighborhood()  # refuses what is none
        if not learns_nothing(self.features):
            raise GuaranteeError(
                f"{type(self.features).__name__} sees all training rows together, so one inserted "
                "row could change every vote. Use a map from poisonproof.features."
            )

    def _fit_rows(self, rows: CheckedTable, digests: NDArray[np.uint8]) -> None:
        samples = take_canonical(rows.X, None)
        unfitted = None if self.features is None else fresh_map(self.features)
        self.features_ = None if unfitted is None else unfitted.fit(samples[:1])
        self._keep(self._neighborhood().prepare(self._mapped(samples)), rows.y, digests)

    def update(self, add: Any = None, remove: Any = None) -> Self:
        """Add and remove training rows; the result equals `fit` on the new training set.

        The attribute ``receipt_`` says what was done. A stored model changes when it is saved.

        Parameters
        ----------
        add, remove : tuple (X, y), optional
            Rows to add and rows to take out, one copy each.

        Raises
        ------
        InvalidRowsError
            If a row to remove is not in the training set; the model stays as it was.
        """
        check_is_fitted(self)
        if add is None and remove is None:
            raise InvalidInputError("update needs rows to add, rows to remove, or both.")
        rows, labels, digests = self.rows_, self.labels_, self.digests_
        came: tuple[str, ...] = ()
        went: tuple[str, ...] = ()
        if remove is not None:
            gone = check_update(self, remove, "remove")
            names = sample_digests(gone.X)
            went = row_names(names, self.classes_[gone.y])
            found = find_rows(row_keys(digests, labels, None), row_keys(names, gone.y, None))
            kept = np.delete(np.arange(len(labels)), found)
            rows, labels, digests = rows[kept], labels[kept], digests[kept]
        if add is not None:
            new = check_update(self, add, "add")
            mapped = self._neighborhood().prepare(self._mapped(take_canonical(new.X, None)))
            rows = ExactRows(
                np.concatenate([rows.values, mapped.values]),
                np.concatenate([rows.exponents, mapped.exponents]),
            )
            labels = np.concatenate([labels, new.y])
            names = sample_digests(new.X)
            came = row_names(names, self.classes_[new.y])
            digests = np.concatenate([digests, names])
        if not len(labels):
            raise InvalidRowsError("an update cannot remove every row. Nothing changed.")
        self._keep(rows, labels, digests)
        self.n_rows_, self.data_digest_ = len(labels), rows_digest(digests, labels)
        self.environment_, self.stored_as_ = environment_here(), None
        self.receipt_ = Receipt(came, went, (), 0)
        return self

    def _keep(self, rows: ExactRows, y: NDArray[np.int64], digests: NDArray[np.uint8]) -> None:
        """Keep rows in an order that their content decides."""
        order = np.argsort(row_keys(digests, y, None), kind="stable")
        self.rows_, self.labels_, self.digests_ = rows[order], y[order], digests[order]

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "values": self.rows_.values,
            "exponents": self.rows_.exponents,
            "labels": self.labels_,
            "digests": self.digests_,
        }

    def _restore_arrays(
        self, templates: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        n = self.n_rows_
        self.rows_ = require_rows(arrays, n)
        self.labels_ = require_integers(arrays["labels"], n, len(self.classes_))
        self.digests_ = require_shape(arrays["digests"], (n, 32), "u")
        if rows_digest(self.digests_, self.labels_) != self.data_digest_:
            raise ValueError("the rows are others than the manifest says")

    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        near = self._neighborhood()
        rows = near.prepare(self._mapped(self._checked(X)))
        counts = near.count_by_class(rows, self.rows_, self.labels_, len(self.classes_))
        return certify_row_votes(counts, self.n_rows_, threat, target)

    def _neighborhood(self) -> Neighborhood:
        return Neighborhood(self.threshold, self.device)

    def _mapped(self, X: Any) -> np.ndarray[Any, Any]:
        if self.features_ is None:
            return flat_numbers(X)
        transform = partial(mapped_by, self.features_)
        together = is_own_map(self.features_)
        return flat_numbers(transform(X) if together else map_alone(transform, X))
