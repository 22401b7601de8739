"""Members as bytes: scikit-learn objects through skops, arrays through safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from poisonproof import features
from poisonproof.exceptions import StoreError
from poisonproof.learners import closed_form
from poisonproof.learners.base import ArrayEnsemble, Ensemble, Member
from poisonproof.learners.members import AbstainingMember, ConstantMember, MemberList
from poisonproof.learners.scikit import ScikitMember
from poisonproof.store.trees import check_trees

__all__ = ["decode_ensemble", "decode_object", "encode_ensemble", "encode_object"]

TRUSTED = (
    "sklearn.tree._tree.Tree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._dist_metrics.ManhattanDistance64",
    "sklearn.metrics._dist_metrics.ChebyshevDistance64",
    "poisonproof.engines.torch.learner.TorchLearner",
)
"""Types that skops does not trust and that are checked here after loading (see `check_trees`)."""

_RESTORERS = {
    "closed_form": ("poisonproof.learners.closed_form.stacked", "restore_members"),
    "torch": ("poisonproof.engines.torch.ensemble", "restore_members"),
    "tail": ("poisonproof.pretraining.tail_ensemble", "restore_members"),
}
"""Families of ensembles kept as arrays: where the function that rebuilds them lives."""


def own_types() -> set[str]:
    """Return the full names of this library's learners and feature maps.

    Their state is parameters; building one from a file runs nothing but their own code.
    """
    public = [
        getattr(module, name) for module in (closed_form, features) for name in module.__all__
    ]
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in public if isinstance(kind, type)}


def encode_object(value: Any) -> bytes:
    """Encode a scikit-learn object, fitted or not, without pickle."""
    import skops.io

    data: bytes = skops.io.dumps(value)
    return data


def decode_object(data: bytes, name: str, trusted: Iterable[str] = ()) -> Any:
    """Decode what `encode_object` wrote; types outside scikit-learn and `trusted` are refused."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    known = {*TRUSTED, *own_types(), *trusted}
    try:
        value = skops.io.loads(data, trusted=sorted(known))
    except UntrustedTypesFoundException as error:
        strange = sorted(set(skops.io.get_untrusted_types(data=data)) - known)
        raise StoreError(
            f"{name} holds types that poisonproof does not load by itself: {strange}. If you "
            "trust where the model comes from, name them: load(path, trusted=[...])."
        ) from error
    except Exception as error:
        raise StoreError(f"{name} cannot be decoded: {type(error).__name__}: {error}.") from error
    check_trees(value, name)
    return value


def encode_ensemble(ensemble: Ensemble) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest entry and the files of an ensemble."""
    if isinstance(ensemble, MemberList):
        entries = [_member_entry(member) for member in ensemble.members]
        fitted = {
            str(index): member.estimator
            for index, member in enumerate(ensemble.members)
            if isinstance(member, ScikitMember)
        }
        return {"kind": "list", "members": entries}, {"members.skops": encode_object(fitted)}
    if isinstance(ensemble, ArrayEnsemble):
        meta, arrays = ensemble.export()
        contiguous = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
        files = {"members.safetensors": save_arrays(contiguous)}
        return {"kind": ensemble.family, "meta": meta}, files
    raise StoreError(f"ensembles of type {type(ensemble).__name__} cannot be saved.")


def decode_ensemble(
    entry: Mapping[str, Any],
    files: Mapping[str, bytes],
    classes: NDArray[Any],
    seed: int,
    trusted: Iterable[str] = (),
) -> Ensemble:
    """Rebuild an ensemble from its manifest entry and files."""
    kind = entry.get("kind")
    if kind == "list":
        fitted = decode_object(files["members.skops"], "members.skops", trusted)
        return MemberList(
            [
                _decode_member(item, fitted.get(str(index)), classes, seed, index)
                for index, item in enumerate(entry["members"])
            ]
        )
    if kind not in _RESTORERS:
        raise StoreError(f"unknown kind of ensemble {kind!r}; a newer poisonproof may know it.")
    module, name = _RESTORERS[kind]
    try:
        arrays = load_arrays(files["members.safetensors"])
    except SafetensorError as error:
        raise StoreError(f"members.safetensors cannot be decoded: {error}.") from error
    restored: Ensemble = getattr(import_module(module), name)(entry["meta"], arrays)
    return restored


def _member_entry(member: Member) -> dict[str, Any]:
    if isinstance(member, ConstantMember):
        return {"constant": member.label}
    if isinstance(member, AbstainingMember):
        return {"abstains": member.reason}
    if isinstance(member, ScikitMember):
        return {"fitted": True}
    raise StoreError(f"members of type {type(member).__name__} cannot be saved.")


def _decode_member(
    item: Any, estimator: Any, classes: NDArray[Any], seed: int, index: int
) -> Member:
    if isinstance(item, dict):
        if type(item.get("constant")) is int and 0 <= item["constant"] < len(classes):
            return ConstantMember(item["constant"])
        if "abstains" in item and isinstance(item["abstains"], str | None):
            return AbstainingMember(item["abstains"])
        if item.get("fitted") is True and estimator is not None:
            return ScikitMember(estimator, classes, seed, index)
    raise StoreError(f"the manifest's entry of member {index} is damaged: {json.dumps(item)[:80]}.")
