"""Models whose voters are rows, in the same store as ensembles: all their arrays are one member."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.estimators.description import encode_classes, names_of, plain
from poisonproof.exceptions import StoreError
from poisonproof.learners.digest import state_digest
from poisonproof.partition import row_keys
from poisonproof.store import (
    Item,
    Manifest,
    ModelReader,
    encode_object,
    fingerprint,
    json_digest,
    open_writer,
)

__all__ = ["ROWS", "require_shape", "rows_digest", "save_rows", "stored_arrays", "whole_numbers"]

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
        "partitioner": None if partitioner is None else plain(partitioner.specification()),
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
