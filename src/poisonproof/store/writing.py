"""Writing a model: items as they finish, then one manifest that makes them a model.

The order is what makes it safe. Objects are written first, under names that nothing refers to
yet; the manifest replaces the old one in a single rename; only then are superseded objects
deleted. Killed in between, the store is the old model or the new one, and whoever writes next
clears away what is left over.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from poisonproof.exceptions import StoreError
from poisonproof.locking import LOCK, WriterLock
from poisonproof.replacing import sync_folder
from poisonproof.store.blocks import BlockEntry, Item, content_name, encode_block, packed
from poisonproof.store.files import TEMPORARY, write_atomically, writing
from poisonproof.store.journal import JOURNAL
from poisonproof.store.manifest import MANIFEST, Manifest
from poisonproof.store.places import OBJECTS, open_place
from poisonproof.store.reading import ModelReader

__all__ = ["FolderWriter", "ModelWriter", "check_target"]

GetItem = Callable[[int], Item]
_OURS = {MANIFEST, OBJECTS, LOCK, JOURNAL}


class ModelWriter(ABC):
    """Puts a model into its place.

    Parameters
    ----------
    path : path
        The directory, or the archive if it ends in ``.zip``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.stored: ModelReader | None = None
        """The model that is there already, if its manifest can be read."""
        self._check_kept = True

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @abstractmethod
    def put(self, data: bytes) -> str:
        """Store bytes under the name of their content, and return it."""

    @abstractmethod
    def _finish(self, manifest: Manifest) -> None:
        """Make `manifest` the model, and remove what it does not refer to."""

    def commit(
        self,
        draft: Manifest,
        templates: Callable[[], bytes],
        member: GetItem,
        rows: GetItem | None,
        shared_arrays: Item | None = None,
        *,
        check_kept: bool = True,
    ) -> Manifest:
        """Write what is not stored yet, then the manifest.

        Parameters
        ----------
        draft : Manifest
            Without blocks; they are filled in.
        templates : function
            Returns the unfitted estimator and the feature map as bytes.
        member, rows : function of a partition's index
            Return what is to be stored; called only for what is not stored already. Without
            `rows` the training set is not kept.
        shared_arrays : Item, optional
            Arrays that all members have in common.
        check_kept : bool, default=True
            Read the blocks that need not be written, to be sure that they are whole.
        """
        self._check_kept = check_kept
        with writing(self.path):
            old = None if self.stored is None else self.stored.manifest
            same_member = self._same(draft, "member_digests")
            same_rows = self._same(draft, "partition_digests")
            members = self._arranged(draft.k, old.members if old else (), same_member, member)
            row_blocks = (
                self._arranged(draft.k, old.rows if old else (), same_rows, rows) if rows else ()
            )
            manifest = replace(
                draft,
                templates=self._templates(draft, templates),
                members=members,
                rows=row_blocks,
                shared_arrays=self._put_block([shared_arrays]) if shared_arrays else None,
                keeps_data=rows is not None,
                revision=old.revision + 1 if old else 0,
            )
            self._finish(manifest)
        return replace(manifest, pending=None)

    def _templates(self, draft: Manifest, encode: Callable[[], bytes]) -> BlockEntry:
        if self.stored is not None:
            old, key = self.stored.manifest, "templates"  # digests: equal objects, other encodings
            known = key in old.model and old.model[key] == draft.model.get(key)
            if known and self._is_there(old.templates):
                return old.templates
        data = encode()
        return BlockEntry(self.put(data), len(data), ())

    def _same(self, draft: Manifest, digests: str) -> Callable[[int], bool]:
        """Return a test whether the stored item of a partition is the one to be stored."""
        if self.stored is None:
            return lambda index: False
        old = self.stored.manifest
        if (old.family, old.shared) != (draft.family, draft.shared):
            return lambda index: False
        before, after = (
            list(zip(getattr(m, digests), m.partition_digests, strict=True)) for m in (old, draft)
        )
        return lambda index: index < len(after) and before[index] == after[index]

    def _arranged(
        self, k: int, entries: Iterable[BlockEntry], same: Callable[[int], bool], get: GetItem
    ) -> tuple[BlockEntry, ...]:
        """Keep blocks in which nothing changed, write the others anew, pack what is left."""
        blocks, waiting = list[BlockEntry](), set(range(k))
        for entry in entries:
            items = [index for index in entry.items if index < k]
            if len(items) == len(entry.items) and all(map(same, items)) and self._is_there(entry):
                blocks.append(entry)
            elif any(map(same, items)):
                blocks.append(self._put_block([get(index) for index in items]))
            else:
                continue
            waiting -= set(items)
        blocks += map(self._put_block, packed(get(index) for index in sorted(waiting)))
        return tuple(blocks)

    def _is_there(self, entry: BlockEntry) -> bool:
        return False

    def _put_block(self, items: list[Item]) -> BlockEntry:
        data = encode_block(items)
        return BlockEntry(self.put(data), len(data), tuple(item.index for item in items))


