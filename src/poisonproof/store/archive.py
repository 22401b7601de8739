"""Writing a model as one zip archive."""

from __future__ import annotations

import os
import zipfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from poisonproof.locking import LOCK_FLAGS, WriterLock
from poisonproof.replacing import TEMPORARY, OpenFolder
from poisonproof.store.blocks import content_name
from poisonproof.store.manifest import MANIFEST, Manifest
from poisonproof.store.places import OBJECTS
from poisonproof.store.writing import FolderWriter, ModelWriter, check_target, writing

__all__ = ["ArchiveWriter", "open_writer"]


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
