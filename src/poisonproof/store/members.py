"""Members as items of a store, and back.

Ensembles kept as arrays say themselves what belongs to which member (see `ArrayEnsemble.export`);
members of a list are constants, abstentions or scikit-learn estimators.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.learners.base import ArrayEnsemble, Ensemble, Member
from poisonproof.learners.members import AbstainingMember, ConstantMember, MemberList
from poisonproof.learners.scikit import ScikitMember
from poisonproof.store.blocks import Item
from poisonproof.store.objects import decode_object, encode_object

__all__ = [
    "LIST",
    "SHARED_ITEM",
    "decode_members",
    "encode_members",
    "failure_of",
    "shared_of",
    "without_addresses",
]

Text = TypeVar("Text", str, str | None)

LIST = "list"
SHARED_ITEM = 0
"""Index of the one item in the block of arrays that all members share."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_RESTORERS = {
    "closed_form": ("poisonproof.learners.closed_form.stacked", "restore_members"),
    "torch": ("poisonproof.engines.torch.ensemble", "restore_members"),
    "one_label": ("poisonproof.learners.one_label", "restore_members"),
    "head": ("poisonproof.pretraining.head_ensemble", "restore_members"),
    "tail": ("poisonproof.pretraining.tail_ensemble", "restore_members"),
}
"""Families of ensembles kept as arrays: where the function that rebuilds them lives."""


def shared_of(ensemble: Ensemble) -> tuple[str, dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the family of an ensemble, and the JSON values and arrays its members share."""
    if isinstance(ensemble, MemberList):
        return LIST, {}, {}
    if not isinstance(ensemble, ArrayEnsemble):
        raise StoreError(f"ensembles of type {type(ensemble).__name__} cannot be saved.")
    meta, arrays = ensemble.export()
    values = {key: value for key, value in meta.items() if key != "members"}
    shared = {key: array for key, array in arrays.items() if not key[0].isdecimal()}
    return ensemble.family, json.loads(json.dumps(values)), shared


def encode_members(
    ensemble: Ensemble,
    indices: Sequence[int],
    partition_digests: Sequence[str] | Mapping[int, str],
) -> list[Item]:
    """Return the members of an ensemble as items.

    Parameters
    ----------
    ensemble : Ensemble
        Some members of a model.
    indices : sequence of int
        Their partitions.
    partition_digests : sequence or mapping of int to str
        Digests of all partitions of the model, or of these.
    """
    digests = ensemble.digests()
    if isinstance(ensemble, MemberList):
        contents = [_encode_member(member) for member in ensemble.members]
    elif isinstance(ensemble, ArrayEnsemble):
        meta, arrays = ensemble.export()
        own = _by_member(arrays, len(ensemble))
        contents = list(zip(json.loads(json.dumps(meta["members"])), own, strict=True))
    else:
        raise StoreError(f"ensembles of type {type(ensemble).__name__} cannot be saved.")
    return [
        Item(int(index), partition_digests[index], digest, about, tensors)
        for index, digest, (about, tensors) in zip(indices, digests, contents, strict=True)
    ]


def without_addresses(text: Text) -> Text:
    """Return a text without what only identifies objects in memory; None stays None.

    >>> without_addresses("<Net object at 0x7f3a> failed")
    '<Net object> failed'
    """
    return text if text is None else _ADDRESS.sub("", text)


def failure_of(item: Item) -> str | None:
    """Return why a member abstains whose learner raised."""
    reason = item.about.get("abstains") or item.about.get("failure")
    return reason if isinstance(reason, str) else None


def decode_members(
    family: str,
    shared: Mapping[str, Any],
    shared_arrays: Mapping[str, NDArray[Any]],
    items: Sequence[Item],
    classes: NDArray[Any],
    seed: int,
    trusted: Iterable[str] = (),
) -> Ensemble:
    """Rebuild an ensemble from the items of all its members, in order."""
    if family == LIST:
        return MemberList([_decode_member(item, classes, seed, trusted) for item in items])
    if family not in _RESTORERS:
        raise StoreError(f"unknown kind of ensemble {family[:80]!r}; a newer poisonproof may know.")
    module, name = _RESTORERS[family]
    meta = {**shared, "members": [dict(item.about) for item in items]}
    arrays = dict(shared_arrays)
    for place, item in enumerate(items):
        for key, array in item.tensors.items():
            arrays[f"{place}/{key}"] = array
    restored: Ensemble = getattr(import_module(module), name)(meta, arrays)
    return restored


def _by_member(arrays: Mapping[str, NDArray[Any]], n: int) -> list[dict[str, NDArray[Any]]]:
    own: list[dict[str, NDArray[Any]]] = [{} for _ in range(n)]
    for key, array in arrays.items():
        place, _, name = key.partition("/")
        if place.isdecimal():
            own[int(place)][name] = array
    return own


def _encode_member(member: Member) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    if isinstance(member, ConstantMember):
        return {"constant": member.label}, {}
    if isinstance(member, AbstainingMember):
        return {"abstains": without_addresses(member.reason)}, {}
    if isinstance(member, ScikitMember):
        data = encode_object(member.estimator)
        return {"fitted": True}, {"skops": np.frombuffer(data, dtype=np.uint8)}
    raise StoreError(f"members of type {type(member).__name__} cannot be saved.")


def _decode_member(item: Item, classes: NDArray[Any], seed: int, trusted: Iterable[str]) -> Member:
    about = item.about
    if type(about.get("constant")) is int and 0 <= about["constant"] < len(classes):
        return ConstantMember(about["constant"])
    if "abstains" in about and isinstance(about["abstains"], str | None):
        return AbstainingMember(about["abstains"])
    if about.get("fitted") is True and "skops" in item.tensors:
        name = f"member {item.index}"
        estimator = decode_object(item.tensors["skops"].tobytes(), name, trusted)
        return ScikitMember(estimator, classes, seed, item.index)
    raise StoreError(f"member {item.index} is damaged: {json.dumps(dict(about))[:80]}.")
