"""A model directory: the manifest, which says what a model is; the blocks it names; reading both.

Hand-written because HDF5 and zarr have many byte forms of one content; a fingerprint needs one.

The manifest has exactly one text for one content (sorted keys, no choice of spaces), and in it a
fingerprint of everything that decides a vote or a certificate. Where things lie in the store
(blocks) is not part of the fingerprint: an updated model has the fingerprint of one trained from
scratch.

Members and the rows of partitions are stored alike: an `Item` is what belongs to one partition, as
named arrays and a few JSON values. A block never has to be understood to be copied, so replacing
one member rewrites the bytes of its neighbours as they are.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import platform
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from poisonproof.exceptions import StoreError
from poisonproof.files import OpenFolder
from poisonproof.strict import Buffer, decode_tensors, encode_tensors, strict_json

BLOCK_BYTES = 2**20
"""Small items share a file until it is this large."""

LARGEST_BLOCK = 2**26
"""No block grows beyond this by another item."""

_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Item:
    """The content of a store for one partition: member or rows, as arrays and JSON values."""

    index: int
    partition: str  # digest of the partition's rows
    digest: str  # of the content: of the member, or of the rows
    about: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockEntry:
    """A block in the manifest: the name of its file, its size, and whose items it holds."""

    name: str
    n_bytes: int
    items: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as JSON values."""
        return {"name": self.name, "bytes": self.n_bytes, "items": list(self.items)}

    @classmethod
    def from_json(cls, value: Any) -> BlockEntry:
        """Read an entry, or raise `ValueError`."""
        kinds = {"name": str, "bytes": int, "items": list}
        if not isinstance(value, dict) or {key: type(v) for key, v in value.items()} != kinds:
            raise ValueError("a block needs a name, a number of bytes and a list of items")
        name, size, items = value["name"], value["bytes"], value["items"]
        sound = all(type(i) is int and i >= 0 for i in items)
        if not (is_content_name(name) and 0 < size < 2**62 and sound):
            raise ValueError(f"{name[:80]!r} of {str(size)[:80]} bytes is not a block of items")
        return cls(name, size, tuple(items))


def content_name(data: Buffer) -> str:
    """Return the name of a file with this content."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def is_content_name(name: Any) -> bool:
    """Return whether `name` is 64 hexadecimal digits, as names of contents are."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def encode_block(items: Sequence[Item]) -> bytes:
    """Return the file that holds `items`; equal items give equal bytes."""
    about = [
        {
            "index": item.index,
            "partition": item.partition,
            "digest": item.digest,
            "about": dict(item.about),
        }
        for item in items
    ]
    tensors = {
        f"{item.index}/{name}": array for item in items for name, array in item.tensors.items()
    }
    text = json.dumps(about, sort_keys=True, allow_nan=False)
    return encode_tensors(tensors, {"about": text})


def decode_block(data: Buffer, name: str) -> dict[int, Item]:
    """Return the items of a block by their index; `name` says what is read if it is damaged."""
    tensors, about = decode_tensors(data, name)
    entries = strict_json(about.get("about", ""), name)
    if not isinstance(entries, list):
        raise StoreError(f"{name} is damaged: it lists no items.")
    own: dict[str, dict[str, NDArray[Any]]] = {}
    for key, array in tensors.items():
        place, slash, called = key.partition("/")
        own.setdefault(place if slash else key + "/", {})[called] = array
    items: dict[int, Item] = {}
    for entry in entries:
        if not _is_entry(entry) or entry["index"] in items:
            raise StoreError(f"{name} is damaged: an item in it is not described.")
        items[entry["index"]] = Item(**entry, tensors=own.pop(str(entry["index"]), {}))
    if own:
        raise StoreError(f"{name} is damaged: it holds arrays that belong to no item.")
    return items


def _is_entry(entry: Any) -> bool:
    kinds = {"index": int, "partition": str, "digest": str, "about": dict}
    return isinstance(entry, dict) and {key: type(v) for key, v in entry.items()} == kinds


def n_bytes(item: Item) -> int:
    """Return how much room the arrays of an item take."""
    return sum(array.nbytes for array in item.tensors.values())


