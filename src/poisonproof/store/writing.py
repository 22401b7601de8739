"""Finished members, one after the other, as training goes on.

Every record is framed by its length and digest. A process that is killed leaves a torn last
record at worst; the next one drops it and goes on. What a record holds survives the end of the
process at once, and a power cut after at most `SYNC_SECONDS`.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from poisonproof.exceptions import StoreError
from poisonproof.files import LOCK, LOCK_FLAGS, TEMPORARY, OpenFolder, WriterLock
from poisonproof.store.blocks import (
    BlockEntry,
    Item,
    content_name,
    encode_block,
    is_content_name,
    packed,
)
from poisonproof.store.manifest import MANIFEST, Manifest
from poisonproof.store.reading import OBJECTS, ModelReader, open_place

JOURNAL = "journal"
SYNC_SECONDS = 1.0
_MAGIC = b"ppj1"
_FRAME = len(_MAGIC) + 8 + 32

Place = tuple[int, int]
"""Where a record begins, and how long it is."""


class Journal:
    """An append-only file of records.

    Parameters
    ----------
    folder : OpenFolder
        Where it is; made with the first record.
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


# Writing a model: items as they finish, then one manifest that makes them a model.
#
# The order is what makes it safe. Objects are written first, under names that nothing refers to
# yet; the manifest replaces the old one in a single rename; only then are superseded objects
# deleted. Killed in between, the store is the old model or the new one, and whoever writes next
# clears away what is left over.

GetItem = Callable[[int], Item]
_OURS = {MANIFEST, OBJECTS, LOCK, JOURNAL}
_IDENTITY = (
    "classifier",
    "parameters",
    "classes_declared",
    "classes",
    "partitioner",
    "learner",
    "n_features_in",
    "feature_names_in",
    "provenance",
)
"""What a model and its later states have in common, whichever rows they were trained on."""


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
        """The model that is there already, if its manifest can be read and its files kept."""
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
        templates: bytes,
        member: GetItem,
        rows: GetItem | None = None,
        shared_arrays: Item | None = None,
        *,
        check_kept: bool = True,
        overwrite: bool = False,
    ) -> Manifest:
        """Write what is not stored yet, then the manifest.

        Parameters
        ----------
        draft : Manifest
            Without blocks; they are filled in.
        templates : bytes
            The unfitted estimator and the feature map.
        member, rows : function of a partition's index
            Return what is to be stored; called only for what is not stored already. Without
            `rows` the training set is not kept.
        shared_arrays : Item, optional
            Arrays that all members have in common.
        check_kept : bool, default=True
            Read the blocks that need not be written, to be sure that they are whole.
        overwrite : bool, default=False
            As in `refuse_another`.
        """
        self._check_kept = check_kept
        refuse_another(self.path, draft.model, overwrite=overwrite)
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
                templates=BlockEntry(self.put(templates), len(templates), ()),
                members=members,
                rows=row_blocks,
                shared_arrays=self._put_block([shared_arrays]) if shared_arrays else None,
                keeps_data=rows is not None,
            )
            self._finish(manifest)
        return replace(manifest, pending=None)

    def _same(self, draft: Manifest, digests: str) -> Callable[[int], bool]:
        """Return a test whether the stored item of a partition is the one to be stored."""
        if self.stored is None:
            return lambda index: False
        old = self.stored.manifest
        if _setting(old) != _setting(draft):
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
    """Writes to a model directory, alone.

    Attributes
    ----------
    folder : OpenFolder
        The directory, while it is open.
    """

    def __enter__(self) -> Self:
        with ExitStack() as stack, writing(self.path):
            check_target(self.path)
            self.folder = stack.enter_context(OpenFolder(self.path, owned=True))
            self._objects = stack.enter_context(self.folder.child(OBJECTS))
            stack.enter_context(WriterLock(self.folder.open(LOCK, LOCK_FLAGS), self.path))
            self._check_entries()
            with suppress(StoreError):
                self.stored = ModelReader.open(self.path)
            self._remove_unfinished()
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def put(self, data: bytes) -> str:
        """Write an object, unless it is there."""
        name = content_name(data)
        if self._objects.read(name) != data:
            self.folder.write(name, data, into=self._objects)
        return name

    def get(self, name: str) -> tuple[bytes, Path]:
        """Return an object, and what to call it in a message."""
        path = self.path / OBJECTS / name
        data = self._objects.read(name)
        if data is None:
            raise StoreError(f"{path} is missing.")
        return data, path

    def _is_there(self, entry: BlockEntry) -> bool:
        try:
            if self._objects.stat(entry.name).st_size != entry.n_bytes:
                return False
        except FileNotFoundError:
            return False
        return not self._check_kept or content_name(self.get(entry.name)[0]) == entry.name

    def _present(self) -> set[str]:
        """Return the names of all objects; other files in their folder are nobody's business."""
        return set(filter(is_content_name, self._objects.names()))

    def _finish(self, manifest: Manifest) -> None:
        self._objects.sync()
        if manifest.pending is None and self._present() - set(manifest.objects):
            manifest = replace(manifest, pending={})
        self._write(manifest)
        self._forget_others(manifest)

    def clear(self) -> None:
        """Finish what an earlier writer began: delete what its manifest superseded."""
        if self.stored is not None and self.stored.manifest.pending is not None:
            with writing(self.path):
                self._forget_others(self.stored.manifest)
            self.stored = ModelReader.open(self.path)

    def _forget_others(self, manifest: Manifest) -> None:
        self._sweep(set(manifest.objects))
        self.folder.remove(JOURNAL)
        self.folder.sync()
        if manifest.pending is not None:
            self._write(replace(manifest, pending=None))

    def _write(self, manifest: Manifest) -> None:
        self.folder.write(MANIFEST, manifest.to_bytes())
        self.folder.sync()

    def _sweep(self, needed: set[str]) -> None:
        """Delete every object that is not `needed`."""
        if superseded := sorted(self._present() - needed):
            for name in superseded:
                self._objects.remove(name)
            self._objects.sync()

    def _check_entries(self) -> None:
        """Raise `StoreError` if what would be taken for a file of the model is none."""
        for name in self.folder.names():
            if name != OBJECTS and (name in _OURS or name.startswith(TEMPORARY)):
                self.folder.check(name, in_place=name in (LOCK, JOURNAL))
        for name in self._present():
            self._objects.check(name)

    def _remove_unfinished(self) -> None:
        """Delete what an earlier writer wrote and could not make part of the model."""
        names = self.folder.names()
        for name in names:
            if name.startswith(TEMPORARY):
                self.folder.remove(name)
        # A journal may refer to objects, and so may a manifest that cannot be read.
        if self.stored is not None and JOURNAL not in names:
            self._sweep(set(self.stored.manifest.objects))


