"""What every classifier answers that certifies its votes: labels, shares, certificates."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from poisonproof.certificates import Certificates
from poisonproof.certificates.threats import OBSERVED_LABELS, Threat
from poisonproof.exceptions import GuaranteeError, InvalidInputError

__all__ = ["CertifyingClassifier"]


class CertifyingClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that predicts by a vote, and proves how large an attack the outcome survives."""

    threats: ClassVar[tuple[str, ...]]
    """The threats this method can certify, the first one by default."""

    classes: Any
    classes_: NDArray[Any]

    @abstractmethod
    def _counted(self, X: Any) -> Certificates:
        """Return the outcome of the vote, with class indices as labels, whatever the threat."""

    @abstractmethod
    def _certified(self, X: Any, threat: Threat, target: int | None) -> Certificates:
        """Return certificates against a resolved threat, with class indices as labels."""

    @abstractmethod
    def _resolve_threat(self, asked: str | Threat | None, require_declared: bool) -> Threat:
        """Return a threat that this fitted classifier certifies, or raise."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of every row that has most votes, ties to the smaller label."""
        counted = self._counted(X)
        labels: NDArray[Any] = self.classes_[counted.labels]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return each label's share of the votes given, equal shares where all abstain."""
        counts = self._counted(X).counts.astype(np.float64)
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
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
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

        Raises
        ------
        GuaranteeError
            If nothing proves the certificate that was asked for.
        """
        resolved = self._resolve_threat(threat, require_declared)
        certificates = self._certified(X, resolved, self._class_index(target))
        return certificates.with_classes(self.classes_)

    def _class_index(self, target: Any) -> int | None:
        if target is None:
            return None
        position = np.flatnonzero(self.classes_ == target)
        if len(position) != 1:
            raise InvalidInputError(
                f"target must be one of the classes {self.classes_.tolist()}, got {target!r}."
            )
        return int(position[0])

    def _assumed_labels(self, require_declared: bool) -> tuple[str, ...]:
        """Return what a certificate takes for granted about the label set; none if declared."""
        if self.classes is not None:
            return ()
        if require_declared:
            raise GuaranteeError(
                "the label set was taken from the training labels, so the attacker has a say in "
                "it. Declare it: classes=[...]."
            )
        return (OBSERVED_LABELS,)