def packed(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Group items into blocks.

    A block is closed at `BLOCK_BYTES`, or at sixteen times its largest item if that is more, up
    to `LARGEST_BLOCK`: thousands of networks must not take thousands of files to be mapped.
    """
    block: list[Item] = []
    size = largest = 0
    for item in items:
        block.append(item)
        room = n_bytes(item)
        size, largest = size + room, max(largest, room)
        if size >= min(max(BLOCK_BYTES, 16 * largest), LARGEST_BLOCK):
            yield block
            block, size, largest = [], 0, 0
    if block:
        yield block


FORMAT = "poisonproof-model"
VERSION = 2
MANIFEST = "manifest.json"
_LARGEST_K = 2**31 - 1
_NOTHING = BlockEntry("", 0, ())


@dataclass(frozen=True)
class Manifest:
    """Everything about a model but its arrays."""

    model: dict[str, Any]  # classifier, parameters, classes, partitioner, learner
    environment: dict[str, Any]  # software and CPU that trained the members
    spec: str  # digest of everything besides its partition that a member is a function of
    partition_sizes: list[int]
    partition_digests: list[str]
    family: str  # which code turns arrays into members
    shared: dict[str, Any]  # what all members have in common
    member_digests: list[str]
    failures: dict[int, str]  # reasons of members that abstain because their learner raised
    templates: BlockEntry = _NOTHING  # the unfitted estimator and the feature map
    members: tuple[BlockEntry, ...] = ()
    rows: tuple[BlockEntry, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)  # what decides nothing

    @property
    def k(self) -> int:
        """The number of partitions."""
        return len(self.partition_digests)

    @property
    def keeps_data(self) -> bool:
        """Whether the training rows are in the store."""
        return bool(self.rows)

    @cached_property
    def data_fingerprint(self) -> str:
        """A digest of the training set: of what every partition holds."""
        return json_digest([self.partition_sizes, self.partition_digests])

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything that decides a vote or a certificate."""
        return json_digest(
            {
                "format": [FORMAT, VERSION],
                "model": self.model,
                "environment": self.environment,
                "spec": self.spec,
                "data": self.data_fingerprint,
                "family": self.family,
                "shared": self.shared,
                "members": self.member_digests,
            }
        )

    @cached_property
    def objects(self) -> dict[str, int]:
        """Name and size of every file the manifest refers to."""
        return {entry.name: entry.n_bytes for entry in self.entries()}

    def entries(self) -> Iterable[BlockEntry]:
        """Return every block."""
        return (self.templates, *self.members, *self.rows)

    def to_bytes(self) -> bytes:
        """Return the one text of this manifest."""
        values = {name: getattr(self, name) for name in _KINDS}
        values |= {
            "failures": {str(index): reason for index, reason in self.failures.items()},
            "templates": self.templates.to_json(),
            "members": [entry.to_json() for entry in self.members],
            "rows": [entry.to_json() for entry in self.rows],
            "fingerprint": self.fingerprint,
            "data_fingerprint": self.data_fingerprint,
        }
        return canonical_json({"format": FORMAT, "version": VERSION, **values})

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Manifest:
        """Read a manifest, or raise `StoreError`; `name` says which file it is."""
        raw = strict_json(data, name)
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise StoreError(f"{name} does not describe a poisonproof model.")
        if raw.get("version") != VERSION or type(raw["version"]) is not int:
            raise StoreError(
                f"{name} has format version {str(raw.get('version'))[:40]!r}; this version of "
                f"poisonproof reads version {VERSION}."
            )
        try:
            manifest = _parsed(raw)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{name} is damaged: {str(error)[:200]}.") from error
        if manifest.to_bytes() != data:
            raise StoreError(
                f"{name} is damaged or was edited: its text is not the canonical one, or "
                "its fingerprint is another."
            )
        return manifest


_KINDS: dict[str, type] = {
    "model": dict,
    "environment": dict,
    "spec": str,
    "partition_sizes": list,
    "partition_digests": list,
    "family": str,
    "shared": dict,
    "member_digests": list,
    "failures": dict,
    "templates": dict,
    "members": list,
    "rows": list,
    "notes": dict,
}


def _parsed(raw: dict[str, Any]) -> Manifest:
    values = {name: raw[name] for name in _KINDS}
    for name, value in values.items():
        if type(value) is not _KINDS[name]:
            raise ValueError(
                f"{name} must be a {_KINDS[name].__name__}, got {type(value).__name__}"
            )
    entry = BlockEntry.from_json
    values["failures"] = {int(index): reason for index, reason in values["failures"].items()}
    values["templates"] = entry(values["templates"])
    values["members"] = tuple(map(entry, values["members"]))
    values["rows"] = tuple(map(entry, values["rows"]))
    manifest = Manifest(**values)
    _check_counts(manifest)
    return manifest


def _check_counts(manifest: Manifest) -> None:
    """Raise `ValueError` unless every list speaks of the same partitions."""
    k = manifest.k
    sizes, digests = manifest.partition_sizes, manifest.member_digests
    if not 1 <= k <= _LARGEST_K or not k == len(sizes) == len(digests):
        raise ValueError(
            f"numbers of partitions differ: {k} digests, {len(sizes)} sizes, {len(digests)} members"
        )
    texts = (*digests, *manifest.partition_digests, *manifest.failures.values())
    if not all(type(size) is int and 0 <= size < 2**62 for size in sizes):
        raise ValueError("sizes of partitions are integers")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("digests and reasons of failures must be text")
    if not all(0 <= index < k for index in manifest.failures):
        raise ValueError("a failure must name a member that exists")
    for blocks in (manifest.members, manifest.rows) if manifest.rows else (manifest.members,):
        if sorted(i for entry in blocks for i in entry.items) != list(range(k)):
            raise ValueError("its blocks do not hold every partition exactly once")


def canonical_json(value: Any) -> bytes:
    """Return the one text of a JSON value."""
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return f"{text}\n".encode()


def json_digest(value: Mapping[str, Any] | list[Any]) -> str:
    """Return the SHA-256 of a JSON value's one text."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


OBJECTS = "objects"
_LARGEST_MANIFEST = 2**31


_OPEN_BLOCKS = 32
"""Decoded blocks kept: a mapped file holds a file descriptor, and those are few."""


class Folder:
    """A model directory: the manifest, and objects named by their content.

    Only plain files in it are read, and no link in it is followed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._decoded: OrderedDict[str, dict[int, Item]] = OrderedDict()
        self._checked: set[str] = set()

    def manifest(self) -> bytes:
        """Return the manifest's bytes."""
        try:
            with OpenFolder(self.path) as folder, os.fdopen(folder.open(MANIFEST), "rb") as file:
                if os.fstat(file.fileno()).st_size > _LARGEST_MANIFEST:
                    raise StoreError(f"{self.path / MANIFEST} is too large for a manifest.")
                return file.read()
        except (FileNotFoundError, NotADirectoryError) as error:
            what = f"it has no {MANIFEST}" if self.path.exists() else "there is nothing there"
            if self.path.is_file():
                what = "that is a directory. Pickle files are never loaded"
            raise StoreError(f"{self.path} is not a poisonproof model: {what}.") from error
        except OSError as error:
            raise _unreadable(self.path / MANIFEST, error) from error

    def names(self) -> list[str]:
        """Return the names of all files of the folder of objects."""
        try:
            with OpenFolder(self.path) as folder, folder.child(OBJECTS) as objects:
                return objects.names()
        except OSError as error:
            raise _unreadable(self.path / OBJECTS, error) from error

    def read(self, name: str, n_bytes: int) -> Buffer:
        """Read or map a file."""
        path = self.path / OBJECTS / name
        try:
            with OpenFolder(self.path) as folder, folder.child(OBJECTS) as objects:
                descriptor = objects.open(name)
        except OSError as error:
            raise _unreadable(path, error) from error
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor).st_size
            if found != n_bytes:
                raise StoreError(
                    f"{path} is damaged: it has {found} bytes, the manifest says {n_bytes}."
                )
            return _mapped(file.fileno()) if n_bytes >= BLOCK_BYTES else file.read()

    def called(self, name: str) -> str:
        """Return what to call an object in a message."""
        return f"{self.path / OBJECTS / name}"

    def object(self, entry: BlockEntry) -> Buffer:
        """Return the bytes of a file, checked the first time."""
        data = self.read(entry.name, entry.n_bytes)
        if entry.name not in self._checked:
            if content_name(data) != entry.name:
                some = ", ".join(map(str, entry.items[:5])) + ", ..." * (len(entry.items) > 5)
                raise StoreError(
                    f"{self.called(entry.name)} is damaged: its content is not the one its "
                    "name stands for." + f" It belongs to partition {some}." * bool(entry.items)
                )
            self._checked.add(entry.name)
        return data

    def block(self, entry: BlockEntry) -> Mapping[int, Item]:
        """Return the items of a block."""
        if entry.name not in self._decoded:
            called = self.called(entry.name)
            items = decode_block(self.object(entry), called)
            if sorted(items) != sorted(entry.items):
                raise StoreError(f"{called} is not the block that the manifest lists.")
            self._decoded[entry.name] = items
            if len(self._decoded) > _OPEN_BLOCKS:
                self._decoded.popitem(last=False)
        self._decoded.move_to_end(entry.name)
        return self._decoded[entry.name]


