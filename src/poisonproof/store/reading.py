"""Reading a model: the manifest at once, everything else when it is needed and only if it is whole.

Every object is named by its content, so it is checked against its name when it is first read.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping

from poisonproof.exceptions import StoreError
from poisonproof.store.blocks import BlockEntry, Item, content_name, decode_block
from poisonproof.store.manifest import Manifest
from poisonproof.store.places import Place, open_place
from poisonproof.strict import Buffer

__all__ = ["ModelReader"]

_OPEN_BLOCKS = 32
"""Decoded blocks kept: a mapped file holds a file descriptor, and those are few."""


class ModelReader:
    """A model on disk.

    Parameters
    ----------
    place : Place
        Where its files are.
    manifest : Manifest
        What they are.

    Guarantee
    ---------
    Bytes that do not have the content their name says, and items that are not the ones the
    manifest lists, are never returned: `StoreError` names the file.
    """

    def __init__(self, place: Place, manifest: Manifest) -> None:
        self.place = place
        self.manifest = manifest
        self._member_blocks = _places(manifest.members)
        self._row_blocks = _places(manifest.rows)
        self._decoded: OrderedDict[str, dict[int, Item]] = OrderedDict()
        self._checked: set[str] = set()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ModelReader:
        """Read the manifest at `path`."""
        place = open_place(path)
        data = place.manifest()
        return cls(place, Manifest.from_bytes(data, f"{place.path}/manifest.json"))

    def templates(self) -> Buffer:
        """Return the bytes of the templates."""
        return self.object(self.manifest.templates)

    def member(self, index: int) -> Item:
        """Return the arrays of one member; they are those of its block, not yet of its digest."""
        return self._item(self._member_blocks[index], index, self.manifest.member_digests[index])

    def rows(self, index: int) -> Item:
        """Return the training rows of one partition."""
        if not self.manifest.keeps_data:
            raise StoreError(f"{self.place.path} does not keep its training rows.")
        return self._item(self._row_blocks[index], index, self.manifest.partition_digests[index])

    def block(self, entry: BlockEntry) -> Mapping[int, Item]:
        """Return the items of a block."""
        if entry.name in self._decoded:
            self._decoded.move_to_end(entry.name)
            return self._decoded[entry.name]
        called = self.place.called(entry.name)
        items = decode_block(self.object(entry), called)
        if sorted(items) != sorted(entry.items):
            raise StoreError(f"{called} is another block than the manifest says.")
        self._decoded[entry.name] = items
        if len(self._decoded) > _OPEN_BLOCKS:
            self._decoded.popitem(last=False)
        return items

    def object(self, entry: BlockEntry) -> Buffer:
        """Return the bytes of a file, checked the first time."""
        data = self.place.read(entry.name, entry.n_bytes)
        if entry.name not in self._checked:
            if content_name(data) != entry.name:
                raise StoreError(
                    f"{self.place.called(entry.name)} is damaged: its content is not the one its "
                    f"name stands for.{_whose(entry)}"
                )
            self._checked.add(entry.name)
        return data

    def _item(self, entry: BlockEntry, index: int, digest: str) -> Item:
        item = self.block(entry)[index]
        if item.digest != digest or item.partition != self.manifest.partition_digests[index]:
            raise StoreError(
                f"{self.place.called(entry.name)} holds another item {index} than the manifest."
            )
        return item


def _places(entries: tuple[BlockEntry, ...]) -> dict[int, BlockEntry]:
    return {index: entry for entry in entries for index in entry.items}


def _whose(entry: BlockEntry) -> str:
    if not entry.items:
        return ""
    some = ", ".join(map(str, entry.items[:5])) + (", ..." if len(entry.items) > 5 else "")
    return f" It belongs to partition {some}."
