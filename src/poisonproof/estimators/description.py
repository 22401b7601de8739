"""A fitted classifier as the manifest describes it, and the law its members obey."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sklearn
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.learners.digest import state_digest
from poisonproof.store import Manifest, fingerprint, json_digest, without_addresses

__all__ = [
    "Recipe",
    "describe",
    "draft_manifest",
    "encode_classes",
    "member_law",
    "names_of",
    "notes_of",
    "plain",
    "plain_parameters",
    "templates_of",
]

PLAIN_PARAMETERS = ("n_partitions", "invalid_rows", "random_state")
"""Constructor parameters that are JSON values as they are and that decide something."""

COUNTS = ("n_rows", "n_groups", "n_left_out")
"""What a model knows about its data that changes with every update."""

_HEAVY = ("rows_", "ensemble_", "partition_digests_", "partition_sizes_", "failures_", "receipt_")


@dataclass(frozen=True)
class Recipe:
    """Everything besides its rows that a member is a function of, to be sent elsewhere.

    Attributes
    ----------
    classifier : PartitionAggregation
        Without rows and members.
    n_partitions : int
        The number of partitions, k.
    mapped : bool
        Whether the rows that are sent are features already.
    config, filters
        scikit-learn's configuration and the warning filters of this process: both can decide
        whether a member's fit raises.
    """

    classifier: Any
    n_partitions: int
    mapped: bool
    config: dict[str, Any]
    filters: list[Any]

    @classmethod
    def of(cls, classifier: Any, n_partitions: int) -> Recipe:
        """Return the recipe of a classifier that is ready to train."""
        light, mapped = copy.copy(classifier), classifier._features_see_all_rows()
        for name in _HEAVY:
            vars(light).pop(name, None)
        light.n_jobs, light.verbose = None, 0
        if mapped:
            light.features_ = None
        return cls(light, n_partitions, mapped, sklearn.get_config(), list(warnings.filters))

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Give the block the settings of the process that made the recipe."""
        with sklearn.config_context(**self.config), warnings.catch_warnings():
            warnings.filters = self.filters
            yield


def plain_parameters(classifier: Any) -> tuple[str, ...]:
    """Return the names of those parameters of a classifier, or of its class."""
    return (*PLAIN_PARAMETERS, *getattr(classifier, "more_parameters", ()))


def templates_of(classifier: Any) -> dict[str, Any]:
    """Return the objects that a model holds besides its members."""
    return {
        "estimator": classifier.estimator,
        "features": classifier.features,
        "features_": classifier.features_,
    }


def describe(classifier: Any) -> dict[str, Any]:
    """Return what decides a vote or a certificate, as JSON values."""
    return {
        "classifier": type(classifier).__name__,
        "parameters": {name: getattr(classifier, name) for name in plain_parameters(classifier)},
        "classes_declared": classifier.classes is not None,
        "classes": encode_classes(classifier.classes_),
        "partitioner": plain(classifier.partitioner_.specification()),
        "learner": plain(classifier._learner().specification()),
        "templates": {name: state_digest(v) for name, v in templates_of(classifier).items()},
        "context": classifier.context_,
        **names_of(classifier),
    }


def names_of(classifier: Any) -> dict[str, Any]:
    """Return what is known about the columns and where they come from, as JSON values."""
    names = getattr(classifier, "feature_names_in_", None)
    provenance = getattr(classifier, "provenance_", None) or {}
    return {
        "n_features_in": getattr(classifier, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "provenance": plain({k: v for k, v in provenance.items() if k not in COUNTS}) or None,
    }


def member_law(classifier: Any) -> str:
    """Return a digest of everything besides its partition that a member is a function of.

    That is the learner, the label set, the seed, the feature map, the software and the processor;
    where features are learned from all samples, the samples; and the kind of container that the
    learner is handed, if it is no plain array, with the names by which it may choose columns.
    """
    return json_digest(
        _container_of(classifier)
        | {
            "learner": plain(classifier._learner().specification()),
            "classes": encode_classes(classifier.classes_),
            "seed": classifier.random_state,
            "features": state_digest(classifier.features_),
            "context": classifier.context_,
            "environment": fingerprint(),
        }
    )


def _container_of(classifier: Any) -> dict[str, Any]:
    """Return what a learner sees of its rows besides their values; nothing for plain arrays."""
    kind = getattr(classifier, "container_", None)
    if kind != "frame":
        return {} if kind in (None, "array") else {"container": kind}
    return {"container": kind, "columns": names_of(classifier)["feature_names_in"]}


def draft_manifest(
    classifier: Any,
    *,
    family: str,
    shared: Mapping[str, Any],
    member_digests: Sequence[str],
    failures: Mapping[int, str],
) -> Manifest:
    """Return the manifest of a classifier, without the blocks its parts will lie in."""
    return Manifest(
        model=describe(classifier),
        environment=fingerprint(),
        law=member_law(classifier),
        partition_sizes=[int(size) for size in classifier.partition_sizes_],
        partition_digests=list(classifier.partition_digests_),
        family=family,
        shared=dict(shared),
        member_digests=list(member_digests),
        failures={int(i): without_addresses(text) for i, text in failures.items()},
        notes=notes_of(classifier),
    )


def notes_of(classifier: Any) -> dict[str, Any]:
    """Return what decides nothing but is worth knowing, as JSON values."""
    provenance = getattr(classifier, "provenance_", None) or {}
    counts = {key: value for key, value in provenance.items() if key in COUNTS}
    notes = {
        "n_dropped": int(classifier.n_dropped_),
        "counts": counts,
        "n_self_checked": int(getattr(classifier, "n_self_checked_", 0)),
    }
    kind = getattr(classifier, "container_", None)
    return notes if kind is None else {**notes, "container": kind}


def encode_classes(classes: NDArray[Any]) -> dict[str, Any]:
    """Return a label set as JSON values.

    >>> import numpy as np
    >>> encode_classes(np.array(["ham", "spam"]))
    {'dtype': '<U4', 'values': ['ham', 'spam']}
    """
    if classes.dtype.kind not in "biufU":
        raise StoreError(f"labels of type {classes.dtype} cannot be saved; use numbers or strings.")
    return {"dtype": classes.dtype.str, "values": classes.tolist()}


def plain(value: Any) -> Any:
    """Return JSON values without what only identifies an object in memory."""
    text = json.dumps(value, sort_keys=True, default=str)
    return json.loads(without_addresses(text))
