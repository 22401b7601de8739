"""A training run that can be killed: finished members are in the store before the next ones are.

This is the one door through which engines, on this machine or on many, hand over members.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.files import OpenFolder
from poisonproof.members.member import Ensemble
from poisonproof.store.items import SHARED_ITEM, encode_members, shared_of
from poisonproof.store.manifest import (
    BLOCK_BYTES,
    BlockEntry,
    Item,
    content_name,
    decode_block,
    encode_block,
    n_bytes,
)
from poisonproof.store.writing import JOURNAL, FolderWriter, writing
from poisonproof.strict import strict_json

SYNC_SECONDS = 1.0
_MAGIC = b"ppj1"
_FRAME = len(_MAGIC) + 8 + 32

Place = tuple[int, int]
"""Where a record begins, and how long it is."""


class Journal:
    """An append-only file of records, made with the first one.

    Every record is framed by its length and digest. A process that is killed leaves a torn last
    record at worst; the next one drops it and goes on. What a record holds survives the end of the
    process at once, and a power cut after at most `SYNC_SECONDS`.
    """

    def __init__(self, folder: OpenFolder) -> None:
        self._folder = folder
        self._raw: io.FileIO | None = None
        self._end = 0
        self._synced = time.monotonic()

    @property
    def is_empty(self) -> bool:
        """Whether there is no record yet."""
        return self._end == 0

    def records(self) -> Iterator[Place]:
        """Yield the place of every whole record, and cut off what follows the last one."""
        if JOURNAL not in self._folder.names():
            return
        size = os.fstat(self._file.fileno()).st_size
        while place := self._record(self._end, size):
            yield place
            self._end = sum(place)
        if self._end < size:
            self._file.truncate(self._end)

    def append(self, record: bytes) -> Place:
        """Add one record and return its place; the system has it when this returns."""
        frame = _MAGIC + len(record).to_bytes(8, "little") + _digest(record) + record
        try:
            rest = memoryview(frame)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:  # a full disk: leave no torn record to those who go on
            self._file.truncate(self._end)
            raise
        place = self._end + _FRAME, len(record)
        self._end += len(frame)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()
        return place

    def read(self, start: int, size: int) -> bytes:
        """Return the record at a place."""
        self._file.seek(start)
        return self._file.read(size)

    @property
    def _file(self) -> io.FileIO:
        if self._raw is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._raw = io.FileIO(self._folder.open(JOURNAL, flags), "a+")
        return self._raw

    def _record(self, start: int, end: int) -> Place | None:
        """Return the place of the record whose frame begins at `start`, if it is whole."""
        frame = self.read(start, _FRAME)
        size = int.from_bytes(frame[4:12], "little")
        if frame[:4] != _MAGIC or not 0 < size <= end - start - _FRAME:
            return None
        place = start + _FRAME, size
        return place if _digest(self.read(*place)) == frame[12:] else None

    def close(self) -> None:
        """Close the file and leave it where it is."""
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    def remove(self) -> None:
        """Close and delete the file: what it held is stored elsewhere."""
        self.close()
        self._end = 0
        self._folder.remove(JOURNAL)


def _digest(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=32).digest()


class TrainingRun:
    """Members of one spec that are finished, on disk, and those that are missing.

    A member counts as finished only if its spec and the digest of its partition are those of this
    run, whichever run trained it. With `accept_elsewhere` members of machines of another kind
    count, too; `elsewhere` says which software and CPU those had.
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
        self._stored: set[int] = set()
        self._small: dict[int, Place] = {}
        self._large: dict[int, BlockEntry] = {}
        self._last: tuple[Place, dict[int, Item]] | None = None
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
        finished = {*self._small, *self._large, *self._stored}
        return [index for index in self._which if index not in finished]

    def add(self, indices: Sequence[int], members: Ensemble) -> None:
        """Store the members of the partitions `indices` as soon as they are finished."""
        first = self.family is None
        shared = shared_of(members) if first else (str(self.family), self.shared, {})
        self.add_items(shared, encode_members(members, indices, self._partitions))

    def add_items(
        self,
        shared: tuple[str, dict[str, Any], dict[str, NDArray[Any]]],
        items: Sequence[Item],
        elsewhere: dict[str, Any] | None = None,
    ) -> None:
        """Store members that were encoded where they were trained, perhaps `elsewhere`."""
        for item in items:
            if item.partition != self._partitions[item.index]:
                raise StoreError(
                    f"member {item.index} was trained on other rows than its partition holds."
                )
        if self.family is None:
            self.family, self.shared, arrays = shared
            self.shared_arrays = Item(SHARED_ITEM, "", "", {}, arrays) if arrays else None
        with writing(self._writer.path):
            if self._journal.is_empty:
                common = self.shared_arrays and self._writer.put_block([self.shared_arrays])
                self._append(
                    {
                        "spec": self._spec,
                        "family": self.family,
                        "shared": self.shared,
                        "arrays": common and common.to_json(),
                    }
                )
            small, large = list[Item](), list[Item]()
            for item in items:
                (small if n_bytes(item) < BLOCK_BYTES else large).append(item)
            if small:
                place = self._append({"elsewhere": elsewhere}, encode_block(small))
                self._small |= {item.index: place for item in small}
            for item in large:
                entry = self._writer.put_block([item])
                about = {"partition": item.partition, "entry": entry.to_json()}
                self._append({"elsewhere": elsewhere, **about})
                self._large[item.index] = entry
            self._note_elsewhere([item.index for item in items], elsewhere)

    def _append(self, about: dict[str, Any], block: bytes = b"") -> Place:
        """Write a record: a line of JSON, and the members that are kept in the journal itself."""
        return self._journal.append(json.dumps(about, sort_keys=True).encode() + b"\n" + block)

    def _read(self, place: Place) -> tuple[dict[str, Any], dict[int, Item]]:
        about, _, block = self._journal.read(*place).partition(b"\n")
        name = str(self._writer.path / JOURNAL)
        return strict_json(about, name), decode_block(block, name) if block else {}

    def _note_elsewhere(self, indices: Iterable[int], elsewhere: dict[str, Any] | None) -> None:
        for index in indices:
            self.elsewhere.pop(index, None)
            if elsewhere is not None:
                self.elsewhere[index] = elsewhere

    def items(self, indices: Sequence[int]) -> list[Item]:
        """Return finished members as they are stored."""
        return [self._item(index) for index in indices]

    def _item(self, index: int) -> Item:
        if index in self._stored:
            assert self._writer.stored is not None
            return self._writer.stored.member(index)
        if index in self._large:
            return self._get(self._large[index])
        place = self._small[index]
        if self._last is None or self._last[0] != place:
            self._last = place, self._read(place)[1]
        return self._last[1][index]

    def close(self) -> None:
        """Close the journal; the next run reads it."""
        self._journal.close()

    def forget(self) -> None:
        """Drop what this run and killed ones before it have stored; the model there stays."""
        self._journal.remove()
        self._small, self._large = {}, {}

    def _get(self, entry: BlockEntry) -> Item:
        data, path = self._writer.get(entry.name)
        if content_name(data) != entry.name:
            raise StoreError(f"{path} is damaged. Delete it and run again.")
        return decode_block(data, str(path))[entry.items[0]]

    def _is_wanted(self, index: int, partition: str) -> bool:
        return index < len(self._partitions) and self._partitions[index] == partition

    def _read_stored(self) -> None:
        """Find members of the model that is there already."""
        stored = self._writer.stored
        if stored is None or stored.manifest.spec != self._spec:
            return
        manifest, which = stored.manifest, set(self._which)
        self.family, self.shared = manifest.family, manifest.shared
        if manifest.shared_arrays is not None:
            self.shared_arrays = stored.block(manifest.shared_arrays)[SHARED_ITEM]
        known = manifest.partition_digests
        for entry in manifest.members:
            wanted = {i for i in entry.items if i in which and self._is_wanted(i, known[i])}
            try:
                if wanted:
                    stored.block(entry)
            except StoreError:  # damaged: these members are trained again
                continue
            self._stored |= wanted

    def _read_journal(self) -> None:
        """Find members that an earlier run finished, or drop a journal of another spec."""
        records = list(self._journal.records())
        head = self._read(records[0])[0] if records else {}
        if head.get("spec") != self._spec:
            self._journal.remove()
            return
        self.family, self.shared = head["family"], head["shared"]
        if head["arrays"] is not None:
            self.shared_arrays = self._get(BlockEntry.from_json(head["arrays"]))
        for place in records[1:]:
            about, items = self._read(place)
            if about["elsewhere"] is not None and not self._accept:
                continue
            found = [i for i in items if self._is_wanted(i, items[i].partition)]
            self._small |= dict.fromkeys(found, place)
            if "entry" in about:
                entry = BlockEntry.from_json(about["entry"])
                if self._is_wanted(entry.items[0], about["partition"]):
                    self._get(entry)
                    self._large[entry.items[0]] = entry
                    found = [entry.items[0]]
            self._note_elsewhere(found, about["elsewhere"])
