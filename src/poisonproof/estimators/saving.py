"""Saving a fitted classifier to a model directory."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.store import encode_ensemble, encode_object, fingerprint, write_model

__all__ = ["PLAIN_PARAMETERS", "save"]

PLAIN_PARAMETERS = ("n_partitions", "invalid_rows", "n_jobs", "random_state", "verbose")
"""Constructor parameters that are JSON values as they are."""


def save(classifier: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted classifier to a directory."""
    entry, files = encode_ensemble(classifier.ensemble_)
    templates = {
        "estimator": classifier.estimator,
        "features": classifier.features,
        "features_": classifier.features_,
    }
    names = getattr(classifier, "feature_names_in_", None)
    manifest = {
        "classifier": type(classifier).__name__,
        "parameters": {name: getattr(classifier, name) for name in PLAIN_PARAMETERS},
        "classes_declared": classifier.classes is not None,
        "classes": encode_classes(classifier.classes_),
        "partitioner": dict(classifier.partitioner_.specification()),
        "n_features_in": getattr(classifier, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "n_dropped": classifier.n_dropped_,
        "partition_sizes": classifier.partition_sizes_.tolist(),
        "partition_digests": classifier.partition_digests_,
        "member_digests": classifier.ensemble_.digests(),
        "ensemble": entry,
        "fingerprint": fingerprint(),
        "provenance": getattr(classifier, "provenance_", None),
    }
    write_model(path, manifest, {**files, "templates.skops": encode_object(templates)})


def encode_classes(classes: NDArray[Any]) -> dict[str, Any]:
    """Return a label set as JSON values.

    >>> import numpy as np
    >>> encode_classes(np.array(["ham", "spam"]))
    {'dtype': '<U4', 'values': ['ham', 'spam']}
    """
    if classes.dtype.kind not in "biufU":
        raise StoreError(f"labels of type {classes.dtype} cannot be saved; use numbers or strings.")
    return {"dtype": classes.dtype.str, "values": classes.tolist()}
