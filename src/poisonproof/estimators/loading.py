"""Loading a classifier from a model directory."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

from poisonproof.data.schema import parse_schema
from poisonproof.estimators.certifying import CertifyingClassifier
from poisonproof.estimators.cluster_votes import ClusterVoteClassifier
from poisonproof.estimators.dpa import DPAClassifier, SSDPAClassifier
from poisonproof.estimators.grid import GridClassifier
from poisonproof.estimators.neighbor_votes import NeighborVoteClassifier
from poisonproof.estimators.weighted_votes import WeightedVoteClassifier
from poisonproof.exceptions import GuaranteeError, InvalidInputError, MissingExtraError, StoreError
from poisonproof.members.digest import state_digest
from poisonproof.partition.canonical import CANONICAL_FORM
from poisonproof.partition.grids import SAVED
from poisonproof.partition.partitioners import Partitioner
from poisonproof.partition.values import Categories
from poisonproof.store.items import LIST
from poisonproof.store.manifest import ModelReader, environment_here, is_content_name
from poisonproof.store.objects import decode_object, refuse_types, untrusted_types

_CLASSIFIERS: dict[str, type[CertifyingClassifier]] = {
    "ClusterVoteClassifier": ClusterVoteClassifier,
    "DPAClassifier": DPAClassifier,
    "GridClassifier": GridClassifier,
    "NeighborVoteClassifier": NeighborVoteClassifier,
    "SSDPAClassifier": SSDPAClassifier,
    "WeightedVoteClassifier": WeightedVoteClassifier,
}


def load(path: str | os.PathLike[str], *, trusted: Iterable[str] = ()) -> Any:
    """Load a saved classifier. No code in the store is run.

    The manifest is read and checked now; members are read, and checked against their digests,
    when they first vote.

    Parameters
    ----------
    path : path
        A directory written by ``save`` or ``fit_into``.
    trusted : iterable of str, optional
        Full names of types outside scikit-learn that the model may contain.

    Returns
    -------
    classifier
        Fitted, of the class that was saved. If the store keeps the training rows, `update` finds
        them there.

    Raises
    ------
    StoreError
        If the store is damaged, foreign, or holds types that are not trusted.
    """
    if isinstance(trusted, (str, bytes)) or not isinstance(trusted, Iterable):
        raise InvalidInputError(
            "trusted lists full names of types that you trust, such as "
            f"['your_module.YourNetwork']; got {trusted!r}."
        )
    reader = ModelReader.open(path)
    if any(map(is_content_name, reader.unnamed())):
        warnings.warn(
            f"an update of {path} was interrupted, or is under way: there are files of another "
            "version of the model, which may hold rows that were removed. Update or save the model "
            "to delete them.",
            UserWarning,
            stacklevel=2,
        )
    return rebuild(reader, trusted)


def rebuild(reader: ModelReader, trusted: Iterable[str] = ()) -> Any:
    """Return the classifier that a store describes."""
    trusted = tuple(trusted)
    called = reader.place.called(reader.manifest.templates.name)
    data = reader.place.object(reader.manifest.templates)
    _require_trust(reader, data, trusted)
    templates = decode_object(data, called, trusted)
    try:
        needed = {"estimator": ("fit", "fit_members"), "features": ("transform",)}
        for name, methods in needed.items():
            for part in (templates.get(name), templates.get(f"{name}_")):
                if part is not None and not any(hasattr(part, method) for method in methods):
                    raise StoreError(f"{called} holds no {name} but a {type(part).__name__}.")
        for name, value in reader.manifest.model["parameters"].items():
            if isinstance(value, (list, dict)):
                raise StoreError(f"{name[:80]!r} must be a number or a word, got {value!s:.80}.")
        classifier = _classifier(reader, templates, trusted)
        _check_agreement(reader, classifier)
        get_tags(classifier)  # reads the templates, as the first prediction would
        return classifier
    except Exception as error:  # values that are none make code raise nearly anything
        if isinstance(error, (StoreError, GuaranteeError, MissingExtraError, MemoryError)):
            raise
        raise StoreError(
            f"{reader.place.path} is damaged: {type(error).__name__}: {str(error)[:200]}."
        ) from error


def _require_trust(reader: ModelReader, templates: Any, trusted: tuple[str, ...]) -> None:
    """Refuse types that are not trusted: all those of the model in one error.

    Members are looked into as far as the first, or all of them if something is refused anyway.
    """
    manifest, name, found = reader.manifest, str(reader.place.path), set[str]()
    digests = enumerate(manifest.member_digests if manifest.family == LIST else ())
    fitted = [i for i, digest in digests if not digest.startswith(("constant:", "abstain:"))]
    with suppress(Exception):  # what is damaged is named where it is read
        found |= untrusted_types(templates, name, trusted)
        for index in fitted:
            found |= untrusted_types(reader.member(index).tensors["skops"], name, trusted)
            if not found:
                break
    if found:
        refuse_types(name, found)


def _classifier(reader: ModelReader, templates: Any, trusted: tuple[str, ...]) -> Any:
    model = reader.manifest.model
    kind: Any = _CLASSIFIERS[model["classifier"]]
    parameters = {name: model["parameters"][name] for name in kind.plain_parameters()}
    parameters |= {name: part for name, part in templates.items() if not name.endswith("_")}
    if "partitioner" in kind._get_param_names():
        parameters["partitioner"] = partitioner_from_spec(model["partitioner"])
    classes = decode_classes(model["classes"])
    declared = classes if model["classes_declared"] else None
    schema = None if model["schema"] is None else parse_schema(model["schema"])
    known = schema if schema is not None and schema.frozen else None
    classifier = kind(classes=declared, schema=known, **parameters)
    classifier.classes_, classifier.schema_ = classes, schema
    classifier.n_dropped_ = reader.manifest.notes["n_dropped"]
    classifier.n_groups_ = reader.manifest.notes["n_groups"]
    classifier.container_ = reader.manifest.notes.get("container")
    if model["n_features_in"] is not None:
        classifier.n_features_in_ = model["n_features_in"]
    if model["feature_names_in"] is not None:
        classifier.feature_names_in_ = np.asarray(model["feature_names_in"], dtype=object)
    classifier.categories_ = decode_categories(model.get("categories", {}))
    classifier._restore(reader, templates, trusted)
    return classifier


def _check_agreement(reader: ModelReader, classifier: Any) -> None:
    """Raise `StoreError` if the parts of a model are not parts of one model."""
    manifest, model = reader.manifest, reader.manifest.model
    if model["partitioner"] is not None:
        sizes = {
            "n_partitions": classifier.n_partitions,
            "the partitioner": classifier.partitioner_.n_partitions,
            "members per block": len(manifest.partition_sizes) / classifier.partitioner_.n_blocks,
        }
        if len(set(sizes.values())) != 1:
            raise StoreError(f"the manifest's numbers of partitions differ: {sizes}.")
    width, names = model["n_features_in"], model["feature_names_in"]
    if width is not None and (type(width) is not int or not 0 < width < 2**31):
        raise StoreError(f"n_features_in must be a number of features, got {str(width)[:80]!r}.")
    blocks = getattr(getattr(classifier, "partitioner_", None), "blocks", None)
    if blocks is not None and blocks.n_features not in (None, width):
        raise StoreError(
            f"the blocks are of {blocks.n_features} features, but the rows have {width}."
        )
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (texts and len(names) == width):
        raise StoreError(f"feature_names_in must list the names of {width} features.")
    if manifest.environment["packages"] != environment_here()["packages"]:
        return  # digests cover the state as the library that made it wrote it
    code = (model["learner"] or {}).get("code")
    if code is not None and classifier._learner().specification().get("code") != code:
        raise StoreError(
            f"The source code of network {model['learner'].get('network')} has changed since "
            "training, so votes could differ. Restore it or train again."
        )
    for name, value in classifier._templates().items():
        if state_digest(value) != model["templates"][name]:
            raise StoreError(
                f"{reader.place.called(manifest.templates.name)}: {name} is not what was saved."
            )


def partitioner_from_spec(spec: Mapping[str, Any]) -> Partitioner:
    """Return the partitioner that `Partitioner.spec` described."""
    options = dict(spec)
    name, form = str(options.pop("name", None)), options.pop("canonical_form", None)
    if name in SAVED and form == CANONICAL_FORM:
        try:
            found = SAVED[name](**options)
            if json.loads(json.dumps(found.spec())) == dict(spec):
                return found
        except (KeyError, TypeError, ValueError):  # among them what the partitioner itself refuses
            pass
    raise InvalidInputError(
        f"A saved partitioner is one of {', '.join(map(repr, SAVED))} of canonical form "
        f"{CANONICAL_FORM}, with n_partitions and its own options as it writes them. Got "
        f"{spec!r:.200}."
    )


def decode_categories(entry: dict[str, Any]) -> Categories:
    """Rebuild the declared categories of columns from the manifest."""
    found = {int(j): (tuple(values), ordered) for j, (values, ordered) in entry.items()}
    for values, ordered in found.values():
        if type(ordered) is not bool or not {*map(type, values)} <= {str, float}:
            raise ValueError("categories of a column are text or numbers")
        if len(set(values)) != len(values):
            raise ValueError("a column has a category twice")
        "".join(map(str, values)).encode()  # half of a surrogate pair is no text
    return found


def decode_classes(entry: dict[str, Any]) -> NDArray[Any]:
    """Rebuild a label set from the manifest."""
    dtype = np.dtype(entry["dtype"])
    if dtype.kind not in "biufU":
        raise StoreError(f"labels of type {dtype} are not allowed in a model.")
    classes = np.asarray(entry["values"], dtype=dtype)
    if classes.ndim != 1 or not np.array_equal(classes, np.unique(classes)):
        raise StoreError(f"the manifest's classes are not a sorted label set: {entry['values']!r}.")
    return classes