class FolderWriter(ModelWriter):
    """Writes to a model directory, alone."""

    def __enter__(self) -> Self:
        with writing(self.path):
            check_target(self.path)
            (self.path / OBJECTS).mkdir(parents=True, exist_ok=True)
            self._lock = WriterLock(self.path / LOCK).__enter__()
        try:
            with writing(self.path):
                with suppress(StoreError):
                    self.stored = ModelReader.open(self.path)
                self._remove_unfinished()
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, traceback)

    def put(self, data: bytes) -> str:
        """Write an object, unless it is there."""
        name = content_name(data)
        path = self.path / OBJECTS / name
        if not path.is_file() or path.read_bytes() != data:
            write_atomically(path, data, folder=self.path)
        return name

    def _is_there(self, entry: BlockEntry) -> bool:
        path = self.path / OBJECTS / entry.name
        if not path.is_file() or path.stat().st_size != entry.n_bytes:
            return False
        return not self._check_kept or content_name(path.read_bytes()) == entry.name

    def _finish(self, manifest: Manifest) -> None:
        sync_folder(self.path / OBJECTS)
        present = {entry.name for entry in os.scandir(self.path / OBJECTS)}
        if manifest.pending is None and present - set(manifest.objects):
            manifest = replace(manifest, pending={})
        self._write(manifest)
        self._forget_others(manifest)

    def clear(self, *, forget: bool = True) -> None:
        """Finish what an earlier writer began: delete what its manifest superseded.

        Unless `forget`, what is known about the update that did it stays for whoever asked for it.
        """
        if self.stored is not None and self.stored.manifest.pending is not None:
            with writing(self.path):
                self._forget_others(self.stored.manifest, forget=forget)
            self.stored = ModelReader.open(self.path)

    def _forget_others(self, manifest: Manifest, *, forget: bool = True) -> None:
        self.sweep(set(manifest.objects))
        (self.path / JOURNAL).unlink(missing_ok=True)
        sync_folder(self.path)
        if manifest.pending is not None and (forget or not manifest.pending):
            self._write(replace(manifest, pending=None))

    def _write(self, manifest: Manifest) -> None:
        write_atomically(self.path / MANIFEST, manifest.to_bytes())
        sync_folder(self.path)

    def sweep(self, needed: set[str]) -> int:
        """Delete every object that is not `needed`; return how many there were."""
        swept = 0
        for entry in os.scandir(self.path / OBJECTS):
            if entry.name not in needed:
                os.unlink(entry.path)  # noqa: PTH108 - tests count the calls of os
                swept += 1
        if swept:
            sync_folder(self.path / OBJECTS)
        return swept

    def _remove_unfinished(self) -> None:
        """Delete what an earlier writer wrote and could not make part of the model."""
        for entry in os.scandir(self.path):
            if entry.name.startswith(TEMPORARY):
                os.unlink(entry.path)  # noqa: PTH108
        # A journal may refer to objects, and so may a manifest that cannot be read.
        if self.stored is not None and not (self.path / JOURNAL).exists():
            self.sweep(set(self.stored.manifest.objects))


def check_target(path: Path) -> None:
    """Raise `StoreError` if something that is not a model stands where one is to be written."""
    if not path.exists():
        return
    if path.is_dir():
        names = {entry.name for entry in path.iterdir()}
        if MANIFEST in names or all(n in _OURS or n.startswith(TEMPORARY) for n in names):
            return
    else:
        with suppress(StoreError):
            open_place(path).manifest()
            return
    raise StoreError(f"{path} exists and is not a poisonproof model; choose another path.")
