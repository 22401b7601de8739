"""A training run that can be killed: finished members are in the store before the next ones are.

This is the one door through which engines, on this machine or on many, hand over members.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from poisonproof.exceptions import StoreError
from poisonproof.learners.base import Ensemble
from poisonproof.store.blocks import (
    BLOCK_BYTES,
    BlockEntry,
    Item,
    content_name,
    decode_block,
    encode_block,
)
from poisonproof.store.files import writing
from poisonproof.store.journal import JOURNAL, Journal
from poisonproof.store.members import SHARED_ITEM, encode_members, shared_of
from poisonproof.store.places import OBJECTS
from poisonproof.store.tensors import strict_json
from poisonproof.store.writing import FolderWriter

__all__ = ["TrainingRun"]

_JSON, _BLOCK = b"J", b"B"
"""How a record of the journal begins."""


class TrainingRun:
    """Members of one law that are finished, on disk, and those that are missing.

    Parameters
    ----------
    writer : FolderWriter
        An open writer.
    law : str
        Digest of everything besides its partition that a member is a function of.
    partition_digests : sequence of str
        What each member is to be trained on.
    which : sequence of int, optional
        The members that matter; all by default.

    Guarantee
    ---------
    A member counts as finished only if its law and the digest of its partition are those of this
    run, whichever run trained it.
    """

    def __init__(
        self,
        writer: FolderWriter,
        law: str,
        partition_digests: Sequence[str],
        which: Sequence[int] | None = None,
    ) -> None:
        self._writer = writer
        self._law = law
        self._partitions = list(partition_digests)
        self._which = range(len(self._partitions)) if which is None else which
        self._journal = Journal(writer.path / JOURNAL)
        self._small: dict[int, tuple[int, int]] = {}
        self._large: dict[int, BlockEntry] = {}
        self._last: tuple[tuple[int, int], dict[int, Item]] | None = None
        self.family: str | None = None
        self.shared: dict[str, Any] = {}
        self.shared_arrays: Item | None = None
        with writing(writer.path):
            self._read_stored()
            self._read_journal()

    @property
    def missing(self) -> list[int]:
        """Numbers of the members that are not finished."""
        return [index for index in self._which if index not in self]

    def __contains__(self, index: int) -> bool:
        return index in self._small or index in self._large or index in self._stored

    def add(self, indices: Sequence[int], members: Ensemble) -> None:
        """Store members as soon as they are finished.

        Parameters
        ----------
        indices : sequence of int
            Their partitions.
        members : Ensemble
            As many members.
        """
        if self.family is None:
            self.family, self.shared, arrays = shared_of(members)
            self.shared_arrays = Item(SHARED_ITEM, "", "", {}, arrays) if arrays else None
        items = encode_members(members, indices, self._partitions)
        with writing(self._writer.path):
            self._begin()
            small = [item for item in items if item.n_bytes < BLOCK_BYTES]
            if small:
                place = self._journal.append(_BLOCK + encode_block(small))
                self._small |= {item.index: place for item in small}
            for item in items:
                if item.n_bytes >= BLOCK_BYTES:
                    self._add_large(item)

    def item(self, index: int) -> Item:
        """Return a finished member as it is stored."""
        if index in self._stored:
            assert self._writer.stored is not None
            return self._writer.stored.member(index)
        if index in self._large:
            return self._get(self._large[index])
        place = self._small[index]
        if self._last is None or self._last[0] != place:
            self._last = place, self._block(self._journal.read(*place))
        return self._last[1][index]

    def close(self) -> None:
        """Close the journal; the next run reads it."""
        self._journal.close()

    def _begin(self) -> None:
        """Write down once whose members follow."""
        if self._journal.is_empty:
            arrays = self.shared_arrays
            head = {
                "law": self._law,
                "family": self.family,
                "shared": self.shared,
                "arrays": None if arrays is None else self._put(arrays).to_json(),
            }
            self._journal.append(_JSON + json.dumps(head, sort_keys=True).encode())

    def _add_large(self, item: Item) -> None:
        entry = self._put(item)
        record = {**entry.to_json(), "partition": item.partition}
        self._journal.append(_JSON + json.dumps(record, sort_keys=True).encode())
        self._large[item.index] = entry

    def _put(self, item: Item) -> BlockEntry:
        data = encode_block([item])
        return BlockEntry(self._writer.put(data), len(data), (item.index,))

    def _get(self, entry: BlockEntry) -> Item:
        path = self._writer.path / OBJECTS / entry.name
        data = path.read_bytes()
        if content_name(data) != entry.name:
            raise StoreError(f"{path} is damaged. Delete it and run again.")
        return decode_block(data, str(path))[entry.items[0]]

    def _read_stored(self) -> None:
        """Find members of the model that is there already."""
        self._stored: set[int] = set()
        stored = self._writer.stored
        if stored is None or stored.manifest.law != self._law:
            return
        manifest, asked = stored.manifest, set(self._which)
        self.family, self.shared = manifest.family, manifest.shared
        if manifest.shared_arrays is not None:
            self.shared_arrays = stored.block(manifest.shared_arrays)[SHARED_ITEM]
        for entry in manifest.members:
            wanted = {
                index
                for index in entry.items
                if index in asked and manifest.partition_digests[index] == self._partitions[index]
            }
            try:
                if wanted:
                    stored.block(entry)
            except StoreError:  # damaged: these members are trained again
                continue
            self._stored |= wanted

    def _read_journal(self) -> None:
        """Find members that an earlier run finished, or drop a journal of another law."""
        records = list(self._journal.records())
        head = _json(self._journal.read(*records[0])) if records else None
        if head is None or head.get("law") != self._law:
            self._journal.remove()
            return
        self.family, self.shared = head["family"], head["shared"]
        if head["arrays"] is not None:
            self.shared_arrays = self._get(BlockEntry.from_json(head["arrays"]))
        for place in records[1:]:
            data = self._journal.read(*place)
            record = _json(data)
            if record is not None:
                self._find_large(record)
                continue
            for index, item in self._block(data).items():
                if index < len(self._partitions) and item.partition == self._partitions[index]:
                    self._small[index] = place

    def _block(self, record: bytes) -> dict[int, Item]:
        return decode_block(record[len(_BLOCK) :], str(self._writer.path / JOURNAL))

    def _find_large(self, record: dict[str, Any]) -> None:
        partition = record.pop("partition")
        entry = BlockEntry.from_json(record)
        (index,) = entry.items
        if index < len(self._partitions) and self._partitions[index] == partition:
            self._get(entry)
            self._large[index] = entry


def _json(record: bytes) -> dict[str, Any] | None:
    """Return a record that holds JSON, None for a block."""
    if not record.startswith(_JSON):
        return None
    value: dict[str, Any] = strict_json(record[len(_JSON) :], JOURNAL)
    return value
