"""A training run that can be killed: finished members are in the store before the next ones are.

This is the one door through which engines, on this machine or on many, hand over members.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.members.member import Ensemble
from poisonproof.store.blocks import (
    BLOCK_BYTES,
    BlockEntry,
    Item,
    content_name,
    decode_block,
    encode_block,
)
from poisonproof.store.items import SHARED_ITEM, encode_members, shared_of
from poisonproof.store.writing import JOURNAL, FolderWriter, Journal, writing
from poisonproof.strict import strict_json

_JSON, _BLOCK = b"J", b"B"
"""How a record of the journal begins."""

_ELSEWHERE = "elsewhere"
"""Key of a JSON record that says which kind of machine trained what the next record holds."""


class TrainingRun:
    """Members of one spec that are finished, on disk, and those that are missing.

    Parameters
    ----------
    writer : FolderWriter
        An open writer.
    spec : str
        Digest of everything besides its partition that a member is a function of.
    partition_digests : sequence of str
        What each member is to be trained on.
    which : sequence of int, optional
        The members that matter; all by default.
    accept_elsewhere : bool, default=False
        Whether members count that machines of another kind have trained.

    Attributes
    ----------
    elsewhere : dict of int to dict
        The software and processor of members that machines of another kind have trained.

    Guarantee
    ---------
    A member counts as finished only if its spec and the digest of its partition are those of this
    run, whichever run trained it.
    """

    def __init__(
        self,
        writer: FolderWriter,
        spec: str,
        partition_digests: Sequence[str],
        which: Sequence[int] | None = None,
        *,
        accept_elsewhere: bool = False,
    ) -> None:
        self._writer = writer
        self._spec = spec
        self._partitions = list(partition_digests)
        self._which = range(len(self._partitions)) if which is None else which
        self._journal = Journal(writer.folder)
        self._small: dict[int, tuple[int, int]] = {}
        self._large: dict[int, BlockEntry] = {}
        self._last: tuple[tuple[int, int], dict[int, Item]] | None = None
        self.family: str | None = None
        self.shared: dict[str, Any] = {}
        self.shared_arrays: Item | None = None
        self.elsewhere: dict[int, dict[str, Any]] = {}
        self._accept = accept_elsewhere
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
        self.add_items(shared_of(members), encode_members(members, indices, self._partitions))

    def add_items(
        self,
        shared: tuple[str, dict[str, Any], dict[str, NDArray[Any]]],
        items: Sequence[Item],
        elsewhere: dict[str, Any] | None = None,
    ) -> None:
        """Store members that were encoded where they were trained.

        Parameters
        ----------
        shared : tuple
            Their family, and what all members share, as `shared_of` returns it.
        items : sequence of Item
            The members.
        elsewhere : dict, optional
            The software and processor that trained them, if not those of this run.
        """
        for item in items:
            if item.partition != self._partitions[item.index]:
                raise StoreError(f"member {item.index} was trained on other rows than were asked.")
        if self.family is None:
            self.family, self.shared, arrays = shared
            self.shared_arrays = Item(SHARED_ITEM, "", "", {}, arrays) if arrays else None
        with writing(self._writer.path):
            self._begin()
            small = [item for item in items if item.n_bytes < BLOCK_BYTES]
            if small:
                place = self._append(_BLOCK + encode_block(small), elsewhere)
                self._small |= {item.index: place for item in small}
            for item in items:
                if item.n_bytes >= BLOCK_BYTES:
                    self._add_large(item, elsewhere)
            self._note_elsewhere([item.index for item in items], elsewhere)

    def _append(self, record: bytes, elsewhere: dict[str, Any] | None) -> tuple[int, int]:
        """Write a record, and before it who trained what follows, if it was someone else."""
        if elsewhere is not None:
            self._journal.append(_JSON + json.dumps({_ELSEWHERE: elsewhere}).encode())
        return self._journal.append(record)

    def _note_elsewhere(self, indices: Iterable[int], elsewhere: dict[str, Any] | None) -> None:
        for index in indices:
            self.elsewhere.pop(index, None)
            if elsewhere is not None:
                self.elsewhere[index] = elsewhere

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

    def forget(self) -> None:
        """Drop what this run and killed ones before it have stored; the model there stays."""
        self._journal.remove()
        self._small, self._large = {}, {}

    def _begin(self) -> None:
        """Write down once whose members follow."""
        if self._journal.is_empty:
            arrays = self.shared_arrays
            head = {
                "spec": self._spec,
                "family": self.family,
                "shared": self.shared,
                "arrays": None if arrays is None else self._put(arrays).to_json(),
            }
            self._journal.append(_JSON + json.dumps(head, sort_keys=True).encode())

    def _add_large(self, item: Item, elsewhere: dict[str, Any] | None) -> None:
        entry = self._put(item)
        record = {**entry.to_json(), "partition": item.partition}
        self._append(_JSON + json.dumps(record, sort_keys=True).encode(), elsewhere)
        self._large[item.index] = entry

    def _put(self, item: Item) -> BlockEntry:
        data = encode_block([item])
        return BlockEntry(self._writer.put(data), len(data), (item.index,))

    def _get(self, entry: BlockEntry) -> Item:
        data, path = self._writer.get(entry.name)
        if content_name(data) != entry.name:
            raise StoreError(f"{path} is damaged. Delete it and run again.")
        return decode_block(data, str(path))[entry.items[0]]

    def _read_stored(self) -> None:
        """Find members of the model that is there already."""
        self._stored: set[int] = set()
        stored = self._writer.stored
        if stored is None or stored.manifest.spec != self._spec:
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
        """Find members that an earlier run finished, or drop a journal of another spec."""
        records = list(self._journal.records())
        head = _json(self._journal.read(*records[0])) if records else None
        if head is None or head.get("spec") != self._spec:
            self._journal.remove()
            return
        self.family, self.shared = head["family"], head["shared"]
        if head["arrays"] is not None:
            self.shared_arrays = self._get(BlockEntry.from_json(head["arrays"]))
        elsewhere: dict[str, Any] | None = None
        for place in records[1:]:
            data = self._journal.read(*place)
            record = _json(data)
            if record is not None and _ELSEWHERE in record:
                elsewhere = record[_ELSEWHERE]
                continue
            if elsewhere is None or self._accept:
                found = (
                    self._find_small(data, place) if record is None else self._find_large(record)
                )
                self._note_elsewhere(found, elsewhere)
            elsewhere = None

    def _block(self, record: bytes) -> dict[int, Item]:
        return decode_block(record[len(_BLOCK) :], str(self._writer.path / JOURNAL))

    def _find_small(self, data: bytes, place: tuple[int, int]) -> list[int]:
        found = [
            index
            for index, item in self._block(data).items()
            if index < len(self._partitions) and item.partition == self._partitions[index]
        ]
        self._small |= dict.fromkeys(found, place)
        return found

    def _find_large(self, record: dict[str, Any]) -> list[int]:
        partition = record.pop("partition")
        entry = BlockEntry.from_json(record)
        (index,) = entry.items
        if index >= len(self._partitions) or self._partitions[index] != partition:
            return []
        self._get(entry)
        self._large[index] = entry
        return [index]


def _json(record: bytes) -> dict[str, Any] | None:
    """Return a record that holds JSON, None for a block."""
    if not record.startswith(_JSON):
        return None
    value: dict[str, Any] = strict_json(record[len(_JSON) :], JOURNAL)
    return value
