"""Classifiers in which training rows vote; a store keeps all their arrays as one member."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import TRUSTED_SAMPLES, Threat, make_threat, parse_threat
from poisonproof.estimators.certifying import CertifyingClassifier
from poisonproof.estimators.checked_table import CheckedTable, check_table
from poisonproof.estimators.maps import fresh_map
from poisonproof.estimators.saving import ROWS, describe, draft_manifest
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError, StoreError
from poisonproof.features.exact import ExactRows
from poisonproof.members.digest import state_digest
from poisonproof.members.member import guarded, mapped_by
from poisonproof.members.streams import in_own_streams, seed_nested
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import kind_of, n_rows
from poisonproof.partition.partitioned import row_keys
from poisonproof.store.manifest import Item, Manifest, ModelReader, environment_here, json_digest
from poisonproof.store.objects import encode_object
from poisonproof.store.writing import ModelWriter


class RowVoting(CertifyingClassifier):
    """A classifier that predicts by a vote of training rows, each for its own label."""

    numbers_only: ClassVar[bool] = True
    """Without a map, rows are compared as numbers."""

    touches: ClassVar[Mapping[str, int]]
    """Threat to how many votes one row changes."""

    random_state: int
    n_rows_: int
    data_digest_: str
    environment_: dict[str, Any]
    stored_as_: str | None

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return what was learned."""

    @abstractmethod
    def _restore_arrays(
        self, templates: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Take back what `_templates` and `_arrays` returned."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the samples which training rows vote where; labels are only counted.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame, shape (m, ...)
            Samples.
        y : array of shape (m,), optional
            Labels; with a schema, by default those in its label column.
        """
        self._check_parameters()
        rows = check_table(self, X, y)
        digests = sample_digests(rows.X)
        self.classes_, self.environment_ = rows.classes, environment_here()
        self.stored_as_ = None
        self.n_dropped_ = rows.n_dropped
        self.n_rows_, self.container_ = n_rows(rows.X), kind_of(rows.X)
        self.data_digest_ = rows_digest(digests, rows.y)
        self._fit_rows(rows, digests)
        return self

    def read_training(
        self, X: Any, y: Any, groups: Any, weight: Any, *, reset: bool
    ) -> tuple[Any, Any, Any, Any, int]:
        """Read training rows, which have no contributors and no weights here."""
        found = super().read_training(X, y, groups, weight, reset=reset)
        if found[2] is not None or found[3] is not None:
            raise InvalidInputError(
                f"{type(self).__name__} certifies rows: its rows have no groups and no weights. "
                "Leave them out (of the schema, too), or use DPAClassifier."
            )
        return found

    def _takes_numbers_alone(self) -> bool:
        return self.features is None and self.numbers_only

    def update(self, add: Any = None, remove: Any = None) -> Self:
        """Refuse: what is learned from all samples may change with each of them."""
        raise InvalidInputError(
            f"{type(self).__name__} cannot be updated: what it learned from all samples may change "
            "with each of them. Train it again on the rows as they are now."
        )

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise if a parameter has no meaning."""

    @abstractmethod
    def _fit_rows(self, rows: CheckedTable, digests: NDArray[np.uint8]) -> None:
        """Learn from checked rows and the digests of their samples."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model: a manifest, its parts and its arrays, no pickle.

        Parameters
        ----------
        path : path
            A directory. An earlier state of the model there is replaced.
        overwrite : bool, default=False
            Replace another model that stands there (other members, labels, parameters or columns),
            which is refused otherwise.
        """
        check_is_fitted(self)
        with ModelWriter(path) as writer:
            self._commit(writer, overwrite=overwrite)

    def _commit(self, writer: ModelWriter, *, overwrite: bool = False) -> None:
        manifest, arrays = self._draft()
        item = Item(0, self.data_digest_, manifest.member_digests[0], {}, arrays)
        templates = encode_object(self._templates())
        writer.commit(manifest, templates, lambda which: [item] * len(which), overwrite=overwrite)

    def _draft(self) -> tuple[Manifest, dict[str, NDArray[Any]]]:
        """Return the manifest without blocks, and the arrays that it speaks of."""
        arrays = {name: np.ascontiguousarray(array) for name, array in self._arrays().items()}
        digest, model = _arrays_digest(arrays), describe(self)
        partitions = [self.n_rows_], [self.data_digest_]
        spec = json_digest({"model": model, "environment": self.environment_})
        drafted = draft_manifest(self, model, ROWS, [digest], spec=spec, partitions=partitions)
        return replace(drafted, environment=self.environment_), arrays

    def _fingerprint(self) -> str:
        check_is_fitted(self)
        return self.stored_as_ or self._draft()[0].fingerprint

    def counts(self, X: Any) -> NDArray[np.int64]:
        """Return the votes of each class on every row of `X`, shape (n, C).

        Votes of training rows, or of members that training rows make up: one, if it is
        `WeightedVoteClassifier`.
        """
        counts: NDArray[np.int64] = self._counted(X).counts
        return counts

    def _restore(
        self, reader: ModelReader, templates: Mapping[str, Any], trusted: Iterable[str]
    ) -> None:
        self.environment_ = reader.manifest.environment
        self.stored_as_ = reader.manifest.fingerprint
        (self.n_rows_,) = reader.manifest.partition_sizes
        (self.data_digest_,) = reader.manifest.partition_digests
        arrays = dict(reader.member(0).tensors)
        listed = reader.manifest.member_digests[0]
        if _arrays_digest(arrays) != listed:
            raise StoreError(f"{reader.place.path}: its arrays are not those that were saved.")
        self.features_ = templates["features_"]
        self._restore_arrays(templates, arrays)

    def _fit_features(self, samples: Any) -> NDArray[Any]:
        """Learn the features from all samples, never from a label, and map these samples."""
        self.features_ = None if self.features is None else fresh_map(self.features)
        if self.features_ is not None:
            seed_nested(self.features_, self.random_state, 0)
            self.features_.fit(guarded(samples))
        return self._mapped(samples)

    def _mapped(self, X: Any) -> NDArray[Any]:
        if self.features_ is None:
            return flat_numbers(X)
        transform = partial(mapped_by, self.features_)
        return flat_numbers(in_own_streams(self.random_state, 0, lambda: transform(guarded(X))))

    def _mapped_samples(self, X: Any) -> NDArray[Any]:
        """Check and map samples to predict."""
        mapped: NDArray[Any] = self._mapped_together(self._checked(X))
        return mapped

    def _counted(self, X: Any) -> Certificates:
        check_is_fitted(self)
        return self._certified(X, self._threat(self.threats[0], ()), None)

    def _threat(self, threat: str | Threat, assumptions: tuple[str, ...]) -> Threat:
        wanted, name = parse_threat(threat), type(self).__name__
        if wanted.unit != "row":
            raise GuaranteeError(
                f"{name} counts its certificates in rows, but {wanted.plural} were requested. Use "
                f"threat={wanted.name!r}, or use DPAClassifier with a partitioner that counts so."
            )
        trusted = () if "insert_delete" in self.threats else (TRUSTED_SAMPLES,)
        given = (*trusted, *wanted.assumptions, *assumptions)
        return make_threat(wanted.name, "row", self.touches[wanted.name], given)


def rows_digest(digests: NDArray[np.uint8], y: NDArray[np.int64]) -> str:
    """Return a digest of a training set: of the multiset of its rows, from those of its samples."""
    return hashlib.sha256(np.sort(row_keys(digests, y, None)).tobytes()).hexdigest()


def _arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    return state_digest([(name, arrays[name]) for name in sorted(arrays)])


def require_shape(array: NDArray[Any], shape: tuple[int | None, ...], kind: str) -> NDArray[Any]:
    """Return an array from a file, or raise `ValueError` if it has another form.

    None in `shape` stands for any length; `kind` lists the allowed kinds of dtype.
    """
    fits = array.ndim == len(shape) and all(
        wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype.kind not in kind:
        raise ValueError(f"an array of shape {array.shape} and type {array.dtype} is out of place")
    return array


def require_integers(array: NDArray[Any], n: int | None, below: int) -> NDArray[np.int64]:
    """Return n integers from 0 up to but not including `below`, or raise `ValueError`."""
    require_shape(array, (n,), "iu")
    if len(array) and not (int(array.min()) >= 0 and int(array.max()) < below):
        raise ValueError(f"numbers from 0 to {below - 1} are expected")
    return array.astype(np.int64)


def require_rows(arrays: Mapping[str, NDArray[Any]], n: int) -> ExactRows:
    """Return n exact rows, or raise `ValueError`."""
    exponents = require_shape(arrays["exponents"], (n,), "i")
    return ExactRows(require_shape(arrays["values"], (n, None), "f"), exponents)


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
