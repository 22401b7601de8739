"""What classifiers share whose voters are single training rows: checks, prediction, threats."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates import Certificates
from poisonproof.certificates.threats import (
    OBSERVED_LABELS,
    Threat,
    parse_threat,
    uncertified,
)
from poisonproof.estimators.row_saving import rows_digest, save_rows
from poisonproof.estimators.tags import input_tags
from poisonproof.estimators.training_rows import TrainingRows, check_training_rows
from poisonproof.estimators.usable_rows import unusable, usable_rows
from poisonproof.estimators.validation import check_samples
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.partition import n_rows, sample_digests, take_canonical

__all__ = ["RowVoting", "flat_numbers"]


class RowVoting(ClassifierMixin, BaseEstimator):
    """A classifier that predicts by a vote of training rows, each for its own label."""

    threats: ClassVar[tuple[str, ...]]
    """The threats this method can certify, the first one by default."""

    numbers_only: ClassVar[bool] = True
    """Without a map, rows are compared as numbers."""

    plain_parameters: ClassVar[tuple[str, ...]]
    """Constructor parameters that are JSON values as they are."""

    array_names: ClassVar[tuple[str, ...]]
    """What `_arrays` returns."""

    features: Any
    classes: Any
    invalid_rows: str
    classes_: NDArray[Any]
    n_rows_: int

    @abstractmethod
    def _certify(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        """Return certificates of checked samples, with class indices as labels."""

    @abstractmethod
    def _threat(self, name: str, assumptions: tuple[str, ...]) -> Threat:
        """Return a certified threat with the reach it has here."""

    @abstractmethod
    def _templates(self) -> dict[str, Any]:
        """Return the objects that a stored model holds besides its arrays."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learned."""

    @abstractmethod
    def _restore(self, templates: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `_templates` and `_arrays` returned; parameters are set already."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model: a manifest, its parts and its arrays, no pickle.

        Parameters
        ----------
        path : path
            A directory, or an archive if it ends in ``.zip``. An earlier model there is replaced.
        """
        check_is_fitted(self, "classes_")
        save_rows(self, path)

    def counts(self, X: Any) -> NDArray[np.int64]:
        """Return how many training rows of each class vote on every row of `X`, shape (n, C)."""
        counts: NDArray[np.int64] = self._of(X).counts
        return counts

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of every row, ties to the smaller label."""
        certificates = self._of(X)
        labels: NDArray[Any] = self.classes_[certificates.labels]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each label's share of the votes given, equal shares where nobody votes."""
        counts = self.counts(X).astype(np.float64)
        given = counts.sum(axis=1, keepdims=True)
        shares = np.full_like(counts, 1 / len(self.classes_))
        np.divide(counts, given, out=shares, where=given > 0)
        return shares

    def certify(
        self,
        X: Any,
        threat: str | Threat | None = None,
        target: Any = None,
        *,
        require_declared: bool = False,
    ) -> Certificates:
        """Predict, and prove for every row how large an attack its prediction survives.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame, shape (n, ...)
            Samples.
        threat : {"insert_delete", "label_flip", "replace"}, optional
            What the attacker does to training rows; by default the strongest of the method.
        target : label, optional
            Certify against this one wrong label only.
        require_declared : bool, default=False
            Refuse to certify if `classes` was not declared but taken from the labels.

        Returns
        -------
        Certificates
            ``labels`` are class values.
        """
        check_is_fitted(self, "classes_")
        if require_declared and self.classes is None:
            raise GuaranteeError(
                "the label set was taken from the training labels, so the attacker has a say in "
                "it. Declare it: classes=[...]."
            )
        index = None if target is None else self._class_index(target)
        certificates = self._certify(self._checked(X), self._resolved(threat), index)
        return certificates.with_classes(self.classes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.features is not None:
            tags.input_tags = input_tags(self.features)
        tags.input_tags.pairwise = False
        return tags

    def _training_rows(self, X: Any, y: Any) -> tuple[TrainingRows, NDArray[np.uint8]]:
        """Check the rows; return them and the digests of their samples."""
        rows = check_training_rows(self, X, y, None, None)
        digests = sample_digests(rows.X)
        self.classes_ = rows.classes
        self.n_dropped_ = rows.n_dropped
        self.n_rows_ = n_rows(rows.X)
        self.data_digest_ = rows_digest(digests, rows.y)
        return rows, digests

    def _of(self, X: Any) -> Certificates:
        check_is_fitted(self, "classes_")
        return self._certify(self._checked(X), self._threat(self.threats[0], ()), None)

    def _checked(self, X: Any) -> Any:
        X = check_samples(self, X, reset=False)
        self._refuse_rows(~usable_rows(self, X))
        return take_canonical(X, None)

    def _refuse_rows(self, bad: NDArray[np.bool_]) -> None:
        if bad.any():
            raise InvalidRowsError(
                f"Input X contains {unusable(self)} in row {int(np.argmax(bad))} "
                f"({int(bad.sum())} such rows). Remove them or fill them in, row by row."
            )

    def _resolved(self, asked: str | Threat | None) -> Threat:
        wanted = parse_threat(self.threats[0] if asked is None else asked)
        name = type(self).__name__
        if wanted.name not in self.threats:
            raise uncertified(
                name, self.threats, wanted.name, {wanted.name: "DPAClassifier or another method"}
            )
        if wanted.unit != "row":
            raise GuaranteeError(
                f"{name} counts its certificates in rows, but {wanted.plural} were asked. Ask "
                f"threat={wanted.name!r}, or use DPAClassifier with a partitioner that counts so."
            )
        observed = () if self.classes is not None else (OBSERVED_LABELS,)
        return self._threat(wanted.name, (*wanted.assumptions, *observed))

    def _class_index(self, target: Any) -> int:
        position = np.flatnonzero(self.classes_ == target)
        if len(position) != 1:
            raise InvalidInputError(
                f"target must be one of the classes {self.classes_.tolist()}, got {target!r}."
            )
        return int(position[0])


def flat_numbers(X: Any) -> NDArray[Any]:
    """Return samples as an array of numbers of shape (n, d)."""
    array = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    if array.dtype.kind not in "buif":
        raise InvalidRowsError(
            f"Rows are compared as numbers, but the samples have dtype {array.dtype}. Map them "
            "with features=..., for example poisonproof.features.HashedNGrams for text."
        )
    return array.reshape(len(array), -1)
