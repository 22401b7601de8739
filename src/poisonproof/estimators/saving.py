"""A fitted classifier as its manifest describes it, and saving it."""

from __future__ import annotations

import copy
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from poisonproof.data.schema import schema_values
from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.members.digest import state_digest
from poisonproof.members.member import MemberList
from poisonproof.partition.grids import SAVED
from poisonproof.store.items import (
    StoredEnsemble,
    encode_members,
    shared_of,
    without_addresses,
)
from poisonproof.store.manifest import (
    Item,
    Manifest,
    environment_here,
    json_digest,
)
from poisonproof.store.objects import encode_object
from poisonproof.store.writing import ModelWriter

ROWS = "row_votes"
"""The manifest's name for a model in which rows vote."""

_HEAVY = ("rows_", "ensemble_", "partition_digests_", "partition_sizes_", "failures_", "receipt_")


@dataclass(frozen=True)
class TrainingTask:
    """Everything besides its rows that a member is a function of, to be sent elsewhere.

    scikit-learn's configuration and the warning filters can decide whether a member's fit raises.
    """

    classifier: Any  # without rows and members
    n_partitions: int
    mapped: bool  # the rows that are sent are features already
    config: dict[str, Any]
    filters: list[Any]

    @classmethod
    def of(cls, classifier: Any, n_partitions: int) -> TrainingTask:
        """Return the spec of a classifier that is ready to train."""
        light, mapped = copy.copy(classifier), classifier.context_ is not None
        for name in _HEAVY:
            vars(light).pop(name, None)
        light.n_jobs, light.verbose = None, 0
        if mapped:
            light.features_ = None
        return cls(light, n_partitions, mapped, sklearn.get_config(), list(warnings.filters))

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Give the block the settings of the process that made the spec."""
        with sklearn.config_context(**self.config), warnings.catch_warnings():
            warnings.filters = self.filters
            yield


def describe(classifier: Any) -> dict[str, Any]:
    """Return what decides a vote or a certificate, as JSON values."""
    values = {name: getattr(classifier, name) for name in classifier.plain_parameters()}
    partitioner, learner = (
        getattr(classifier, name, None) for name in ("partitioner_", "_learner")
    )
    if partitioner is not None and type(partitioner) is not SAVED.get(partitioner.name):
        known, name = ", ".join(SAVED), type(partitioner).__name__
        raise StoreError(f"{name} is a partitioner of your own; models are saved with {known}.")
    if partitioner is not None and values["n_partitions"] is None:
        values["n_partitions"] = partitioner.k
    specs = {
        "partitioner": None if partitioner is None else partitioner.spec(),
        "learner": None if learner is None else learner().specification(),
    }
    return {
        "classifier": type(classifier).__name__,
        "parameters": {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()},
        "classes_declared": classifier.declared_classes is not None,
        "classes": encode_classes(classifier.classes_),
        **plain(specs),
        "templates": {name: state_digest(v) for name, v in classifier._templates().items()},
        "context": getattr(classifier, "context_", None),
        "schema": None if classifier.schema_ is None else schema_values(classifier.schema_),
        "libraries": {} if classifier.schema_ is None else classifier.schema_.libraries(),
        **names_of(classifier),
    }


def names_of(classifier: Any) -> dict[str, Any]:
    """Return what is known about the columns of features, as JSON values."""
    # The command line trains on plain arrays, so it says itself what their columns are called.
    names = getattr(classifier, "column_names_", getattr(classifier, "feature_names_in_", None))
    categories = getattr(classifier, "categories_", {})
    return {
        **({"categories": plain(categories)} if categories else {}),
        "n_features_in": getattr(classifier, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
    }


def member_spec(classifier: Any, model: Mapping[str, Any]) -> str:
    """Return a digest of everything besides its partition that a member is a function of.

    That is the learner, the label set, the seed, the feature map, the software and the CPU; all
    samples, if features are learned from them; and a container other than a plain array, with the
    names of its columns. `model` is what `describe` returns.
    """
    spec = {
        "learner": model["learner"],
        "classes": model["classes"],
        "seed": classifier.random_state,
        "features": state_digest(classifier.features_),
        "context": model["context"],
        "environment": environment_here(),
    }
    kind = classifier.container_
    if kind not in (None, "array"):
        spec["container"] = kind
    if kind == "frame":
        spec["columns"] = model["feature_names_in"]
        spec |= {key: model[key] for key in ("categories",) if key in model}
    return json_digest(spec)


def draft_manifest(
    classifier: Any,
    model: dict[str, Any],
    family: str,
    member_digests: Sequence[str],
    *,
    spec: str,
    shared: Mapping[str, Any] | None = None,
    failures: Mapping[int, str] | None = None,
    partitions: tuple[Sequence[int], Sequence[str]] | None = None,
) -> Manifest:
    """Return the manifest of a classifier, without the blocks its parts will lie in.

    `model` is what `describe` says of it, and `spec` digests what its members are functions of;
    `partitions` are their sizes and digests, by default those the classifier knows.
    """
    if partitions is None:
        partitions = classifier.partition_sizes_, classifier.partition_digests_
    return Manifest(
        model=model,
        environment=environment_here(),
        spec=spec,
        partition_sizes=[int(size) for size in partitions[0]],
        partition_digests=list(partitions[1]),
        family=family,
        shared=dict(shared or {}),
        member_digests=list(member_digests),
        failures={int(i): without_addresses(text) for i, text in (failures or {}).items()},
        notes=notes_of(classifier),
    )


def notes_of(classifier: Any) -> dict[str, Any]:
    """Return what decides nothing but is worth knowing, as JSON values."""
    notes = {
        "n_dropped": int(classifier.n_dropped_),
        "n_groups": classifier.n_groups_,
        "n_self_checked": int(getattr(classifier, "n_self_checked_", 0)),
    }
    kind = classifier.container_
    return notes if kind is None else {**notes, "container": kind}


def encode_classes(classes: NDArray[Any]) -> dict[str, Any]:
    """Return a label set as JSON values."""
    if classes.dtype.kind not in "biufU":
        raise StoreError(f"labels of type {classes.dtype} cannot be saved; use numbers or strings.")
    return {"dtype": classes.dtype.str, "values": classes.tolist()}


def plain(value: Any) -> Any:
    """Return JSON values without what only identifies an object in memory."""
    text = json.dumps(value, sort_keys=True, default=str)
    return json.loads(without_addresses(text))


def save(
    classifier: Any,
    path: str | os.PathLike[str],
    *,
    keep_data: bool | None = None,
    overwrite: bool = False,
) -> None:
    """Write a fitted ensemble; only what is not there yet is written."""
    ensemble = classifier.ensemble_
    with ModelWriter(path) as writer:
        if isinstance(ensemble, StoredEnsemble) and writer.stored is not None:
            read, there = ensemble.reader, writer.stored
            same = Path(read.place.path).resolve() == Path(there.place.path).resolve()
            if same and read.manifest != there.manifest:
                raise StoreError(
                    f"{writer.path} was changed by someone else after it was loaded. Load it again."
                )
        commit(classifier, writer, keep_data=keep_data, overwrite=overwrite)


def commit(
    classifier: Any,
    writer: ModelWriter,
    *,
    keep_data: bool | None = None,
    overwrite: bool = False,
) -> None:
    """Write an ensemble through an open writer."""
    ensemble, rows = classifier.ensemble_, classifier.rows_
    keep = rows is not None and rows.in_store if keep_data is None else keep_data
    if keep and rows is None:
        raise InvalidInputError(
            "this model was loaded without its training rows, so it cannot keep them. Fit it "
            "again, or save with keep_data=False."
        )
    writer.commit(
        draft(classifier),
        encode_object(classifier._templates()),
        _member_items(ensemble, classifier.partition_digests_),
        rows.items if keep else None,
        # Whoever updates a store pays for what changes, not for what is there.
        check_kept=not isinstance(ensemble, StoredEnsemble),
        overwrite=overwrite,
    )


def draft(classifier: Any) -> Manifest:
    """Return the manifest without blocks."""
    ensemble = classifier.ensemble_
    if not isinstance(ensemble, StoredEnsemble):
        family, shared = shared_of(ensemble)
    else:
        stored = ensemble.reader.manifest
        if not ensemble.is_changed:
            # Whoever trained the members described them; this machine may be another.
            model = stored.model | names_of(classifier)
            return replace(stored, model=model, notes=notes_of(classifier))
        family, shared = stored.family, stored.shared
    model, digests = describe(classifier), ensemble.digests()
    return draft_manifest(
        classifier,
        model,
        family,
        digests,
        spec=member_spec(classifier, model),
        shared=shared,
        failures=ensemble.failures(),
    )


def model_fingerprint(classifier: Any) -> str:
    """Return the fingerprint of a fitted classifier: the one in its manifest, once it is saved.

    It is the SHA-256 of everything that decides a vote or a certificate: spec, label set,
    partitions, members, software and CPU. Training output, reports, receipts and audits show it,
    and ``poisonproof audit --fingerprint`` takes it.
    """
    return str(classifier._fingerprint())


def _member_items(ensemble: Any, digests: list[str]) -> Callable[[list[int]], Iterable[Item]]:
    """Return a function that encodes some members, and not more at a time than it must."""
    if isinstance(ensemble, StoredEnsemble):
        return lambda which: (replace(ensemble.item(i), partition=digests[i]) for i in which)
    if isinstance(ensemble, MemberList):
        members = ensemble.members
        return lambda which: (
            encode_members(MemberList([members[i]]), [i], digests)[0] for i in which
        )
    everyone = encode_members(ensemble, range(len(ensemble)), digests)
    return lambda which: [everyone[i] for i in which]
