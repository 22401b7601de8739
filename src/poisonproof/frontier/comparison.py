"""The user's rows, and what a candidate certifies on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poisonproof.certificates import Certificates
from poisonproof.frontier.candidates import Candidate, in_rows
from poisonproof.frontier.method import Method

__all__ = ["Comparison"]


@dataclass(frozen=True)
class Comparison:
    """The rows on which candidates are compared, labels as class indices.

    Attributes
    ----------
    name, title : str
        Of the data.
    X_train, X_test : ndarray of shape (m, ...), (n, ...)
        Samples.
    y_train, y_test : ndarray of int
        Class indices.
    command : str
        What is written down as the origin of the results.
    """

    name: str
    title: str
    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    command: str

    def fit(self, classifier: Any) -> Any:
        """Return a copy of a classifier, fitted on the training rows."""
        return clone(classifier).fit(self.X_train, self.y_train)

    def run(self, candidate: Candidate, fitted: Any) -> Method:
        """Certify all test rows with the candidate's classifier, which `fit` has fitted."""
        certify = candidate.certify or type(fitted).certify
        certificates: Certificates = certify(
            fitted, self.X_test, threat=candidate.threat, require_declared=True
        )
        sizes = np.bincount(self.y_train, minlength=len(fitted.classes_))
        return Method(
            f"{self.name}-{candidate.name}",
            self.name,
            self.title,
            candidate.family,
            candidate.title,
            candidate.settings,
            "nothing: all settings are reported",
            self.command,
            # Classes are 0 to C - 1: values are indices.
            replace(certificates, classes=None, threat=in_rows(certificates.threat)),
            self.y_test,
            {
                "n_train": len(self.y_train),
                "train_class_sizes": sizes.tolist(),
                "degree": getattr(fitted, "degree", 1),
            },
        )
