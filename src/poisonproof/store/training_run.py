"""A training run that can be killed: finished members are in the store before the next ones are.

Local and distributed training store finished members here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any

from poisonproof.exceptions import StoreError
from poisonproof.members.member import Ensemble
from poisonproof.store.items import encode_members, failure_of, shared_of
from poisonproof.store.manifest import BlockEntry, Folder, Item, packed
from poisonproof.store.writing import JOURNAL, ModelWriter, run_digest, writing
from poisonproof.strict import parse_json


class TrainingRun:
    """Members of one spec that are finished, on disk, and those that are missing.

    Finished members are blocks of the store, which a journal lists, one line each. Nothing waits
    for the disk: what a process has written survives its end, and after a power cut a block or
    line that is not whole counts for nothing.

    Guarantee
    ---------
    A member counts as finished only if its spec and the digest of its partition are those of this
    run, whichever run trained it.
    """

    def __init__(
        self,
        writer: ModelWriter,
        spec: str,
        partition_digests: Sequence[str],
        which: Sequence[int] | None = None,
    ) -> None:
        self._writer = writer
        self._place = Folder(writer.path)
        self._spec = spec
        self._partitions = list(partition_digests)
        self._which = range(len(self._partitions)) if which is None else which
        self._blocks: dict[int, BlockEntry] = {}
        self._has_journal = False
        self.family: str | None = None
        self.shared: dict[str, Any] = {}
        self.digests: dict[int, str] = {}
        self.failures: dict[int, str] = {}
        with writing(writer.path):
            self._read_stored()
            self._read_journal()

    @property
    def missing(self) -> list[int]:
        """Numbers of the members that are not finished."""
        return [index for index in self._which if index not in self._blocks]

    def add(self, indices: Sequence[int], members: Ensemble) -> None:
        """Store the members of the partitions `indices` as soon as they are finished."""
        first = self.family is None
        shared = shared_of(members) if first else (str(self.family), self.shared)
        self.add_items(shared, encode_members(members, indices, self._partitions))

    def add_items(self, shared: tuple[str, dict[str, Any]], items: Sequence[Item]) -> None:
        """Store members that were encoded where they were trained."""
        for item in items:
            if item.partition != self._partitions[item.index]:
                raise StoreError(
                    f"member {item.index} was trained on other rows than its partition holds."
                )
        if self.family is None:
            self.family, self.shared = shared
        with writing(self._writer.path):
            if not self._has_journal:
                run = run_digest(self._spec, self._partitions)
                about = {"spec": self._spec, "family": self.family, "shared": self.shared}
                self._append({"run": run, **about})
                self._has_journal = True
            for block in packed(items):
                entry = self._writer.put_block(block, durable=False)
                self._append(entry.to_json())
                self._take(entry, block)

    def _append(self, about: dict[str, Any]) -> None:
        line = json.dumps(about, sort_keys=True)
        self._writer.folder.append(JOURNAL, f"{line}\n".encode())

    def _take(self, entry: BlockEntry, items: Iterable[Item]) -> None:
        """Remember the members of a block that are those of this run."""
        k = len(self._partitions)
        for item in items:
            index = item.index
            if index >= k or item.partition != self._partitions[index]:
                continue
            self._blocks[index], self.digests[index] = entry, item.digest
            if (reason := failure_of(item)) is not None:
                self.failures[index] = reason

    def items(self, indices: Sequence[int]) -> Iterator[Item]:
        """Return finished members as they are stored, the parts of one block after another's."""
        together = groupby(indices, self._blocks.__getitem__)
        blocks = ((self._place.block(entry), some) for entry, some in together)
        return chain.from_iterable([block[index] for index in some] for block, some in blocks)

    def forget(self) -> None:
        """Drop what this run and killed ones before it have stored; the model there stays."""
        self._writer.folder.remove(JOURNAL)

    def _read_stored(self) -> None:
        """Find members of the model that is there already."""
        stored = self._writer.stored
        if stored is None or stored.manifest.spec != self._spec:
            return
        self.family, self.shared = stored.manifest.family, stored.manifest.shared
        known, which = stored.manifest.partition_digests, set(self._which)
        for entry in stored.manifest.members:
            ours = (i for i in which.intersection(entry.items) if i < len(self._partitions))
            if any(known[index] == self._partitions[index] for index in ours):
                self._read_block(entry)

    def _read_block(self, entry: BlockEntry) -> None:
        try:
            items = self._place.block(entry).values()
        except StoreError:  # damaged or lost: these members are trained again
            return
        self._take(entry, items)

    def _read_journal(self) -> None:
        """Find members that an earlier run finished, or drop a journal of another spec."""
        folder = self._writer.folder
        *lines, torn = (folder.read(JOURNAL) or b"").split(b"\n")
        whole = 0
        try:
            for line in lines:
                self._read_record(parse_json(line), first=not whole)
                whole += 1
        except (KeyError, TypeError, ValueError):  # a power cut, or what is no journal
            torn = line
        self._has_journal = whole > 0
        if not whole:
            folder.remove(JOURNAL)
        elif torn:
            folder.write(JOURNAL, b"".join(line + b"\n" for line in lines[:whole]))

    def _read_record(self, about: dict[str, Any], *, first: bool) -> None:
        """Read a line of the journal, or raise `ValueError` or another error of a damaged one."""
        if not first:
            self._read_block(BlockEntry.from_json(about))
            return
        if about["spec"] != self._spec:
            raise ValueError("it is of another spec")
        self.family, self.shared = about["family"], about["shared"]
