"""Reading a model directory."""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path

from poisonproof.exceptions import StoreError
from poisonproof.files import OpenFolder
from poisonproof.store.manifest import (
    BLOCK_BYTES,
    MANIFEST,
    BlockEntry,
    Item,
    Manifest,
    content_name,
    decode_block,
)
from poisonproof.strict import Buffer

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
