"""Loading a classifier from a model directory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.estimators.aggregation import PartitionAggregation
from poisonproof.estimators.dpa import DPAClassifier
from poisonproof.estimators.saving import PLAIN_PARAMETERS
from poisonproof.estimators.ssdpa import SSDPAClassifier
from poisonproof.estimators.validation import check_random_state
from poisonproof.exceptions import StoreError
from poisonproof.partition import partitioner_from_specification
from poisonproof.store import decode_ensemble, decode_object, fingerprint, read_model

__all__ = ["load"]

_CLASSIFIERS: dict[str, type[PartitionAggregation]] = {
    kind.__name__: kind for kind in (DPAClassifier, SSDPAClassifier)
}


def load(path: str | os.PathLike[str], *, trusted: Iterable[str] = ()) -> Any:
    """Load a saved classifier. No code in the directory is run.

    Parameters
    ----------
    path : path
        A directory written by ``save``.
    trusted : iterable of str, optional
        Full names of types outside scikit-learn that the model may contain.

    Returns
    -------
    DPAClassifier or SSDPAClassifier
        Fitted; its training rows are not in the directory, so `update` is not available.

    Raises
    ------
    StoreError
        If the directory is damaged, foreign, or holds types that are not trusted.
    """
    manifest, files = read_model(path)
    try:
        return _rebuild(manifest, files, tuple(trusted))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path} is damaged: {type(error).__name__}: {error}.") from error


def _rebuild(manifest: dict[str, Any], files: dict[str, bytes], trusted: tuple[str, ...]) -> Any:
    templates = decode_object(files["templates.skops"], "templates.skops", trusted)
    kind = _CLASSIFIERS[manifest["classifier"]]
    classes = decode_classes(manifest["classes"])
    partitioner = partitioner_from_specification(manifest["partitioner"])
    plain = {name: manifest["parameters"][name] for name in PLAIN_PARAMETERS}
    classifier = kind(
        estimator=templates["estimator"],
        features=templates["features"],
        partitioner=partitioner,
        classes=classes if manifest["classes_declared"] else None,
        **plain,
    )
    classifier.classes_ = classes
    classifier.partitioner_ = partitioner
    classifier.features_ = templates["features_"]
    classifier.n_dropped_ = manifest["n_dropped"]
    classifier.partition_sizes_ = np.asarray(manifest["partition_sizes"], dtype=np.intp)
    classifier.partition_digests_ = list(manifest["partition_digests"])
    if manifest["n_features_in"] is not None:
        classifier.n_features_in_ = manifest["n_features_in"]
    if manifest["feature_names_in"] is not None:
        classifier.feature_names_in_ = np.asarray(manifest["feature_names_in"], dtype=object)
    if manifest.get("provenance") is not None:
        classifier.provenance_ = manifest["provenance"]
    classifier.data_ = None
    classifier.ensemble_ = decode_ensemble(
        manifest["ensemble"], files, classes, classifier.random_state, trusted
    )
    classifier.failures_ = classifier.ensemble_.failures()
    _check_agreement(manifest, classifier)
    return classifier


def _check_agreement(manifest: dict[str, Any], classifier: PartitionAggregation) -> None:
    """Raise `StoreError` if the parts of a model are not parts of one model."""
    check_random_state(classifier.random_state)
    sizes = {
        "n_partitions": classifier.n_partitions,
        "the partitioner": classifier.partitioner_.n_partitions,
        "partition_sizes": len(classifier.partition_sizes_),
        "partition_digests": len(classifier.partition_digests_),
        "member_digests": len(manifest["member_digests"]),
        "the ensemble": len(classifier.ensemble_),
    }
    if len(set(sizes.values())) != 1:
        raise StoreError(f"the manifest's numbers of partitions differ: {sizes}.")
    if type(manifest["n_features_in"]) not in (int, type(None)):
        raise StoreError(f"n_features_in must be a number, got {manifest['n_features_in']!r}.")
    if manifest["fingerprint"]["packages"] != fingerprint()["packages"]:
        return  # digests cover the state as the library that made it wrote it
    for index, digest in enumerate(classifier.ensemble_.digests()):
        if digest != manifest["member_digests"][index]:
            raise StoreError(f"member {index} is not the member that was saved.")


def decode_classes(entry: dict[str, Any]) -> NDArray[Any]:
    """Rebuild a label set from the manifest."""
    dtype = np.dtype(entry["dtype"])
    if dtype.kind not in "biufU":
        raise StoreError(f"labels of type {dtype} are not allowed in a model.")
    classes = np.asarray(entry["values"], dtype=dtype)
    if classes.ndim != 1 or not np.array_equal(classes, np.unique(classes)):
        raise StoreError(f"the manifest's classes are not a sorted label set: {entry['values']!r}.")
    return classes