def _setting(manifest: Manifest) -> tuple[Any, ...]:
    """Return what stored items depend on besides values: equal rows may differ in their shape."""
    columns = manifest.model.get("feature_names_in")
    return manifest.family, manifest.shared, manifest.notes.get("container"), columns


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


def refuse_another(
    path: str | os.PathLike[str], model: Mapping[str, Any], *, overwrite: bool = False
) -> None:
    """Raise `StoreError` if another model stands where one is to be written, unless `overwrite`.

    Other rows make a later state of the same model; other members, labels, parameters or columns
    make another one.

    Parameters
    ----------
    path : path
        The directory or archive.
    model : mapping
        What is to be written, as the manifest describes it, or as much of it as is known.
    overwrite : bool, default=False
        Whether another model may be lost.
    """
    where = Path(path)
    if overwrite or not where.exists() or (where.is_dir() and not (where / MANIFEST).exists()):
        return
    way_out = "Choose another path, or replace it with overwrite=True (--overwrite)."
    try:
        standing = ModelReader.open(where).manifest.model
    except StoreError as error:
        raise StoreError(f"{error} It would be lost. {way_out}") from error
    pairs = {key: (standing.get(key), model.get(key)) for key in _IDENTITY}
    features = [m.get("templates", {}).get("features") for m in (standing, model)]
    pairs["features"] = (features[0], features[1])
    other = [key for key, pair in pairs.items() if None not in pair and pair[0] != pair[1]]
    if other:
        raise StoreError(
            f"{path} holds another model ({', '.join(other)} differ), which would be lost. "
            f"{way_out}"
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write a model to {path}: {error.strerror or error}. What was stored before is "
            "as it was; run again when the cause is gone."
        ) from error


# Writing a model as one zip archive.


class ArchiveWriter(ModelWriter):
    """Writes one zip file, always as a whole."""

    def __enter__(self) -> Self:
        part = f"{TEMPORARY}{self.path.name}"
        with ExitStack() as stack, writing(self.path):
            check_target(self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(OpenFolder(self.path.parent))
            # The unfinished file is the lock: what a killed writer left of it is overwritten.
            lock = stack.enter_context(WriterLock(folder.open(part, LOCK_FLAGS), self.path.parent))
            self._folder, self._part = folder, part
            stack.callback(lambda: folder.remove(self._part) if self._part else None)
            self._file = os.fdopen(os.dup(lock.descriptor), "r+b")
            self._file.truncate(0)
            self._open = stack.pop_all()
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        self._names: set[str] = set()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError, ValueError):
            self._zip.close()
        with suppress(OSError):
            self._file.close()
        self._open.close()

    def put(self, data: bytes) -> str:
        """Add an object to the archive, once."""
        name = content_name(data)
        if name not in self._names:
            self._add(f"{OBJECTS}/{name}", data)
            self._names.add(name)
        return name

    def _add(self, name: str, data: bytes) -> None:
        self._zip.writestr(zipfile.ZipInfo(name), data)  # a fixed date: equal models, equal bytes

    def _finish(self, manifest: Manifest) -> None:
        self._add(MANIFEST, replace(manifest, pending=None).to_bytes())
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._folder.rename(self._part, self.path.name)
        self._part = ""  # by now it may be the file of the next writer
        self._folder.sync()


def open_writer(path: str | os.PathLike[str]) -> ModelWriter:
    """Return the writer for a path: an archive if it ends in ``.zip``, else a directory."""
    return ArchiveWriter(path) if str(path).lower().endswith(".zip") else FolderWriter(path)