def _unreadable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path} cannot be read: {error.strerror or error}.")


def _mapped(descriptor: int) -> memoryview:
    """Map a file privately: arrays on it are writable, and no write reaches the file."""
    return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))


class ModelReader:
    """A model on disk: the manifest is read at once, everything else when it is needed.

    Guarantee
    ---------
    Bytes that do not have the content their name says, and items that are not the ones the
    manifest lists, are never returned: `StoreError` names the file.
    """

    def __init__(self, place: Folder, manifest: Manifest) -> None:
        self.place = place
        self.manifest = manifest
        self._member_blocks = {i: entry for entry in manifest.members for i in entry.items}
        self._row_blocks = {i: entry for entry in manifest.rows for i in entry.items}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ModelReader:
        """Read the manifest at `path`."""
        place = Folder(Path(path))
        data = place.manifest()
        return cls(place, Manifest.from_bytes(data, f"{place.path}/{MANIFEST}"))

    def member(self, index: int) -> Item:
        """Return the arrays of one member; they are those of its block, not yet of its digest."""
        return self.members([index])[index]

    def members(self, which: Iterable[int]) -> dict[int, Item]:
        """Return the arrays of some members by their index."""
        digests, blocks = self.manifest.member_digests, self._member_blocks
        return {index: self._item(blocks[index], index, digests[index]) for index in which}

    def rows(self, index: int) -> Item:
        """Return the training rows of one partition as they are kept."""
        if not self.manifest.keeps_data:
            raise StoreError(f"{self.place.path} does not keep its training rows.")
        return self._item(self._row_blocks[index], index, self.manifest.partition_digests[index])

    def unnamed(self) -> list[str]:
        """Return the names of objects that the manifest does not name."""
        return sorted({*self.place.names()} - {*self.manifest.objects})

    def _item(self, entry: BlockEntry, index: int, digest: str) -> Item:
        item = self.place.block(entry)[index]
        if item.digest != digest or item.partition != self.manifest.partition_digests[index]:
            raise StoreError(
                f"{self.place.called(entry.name)} holds an item {index} other than the listed one."
            )
        return item


