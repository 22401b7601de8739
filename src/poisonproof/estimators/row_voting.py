"""What classifiers share whose voters are single training rows: checks, prediction, threats."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates import Certificates
from poisonproof.certificates.threats import Threat, parse_threat, uncertified
from poisonproof.estimators.certifying import CertifyingClassifier
from poisonproof.estimators.mapped import fresh_map
from poisonproof.estimators.mixing import refuse_mixing
from poisonproof.estimators.row_saving import rows_digest, save_rows
from poisonproof.estimators.tags import input_tags
from poisonproof.estimators.training_rows import TrainingRows, check_training_rows
from poisonproof.estimators.usable_rows import unusable, usable_rows
from poisonproof.estimators.validation import check_samples
from poisonproof.exceptions import GuaranteeError, InvalidRowsError
from poisonproof.learners.members import guarded, mapped_by
from poisonproof.learners.streams import in_own_streams, seed_nested
from poisonproof.partition import n_rows, sample_digests, take_canonical

__all__ = ["RowVoting", "first_copies", "flat_numbers"]


class RowVoting(CertifyingClassifier):
    """A classifier that predicts by a vote of training rows, each for its own label."""

    numbers_only: ClassVar[bool] = True
    """Without a map, rows are compared as numbers."""

    plain_parameters: ClassVar[tuple[str, ...]]
    """Constructor parameters that are JSON values as they are."""

    array_names: ClassVar[tuple[str, ...]]
    """What `_arrays` returns."""

    features: Any
    features_: Any
    random_state: int
    invalid_rows: str
    n_rows_: int

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

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model: a manifest, its parts and its arrays, no pickle.

        Parameters
        ----------
        path : path
            A directory, or an archive if it ends in ``.zip``. An earlier state of the model there
            is replaced.
        overwrite : bool, default=False
            Replace another model that stands there (other members, labels, parameters or columns),
            which is refused otherwise.
        """
        check_is_fitted(self, "classes_")
        save_rows(self, path, overwrite=overwrite)

    def counts(self, X: Any) -> NDArray[np.int64]:
        """Return the votes of each class on every row of `X`, shape (n, C).

        Votes of training rows, or of members that training rows make up: one, if it is
        `WeightedVoteClassifier`.
        """
        counts: NDArray[np.int64] = self._counted(X).counts
        return counts

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

    def _fit_features(self, samples: Any) -> NDArray[Any]:
        """Learn the features from all samples, never from a label, and map these samples."""
        self.features_ = None if self.features is None else fresh_map(self.features)
        if self.features_ is not None:
            seed_nested(self.features_, self.random_state, 0)
            self.features_.fit(guarded(samples))
        return self._mapped(samples)

    def _mapped(self, X: Any) -> NDArray[Any]:
        """Map samples to features; a map that draws random numbers draws the same every time."""
        if self.features_ is None:
            return flat_numbers(X)
        ask = partial(mapped_by, self.features_)
        return flat_numbers(in_own_streams(self.random_state, 0, lambda: ask(guarded(X))))

    def _mapped_asked(self, X: Any) -> NDArray[Any]:
        """Check and map samples to predict; what is asked together must not meet in the map."""
        rows = self._checked(X)
        mapped = self._mapped(rows)
        if self.features_ is not None:
            refuse_mixing(self.features_, self._mapped, rows, mapped)
        return mapped

    def _counted(self, X: Any) -> Certificates:
        check_is_fitted(self, "classes_")
        return self._certified(X, self._threat(self.threats[0], ()), None)

    def _checked(self, X: Any) -> Any:
        X = check_samples(self, X, reset=False)
        self._refuse_rows(~usable_rows(self, X))
        return take_canonical(X, None)

    def _refuse_rows(self, bad: NDArray[np.bool_], limit: float = math.inf) -> None:
        if bad.any():
            raise InvalidRowsError(
                f"Input X contains {unusable(self, limit)} in row {int(np.argmax(bad))} "
                f"({int(bad.sum())} such rows). Remove them or fill them in, row by row."
            )

    def _resolve_threat(self, asked: str | Threat | None, require_declared: bool) -> Threat:
        check_is_fitted(self, "classes_")
        observed = self._assumed_labels(require_declared)
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
        return self._threat(wanted.name, (*wanted.assumptions, *observed))


def flat_numbers(X: Any) -> NDArray[Any]:
    """Return samples as an array of numbers of shape (n, d)."""
    array = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    if array.dtype.kind not in "buif":
        raise InvalidRowsError(
            f"Rows are compared as numbers, but the samples have dtype {array.dtype}. Map them "
            "with features=..., for example poisonproof.features.HashedNGrams for text."
        )
    return array.reshape(len(array), -1)


def first_copies(digests: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return for every row of sorted digests the position of the first equal one."""
    new = np.append(True, (digests[1:] != digests[:-1]).any(axis=1))
    return np.asarray(np.maximum.accumulate(np.where(new, np.arange(len(new)), 0)), dtype=np.int64)
