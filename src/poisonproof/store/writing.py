"""Writing a model: items as they finish, then one manifest that makes them a model.

Hand-written because HDF5 and zarr change files in place: a killed update would mix two models.

The order is what makes it safe. Objects are written first, under names that nothing refers to
yet; the manifest replaces the old one in a single rename; only then are superseded objects
deleted. Killed in between, the store is the old model or the new one, and whoever writes next
removes what is left over.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from poisonproof.exceptions import StoreError
from poisonproof.files import LOCK, LOCK_FLAGS, TEMPORARY, OpenFolder, writer_lock
from poisonproof.store.manifest import (
    MANIFEST,
    OBJECTS,
    BlockEntry,
    Item,
    Manifest,
    ModelReader,
    content_name,
    encode_block,
    is_content_name,
    json_digest,
    packed,
)

JOURNAL = "journal"
"""The file that lists finished members of a training run until they are part of a model."""

_OURS = {MANIFEST, OBJECTS, LOCK, JOURNAL}
GetItems = Callable[[list[int]], Iterable[Item]]
"""Returns the items of some partitions, in their order, one after the other."""


class ModelWriter(AbstractContextManager[Any]):
    """Writes to a model directory, alone."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.stored: ModelReader | None = None  # the model there, if its files can be kept

    def __enter__(self) -> Self:
        with ExitStack() as stack, writing(self.path):
            check_target(self.path)
            self.folder = stack.enter_context(OpenFolder(self.path, owned=True))
            self._objects = stack.enter_context(self.folder.child(OBJECTS))
            stack.enter_context(writer_lock(self.folder.open(LOCK, LOCK_FLAGS), self.path))
            names = self.folder.names()
            # What would be taken for a file of the model must be one.
            for name in names:
                if name != OBJECTS and (name in _OURS or name.startswith(TEMPORARY)):
                    self.folder.check(name, in_place=name in (LOCK, JOURNAL))
            for name in self._present():
                self._objects.check(name)
            with suppress(StoreError):
                self.stored = ModelReader.open(self.path)
            for name in names:
                if name.startswith(TEMPORARY):
                    self.folder.remove(name)
            if self.stored is not None:  # else its manifest may refer to any object
                self._tidy(self.stored.manifest)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def commit(
        self,
        draft: Manifest,
        templates: bytes,
        members: GetItems,
        rows: GetItems | None = None,
        *,
        check_kept: bool = True,
        overwrite: bool = False,
    ) -> None:
        """Write what is not stored yet, then the manifest: `draft` with its blocks filled in.

        `members` and `rows` are called for the partitions that are not stored; without `rows` the
        training set is not kept. With `check_kept` the blocks that stay are read, to be sure.
        """
        refuse_another(self.path, draft.model, overwrite=overwrite)
        with writing(self.path):
            old = None
            if self.stored is not None and _setting(self.stored.manifest) == _setting(draft):
                old = self.stored.manifest
            trained = self._arranged(draft, old, "members", "member_digests", members, check_kept)
            blocks: tuple[BlockEntry, ...] = ()
            if rows is not None:
                blocks = self._arranged(draft, old, "rows", "partition_digests", rows, check_kept)
            manifest = replace(
                draft,
                templates=BlockEntry(self.put(templates), len(templates), ()),
                members=trained,
                rows=blocks,
            )
            self._finish(manifest)

    def _arranged(
        self,
        draft: Manifest,
        old: Manifest | None,
        kind: str,
        digests: str,
        get: GetItems,
        check_kept: bool,
    ) -> tuple[BlockEntry, ...]:
        """Keep blocks in which nothing changed, write the others again, pack the rest."""
        pairs = (
            zip(getattr(some, digests), some.partition_digests, strict=True)
            for some in (() if old is None else (old, draft))
        )
        same = {i for i, both in enumerate(zip(*pairs, strict=False)) if both[0] == both[1]}
        blocks, waiting = list[BlockEntry](), set(range(draft.k))
        for entry in () if old is None else getattr(old, kind):
            items = [index for index in entry.items if index < draft.k]
            if same.issuperset(entry.items) and self._is_there(entry, check_kept):
                blocks.append(entry)
            elif same.intersection(items):
                blocks.append(self.put_block(list(get(items))))
            else:
                continue
            waiting -= set(items)
        blocks += map(self.put_block, packed(get(sorted(waiting))))
        return tuple(blocks)

    def put_block(self, items: list[Item], *, durable: bool = True) -> BlockEntry:
        """Store items as one block, which survives a power cut if it is `durable`."""
        data = encode_block(items)
        name = self.put(data, durable=durable)
        return BlockEntry(name, len(data), tuple(item.index for item in items))

    def put(self, data: bytes, *, durable: bool = True) -> str:
        """Store bytes under the name of their content, and return it."""
        name = content_name(data)
        if self._objects.read(name) != data:
            self.folder.write(name, data, into=self._objects, durable=durable)
        elif durable:  # it may be of a training run that was in a hurry
            self._objects.flush(name)
        return name

    def _is_there(self, entry: BlockEntry, check_content: bool) -> bool:
        try:
            if self._objects.stat(entry.name).st_size != entry.n_bytes:
                return False
        except FileNotFoundError:
            return False
        return (
            not check_content or content_name(self._objects.read(entry.name) or b"") == entry.name
        )

    def _present(self) -> set[str]:
        """Return the names of all objects; other files in their folder are left alone."""
        return set(filter(is_content_name, self._objects.names()))

    def _finish(self, manifest: Manifest) -> None:
        """Make `manifest` the model, and remove what it does not refer to."""
        self._objects.sync()
        self.folder.write(MANIFEST, manifest.to_bytes())
        self.folder.sync()
        self._sweep(set(manifest.objects))
        self.folder.remove(JOURNAL)
        self.folder.sync()

    def _tidy(self, manifest: Manifest) -> None:
        """Delete what killed writers have left, but for members that the next run can use."""
        journal = self.folder.read(JOURNAL) or b""
        if run_digest(manifest.spec, manifest.partition_digests).encode() in journal:
            self.folder.remove(JOURNAL)  # its members are part of the model
            journal = b""
        self._sweep({*manifest.objects, *re.findall("[0-9a-f]{64}", str(journal))})

    def _sweep(self, needed: set[str]) -> None:
        """Delete every object that is not `needed`."""
        if superseded := sorted(self._present() - needed):
            for name in superseded:
                self._objects.remove(name)
            self._objects.sync()