_PARTS = {"numpy.libs", "scipy.libs", "numpy", "scipy"}
_PACKAGES = ("poisonproof", "numpy", "scipy", "scikit-learn", "torch")


@cache
def environment_here() -> dict[str, Any]:
    """Return library versions, the BLAS in use and the CPU's instructions, read once a process."""
    instructions = np.show_config(mode="dicts")["SIMD Extensions"]
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": {name: installed_version(name) for name in _PACKAGES},
        "blas": sorted(
            {
                " ".join(str(library.get(k)) for k in ("internal_api", "version", "architecture"))
                for library in threadpool_info()
                # Others come and go with what a process happens to import.
                if library["user_api"] == "blas" and _PARTS & set(Path(library["filepath"]).parts)
            }
        ),
        "instructions": sorted([*instructions.get("baseline", []), *instructions.get("found", [])]),
    }


def differences(other: Mapping[str, Any]) -> list[str]:
    """Return, in words, how this machine differs from the one that `other` describes.

    >>> differences(environment_here())
    []
    >>> differences({**environment_here(), "python": "2.7"})[0].startswith("python 2.7 (here ")
    True
    """
    here = environment_here()
    mine, theirs = ({**one, **(one.get("packages") or {})} for one in (here, other))
    found = [
        f"{key} {theirs.get(key)} (here {mine.get(key)})"
        for key in sorted({*mine, *theirs} - {"packages", "instructions"})
        if mine.get(key) != theirs.get(key)
    ]
    if missing := sorted(set(other.get("instructions") or ()) ^ set(here["instructions"])):
        found.append(f"the instruction set (not on both machines: {', '.join(missing)})")
    return found


def installed_version(package: str) -> str | None:
    """Return the version of a distribution, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
