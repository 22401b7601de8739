"""Members and training rows as items of a store: arrays, and JSON for everything else."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.exceptions import (
    GuaranteeError,
    InvalidRowsError,
    MissingExtraError,
    PoisonproofError,
    StoreError,
    needing,
)
from poisonproof.members.member import (
    AbstainingMember,
    ArrayEnsemble,
    ConstantMember,
    Content,
    Ensemble,
    Member,
    MemberList,
    is_machine_error,
)
from poisonproof.members.scikit import ScikitMember
from poisonproof.partition.cells import (
    ATTOSECONDS,
    PER_SECOND,
    Instant,
    NoCanonicalFormError,
    canonical_cell,
)
from poisonproof.partition.containers import as_objects, is_pandas, is_sparse
from poisonproof.partition.partitioned import Shard
from poisonproof.progress import Progress
from poisonproof.store.manifest import Item, ModelReader, environment_here
from poisonproof.store.objects import decode_object, encode_object
from poisonproof.strict import strict_json


def encode_cells(cells: Sequence[Any]) -> NDArray[np.uint8]:
    """Return cells as the bytes of a JSON list.

    >>> decode_cells(encode_cells(["ant", 3, None, 0.1, b"x"]))
    ['ant', 3, None, 0.1, b'x']
    """
    text = json.dumps([_encode(cell) for cell in cells], separators=(",", ":"))
    return np.frombuffer(text.encode(), dtype=np.uint8)


def decode_cells(data: NDArray[np.uint8]) -> list[Any]:
    """Return what `encode_cells` was given; raises `ValueError` for anything else."""
    cells = strict_json(data.tobytes(), "a list of cells")
    if not isinstance(cells, list):
        raise ValueError("cells are not a list")
    return [_decode(cell) for cell in cells]


def _encode(cell: Any) -> Any:
    if isinstance(cell, np.generic) and cell.dtype.kind not in "mM":
        cell = cell.item()
    if isinstance(cell, float) and not math.isfinite(cell):
        return {"f": repr(cell)}
    if cell is None or isinstance(cell, str | bool | int | float):
        return cell
    if isinstance(cell, bytes):
        return {"b": cell.hex()}
    if isinstance(cell, list | tuple):
        return {"l": [_encode(part) for part in cell]}
    return _encode_canonical(cell)


def _encode_canonical(cell: Any) -> Any:
    """Keep the value that counts: a member sees 1.50 and 1.5, or a day and its midnight, alike."""
    try:
        value = canonical_cell(cell)
    except NoCanonicalFormError as error:
        raise StoreError(
            f"cells of type {type(cell).__name__} cannot be kept in a store. Save without "
            "keep_data, and give `update` and `audit` the data."
        ) from error
    if isinstance(value, Instant):
        unit, per_second = next(
            (unit, count)
            for unit, count in PER_SECOND.items()
            if value.attoseconds % (ATTOSECONDS // count) == 0
        )
        count = value.seconds * per_second + value.attoseconds * per_second // ATTOSECONDS
        return {"M": [count, f"1{unit}"]}
    return _encode(value)


def _decode(cell: Any) -> Any:
    if not isinstance(cell, dict):
        if isinstance(cell, list):
            raise ValueError("a cell without a tag")
        return cell
    if len(cell) != 1:
        raise ValueError("a cell must have one tag")
    ((tag, value),) = cell.items()
    if tag == "f" and value in ("nan", "inf", "-inf"):
        return float(value)
    if tag == "b":
        return bytes.fromhex(value)
    if tag == "l":
        return [_decode(part) for part in value]
    if tag == "M":
        count, unit = value
        return np.array([count], dtype=np.int64).view(f"M8[{unit}]")[0]
    raise ValueError(f"unknown tag {str(tag)[:40]!r}")


_Tensors = dict[str, NDArray[Any]]


def encode_rows(index: int, shard: Shard) -> Item:
    """Return the rows of one partition as an item; what cannot be kept exactly is refused."""
    about, tensors = _encode_samples(shard.X)
    tensors["y"] = shard.y
    if shard.sample_weight is not None:
        tensors["weight"] = shard.sample_weight
    digest = shard.digest()
    item = Item(index, digest, digest, about, tensors)
    if about["kind"] not in ("array", "sparse"):  # those two are copied bit for bit
        decode_rows(item, f"partition {index}")
    return item


def decode_rows(item: Item, name: str) -> Shard:
    """Return the rows that `encode_rows` was given, or raise `StoreError`; `name` says whose."""
    try:
        X = _decode_samples(item.about, item.tensors)
        y, weight = item.tensors["y"], item.tensors.get("weight")
        lengths = {X.shape[0] if hasattr(X, "shape") else len(X), *y.shape}
        if len(lengths) != 1 or y.dtype != np.int64 or (y < 0).any():
            raise ValueError("samples and labels do not belong together")
        if weight is not None and (weight.shape != y.shape or weight.dtype != np.float64):
            raise ValueError("weights do not belong to the rows")
        shard = Shard.build(X, y, weight)
    except (KeyError, TypeError, ValueError, InvalidRowsError) as error:
        raise StoreError(f"the rows of {name} are damaged: {str(error)[:200]}.") from error
    if shard.digest() != item.digest:
        raise StoreError(
            f"the rows of {name} are not those that were stored, or have cells that a store cannot "
            "keep exactly. Give `update` and `audit` the data instead (keep_data=False)."
        )
    return shard


def _encode_samples(X: Any) -> tuple[dict[str, Any], _Tensors]:
    about: dict[str, Any]
    if is_sparse(X):
        flavour = "array" if isinstance(X, sp.sparray) else "matrix"
        about = {"kind": "sparse", "flavour": flavour, "shape": list(map(int, X.shape))}
        return about, {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    if is_pandas(X):
        series = X.ndim == 1  # a table of one column without a name
        names = [] if series else list(X.columns)
        if not all(type(name) in (str, int) for name in names):
            raise StoreError("a table can be kept only if text or numbers name its columns.")
        columns = [X] if series else [X.iloc[:, j] for j in range(X.shape[1])]
        kept = [_encode_column(j, column) for j, column in enumerate(columns)]
        return {"kind": "series" if series else "frame", "names": names}, dict(kept)
    if isinstance(X, np.ndarray) and _is_plain(X.dtype):
        return {"kind": "array"}, {"X": X}
    listed = isinstance(X, list)
    if listed:
        array = np.empty(len(X), dtype=object)
        array[:] = X if all(np.ndim(row) == 0 for row in X) else [list(row) for row in X]
    else:
        array = as_objects(X)
    about = {"kind": "cells", "shape": list(array.shape), "list": listed}
    return about, {"cells": encode_cells(array.ravel().tolist())}


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf" and dtype.itemsize <= 8


def _encode_column(j: int, column: Any) -> tuple[str, NDArray[Any]]:
    if _is_plain(column.dtype):
        return f"{j}.numbers", column.to_numpy()
    return f"{j}.cells", encode_cells(column.to_list())


def _decode_samples(about: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Any:
    kind = about["kind"]
    if kind == "array":
        return tensors["X"]
    if kind == "sparse":
        container = sp.csr_array if about["flavour"] == "array" else sp.csr_matrix
        rows, columns = about["shape"]
        arrays: Any = tuple(np.array(tensors[name]) for name in ("data", "indices", "indptr"))
        matrix = container(arrays, shape=(int(rows), int(columns)))
        matrix.check_format(full_check=True)
        return matrix
    if kind in ("frame", "series"):
        return _decode_frame([0] if kind == "series" else about["names"], tensors, kind)
    if kind != "cells":
        raise ValueError(f"unknown kind of container {str(kind)[:40]!r}")
    cells = decode_cells(tensors["cells"])
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    array = array.reshape(about["shape"])
    return array.tolist() if about["list"] else array


def _decode_frame(names: Sequence[Any], tensors: Mapping[str, NDArray[Any]], kind: str) -> Any:
    with needing("pandas", "data"):
        import pandas as pd
    columns: dict[int, Any] = {}
    for j in range(len(names)):
        if f"{j}.numbers" in tensors:
            columns[j] = np.array(tensors[f"{j}.numbers"])
        else:
            columns[j] = pd.Series(decode_cells(tensors[f"{j}.cells"]), dtype=object)
    if kind == "series":
        return pd.Series(columns[0])
    text = any(isinstance(name, str) for name in names)
    return pd.DataFrame(columns).set_axis(pd.Index(names, dtype=object if text else None), axis=1)


Text = TypeVar("Text", str, str | None)

LIST = "list"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_RESTORERS = {
    "closed_form": ("poisonproof.members.closed_form.stacked", "restore_members"),
    "torch": ("poisonproof.networks.ensemble", "restore_members"),
}
"""Families of ensembles kept as arrays: where the function that rebuilds them lives."""


def shared_of(ensemble: Ensemble) -> tuple[str, dict[str, Any]]:
    """Return the family of an ensemble, and the JSON values that its members share."""
    if isinstance(ensemble, MemberList):
        return LIST, {}
    exported = _exported(ensemble)
    return exported[0], exported[1]


def _exported(ensemble: Ensemble) -> tuple[str, dict[str, Any], Sequence[Content]]:
    if not isinstance(ensemble, ArrayEnsemble):
        raise StoreError(f"ensembles of type {type(ensemble).__name__} cannot be saved.")
    shared, members = ensemble.export()
    return ensemble.family, json.loads(json.dumps(shared)), members


def encode_members(
    ensemble: Ensemble,
    indices: Sequence[int],
    partition_digests: Sequence[str] | Mapping[int, str],
) -> list[Item]:
    """Return the members of the partitions `indices` as items."""
    digests = ensemble.digests_of(range(len(indices)))
    if isinstance(ensemble, MemberList):
        contents: Sequence[Content] = [_encode_member(member) for member in ensemble.members]
    else:
        contents = _exported(ensemble)[2]
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
    """Return the reason if a member abstains because its learner raised."""
    reason = item.about.get("abstains") or item.about.get("failure")
    return reason if isinstance(reason, str) else None


def decode_members(
    family: str,
    shared: Mapping[str, Any],
    items: Sequence[Item],
    classes: NDArray[Any],
    seed: int,
    trusted: Iterable[str] = (),
) -> Ensemble:
    """Rebuild an ensemble from the items of all its members, in order."""
    if family == LIST:
        return MemberList([_decode_member(item, classes, seed, trusted) for item in items])
    if family not in _RESTORERS:
        raise StoreError(f"unknown kind of ensemble {family[:80]!r}; a newer version may know it.")
    module, name = _RESTORERS[family]
    contents = [(item.about, item.tensors) for item in items]
    restored: Ensemble = getattr(import_module(module), name)(shared, contents)
    return restored


def _encode_member(member: Member) -> Content:
    if isinstance(member, ConstantMember):
        return {"constant": member.label}, {}
    if isinstance(member, AbstainingMember):
        return {"abstains": without_addresses(member.failure)}, {}
    if isinstance(member, ScikitMember):
        data = encode_object(member.estimator)
        tensors: _Tensors = {"skops": np.frombuffer(data, dtype=np.uint8)}
        if member.present is not None:
            tensors["present"] = member.present
        return {"fitted": True}, tensors
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
        present = item.tensors.get("present")
        if present is not None and (
            present.dtype != np.int64
            or present.ndim != 1
            or not (len(present) and np.isin(present, np.arange(len(classes))).all())
        ):
            raise StoreError(f"{name} is damaged: its labels stand for no classes of the model.")
        return ScikitMember(estimator, classes, seed, item.index, present)
    raise StoreError(f"member {item.index} is damaged: {json.dumps(dict(about))[:80]}.")


class StoredEnsemble(Ensemble):
    """The members of a stored model, some of them replaced since it was read.

    Guarantee
    ---------
    No member votes before its file has the content its name stands for and the member has the
    digest the manifest lists. (Members of scikit-learn have one digest per version of the
    library; with other versions installed the file alone is checked.)
    """

    def __init__(
        self,
        reader: ModelReader,
        classes: NDArray[Any],
        seed: int,
        trusted: Iterable[str] = (),
        replaced: Mapping[int, Item] | None = None,
    ) -> None:
        self.reader = reader
        self._classes = classes
        self._seed = seed
        self._trusted = tuple(trusted)
        self._new = dict(replaced or {})
        self._loaded: Ensemble | None = None

    def __len__(self) -> int:
        return self.reader.manifest.k

    @property
    def loaded(self) -> Ensemble:
        """The members in memory (large ones in mapped files), read and checked once."""
        if self._loaded is None:
            self._loaded = self._read()
        return self._loaded

    def votes(self, X: Any, *, n_jobs: int | None, progress: Progress) -> NDArray[np.int16]:
        """Return the vote of every member on every row of `X`, shape (n, k)."""
        ensemble = self.loaded
        try:
            votes = ensemble.votes(X, n_jobs=n_jobs, progress=progress)
        except Exception as error:  # arrays that are those of the file, but of no member
            if isinstance(error, PoisonproofError) or is_machine_error(error):
                raise
            raise self._damaged(error) from error
        lowest, highest = votes.min(initial=ABSTAIN), votes.max(initial=ABSTAIN)
        if lowest < ABSTAIN or highest >= len(self._classes):
            raise StoreError(f"{self.reader.place.path}: a member votes for no class of the model.")
        return votes

    def _damaged(self, error: Exception) -> StoreError:
        said = f"{type(error).__name__}: {str(error)[:200]}"
        return StoreError(f"{self.reader.place.path} is damaged: {said}.")

    def digests_of(self, which: Sequence[int]) -> list[str]:
        """Return the digests of some members, as the manifest lists them."""
        known, new = self.reader.manifest.member_digests, self._new
        return [new[index].digest if index in new else known[index] for index in which]

    def failures(self) -> dict[int, str]:
        """Return the reason of every member that abstains because its learner raised."""
        failures = {i: t for i, t in self.reader.manifest.failures.items() if i not in self._new}
        for index, item in self._new.items():
            reason = failure_of(item)
            if reason is not None:
                failures[index] = reason
        return dict(sorted(failures.items()))

    def part(self, which: Sequence[int]) -> Ensemble:
        """Return some of the members, in memory."""
        return self.loaded.part(which)

    def replaced(self, which: Sequence[int], members: Ensemble) -> StoredEnsemble:
        """Return a copy in which member ``which[j]`` is member j of `members`; reads nothing."""
        manifest = self.reader.manifest
        family, shared = shared_of(members)
        if len(which) and (family, shared) != (manifest.family, manifest.shared):
            raise StoreError(
                "the new members have other settings than the stored ones; fit the model again."
            )
        copy = self.with_items(encode_members(members, which, [""] * len(self)))
        if self._loaded is not None:
            copy._loaded = self._loaded.replaced(which, members)
        return copy

    def with_items(self, items: Sequence[Item]) -> StoredEnsemble:
        """Return a copy in which some members are others, as they would be stored."""
        new = self._new | {item.index: item for item in items}
        return StoredEnsemble(self.reader, self._classes, self._seed, self._trusted, new)

    def item(self, index: int) -> Item:
        """Return one member as it is stored; the digest of a new one's partition is left open."""
        return self._new[index] if index in self._new else self.reader.member(index)

    @property
    def is_changed(self) -> bool:
        """Whether members have been replaced since the store was read."""
        return bool(self._new)

    def _read(self) -> Ensemble:
        manifest = self.reader.manifest
        everyone = range(len(manifest.member_digests))
        items = self.reader.members([i for i in everyone if i not in self._new]) | self._new
        try:
            ensemble = decode_members(
                manifest.family,
                manifest.shared,
                [items[index] for index in everyone],
                self._classes,
                self._seed,
                self._trusted,
            )
            self._check(ensemble)
        except Exception as error:  # values that are none make code raise nearly anything
            if isinstance(error, (StoreError, GuaranteeError, MissingExtraError, MemoryError)):
                raise
            raise self._damaged(error) from error
        return ensemble

    def _check(self, ensemble: Ensemble) -> None:
        """Raise `StoreError` for the first member that is not the one the manifest lists."""
        manifest = self.reader.manifest
        packages = manifest.environment.get("packages")
        if manifest.family == LIST and packages != environment_here()["packages"]:
            return  # the state of an estimator is digested as its own version of the library has it
        everyone = range(len(manifest.member_digests))
        pairs = zip(ensemble.digests_of(everyone), self.digests_of(everyone), strict=True)
        for index, (found, listed) in enumerate(pairs):
            if found != listed:
                raise StoreError(
                    f"{self.reader.place.path}: member {index} is not the member that was saved."
                )
