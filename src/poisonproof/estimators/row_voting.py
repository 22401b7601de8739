"""Models whose voters are rows, in the same store as ensembles: all their arrays are one member."""

from __future__ import annotations

import hashlib
import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat, parse_threat, uncertified
from poisonproof.estimators.certifying import CertifyingClassifier
from poisonproof.estimators.maps import fresh_map, refuse_mixing
from poisonproof.estimators.saving import encode_classes, names_of, plain
from poisonproof.estimators.training_rows import TrainingRows, check_training_rows
from poisonproof.estimators.validation import check_samples, input_tags, unusable, usable_rows
from poisonproof.exceptions import GuaranteeError, InvalidRowsError, StoreError
from poisonproof.members.digest import state_digest
from poisonproof.members.member import guarded, mapped_by
from poisonproof.members.streams import in_own_streams, seed_nested
from poisonproof.partition.canonical import sample_digests
from poisonproof.partition.containers import n_rows
from poisonproof.partition.partitioned import row_keys
from poisonproof.partition.values import take_canonical
from poisonproof.store.blocks import Item
from poisonproof.store.fingerprint import fingerprint
from poisonproof.store.manifest import Manifest, json_digest
from poisonproof.store.objects import encode_object
from poisonproof.store.reading import ModelReader
from poisonproof.store.writing import open_writer

ROWS = "row_votes"
"""What the manifest calls this kind of model."""


def rows_digest(digests: NDArray[np.uint8], y: NDArray[np.int64]) -> str:
    """Return a digest of a training set: of the multiset of its rows, from those of its samples."""
    return hashlib.sha256(np.sort(row_keys(digests, y, None)).tobytes()).hexdigest()


def save_rows(classifier: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a fitted classifier: its parameters, its templates and its arrays."""
    arrays = {name: np.ascontiguousarray(array) for name, array in classifier._arrays().items()}
    templates = classifier._templates()
    digest = _digest(arrays)
    item = Item(0, classifier.data_digest_, digest, {}, arrays)
    with open_writer(path) as writer:
        writer.commit(
            _manifest(classifier, templates, digest),
            lambda: encode_object(templates),
            lambda _index: item,
            None,
            overwrite=overwrite,
        )


def _manifest(classifier: Any, templates: Mapping[str, Any], digest: str) -> Manifest:
    partitioner = getattr(classifier, "partitioner_", None)
    model = {
        "classifier": type(classifier).__name__,
        "parameters": {
            name: _number(getattr(classifier, name)) for name in classifier.plain_parameters
        },
        "partitioner": None if partitioner is None else plain(partitioner.spec()),
        "classes_declared": classifier.classes is not None,
        "classes": encode_classes(classifier.classes_),
        "templates": {name: state_digest(value) for name, value in templates.items()},
        **names_of(classifier),
    }
    environment = fingerprint()
    return Manifest(
        model=model,
        environment=environment,
        law=json_digest({"model": model, "environment": environment}),
        partition_sizes=[int(classifier.n_rows_)],
        partition_digests=[classifier.data_digest_],
        family=ROWS,
        shared={},
        member_digests=[digest],
        failures={},
        notes={"n_dropped": int(classifier.n_dropped_), "counts": {}},
    )


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    return state_digest([(name, arrays[name]) for name in sorted(arrays)])


def _number(value: Any) -> Any:
    """Return a number of NumPy as the same number of Python."""
    return value.item() if isinstance(value, np.generic) else value


def stored_arrays(reader: ModelReader, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a stored model, if they are those the manifest lists."""
    arrays = dict(reader.member(0).tensors)
    if set(arrays) != set(names) or _digest(arrays) != reader.manifest.member_digests[0]:
        raise StoreError(f"{reader.place.path}: its arrays are not those that were saved.")
    return arrays


def require_shape(array: NDArray[Any], shape: tuple[int | None, ...], kind: str) -> NDArray[Any]:
    """Return an array from a file, or raise `ValueError` if code could trip over it.

    Parameters
    ----------
    array : ndarray
        The array.
    shape : tuple of int or None
        Its shape; None stands for any length.
    kind : str
        Allowed kinds of dtype, such as ``"f"``.
    """
    fits = array.ndim == len(shape) and all(
        wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype.kind not in kind:
        raise ValueError(f"an array of shape {array.shape} and type {array.dtype} is out of place")
    return array


def whole_numbers(array: NDArray[Any], n: int | None, below: int) -> NDArray[np.int64]:
    """Return n numbers from 0 up to but not including `below`, or raise `ValueError`."""
    require_shape(array, (n,), "iu")
    if len(array) and not (int(array.min()) >= 0 and int(array.max()) < below):
        raise ValueError(f"numbers from 0 to {below - 1} are expected")
    return array.astype(np.int64)


# What classifiers share whose voters are single training rows: checks, prediction, threats.


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