def run_digest(spec: str, partition_digests: Sequence[str]) -> str:
    """Return what identifies the members of one training, finished or not."""
    return json_digest([spec, *partition_digests])


def _setting(manifest: Manifest) -> tuple[Any, ...]:
    """Return what stored items depend on besides values: equal rows may differ in their shape."""
    container = manifest.notes.get("container")
    columns = manifest.model.get("feature_names_in") if container == "frame" else None
    return manifest.family, manifest.shared, container, columns


def check_target(path: Path) -> None:
    """Raise `StoreError` if something that is not a model stands where one is to be written."""
    if not path.exists():
        return
    if path.is_dir():
        names = {entry.name for entry in path.iterdir()}
        if MANIFEST in names or all(n in _OURS or n.startswith(TEMPORARY) for n in names):
            return
    raise StoreError(f"{path} exists and is not a poisonproof model; choose another path.")


def refuse_another(
    path: str | os.PathLike[str], model: Mapping[str, Any], *, overwrite: bool = False
) -> None:
    """Raise `StoreError` if another model stands where one is to be written, unless `overwrite`.

    Other rows make a later state of the same model; other members, labels, parameters or columns
    make another one. `model` is what a manifest says of it, as far as it is known.
    """
    where = Path(path)
    if overwrite or not where.exists() or (where.is_dir() and not (where / MANIFEST).exists()):
        return
    way_out = "Choose another path, or replace it with overwrite=True (--overwrite)."
    try:
        standing = ModelReader.open(where).manifest.model
    except StoreError as error:
        raise StoreError(f"{error} It would be lost. {way_out}") from error
    mine, theirs = (
        {**some, "features": some.get("templates", {}).get("features")}
        for some in (model, standing)
    )
    # These two have the rows in them, or parts that depend on them.
    keys = [key for key in theirs if key not in ("templates", "context")]
    pairs = {key: (mine.get(key), theirs[key]) for key in keys}
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
