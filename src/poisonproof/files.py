"""Safe writing to folders: through no links, by one writer, files whole or not at all.

Hand-written, because libraries for locks and atomic writes open files by path, and a link that a
stranger left in the folder would lead them elsewhere. Here whatever is made, opened, replaced or
deleted is named relative to the handle of an open folder, and only regular files are touched.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from poisonproof.exceptions import StoreError


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Return `cache`, else the folder POISONPROOF_CACHE names, else ``~/.cache/poisonproof``."""
    if cache or (cache := os.environ.get("POISONPROOF_CACHE")):
        return Path(cache)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poisonproof"


LOCK = "lock"
LOCK_FLAGS = os.O_RDWR | os.O_CREAT
"""Flags with which the file is opened that is locked."""


@contextmanager
def writer_lock(descriptor: int, folder: Path) -> Iterator[int]:
    """Hold the right to write to a folder; close the descriptor of its locked file at the end."""
    try:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(
                f"another process is writing to {folder}. Wait until it has finished."
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


TEMPORARY = ".part-"
"""Begins the names of unfinished files; in a folder of its own, a writer removes old ones."""

_HANDLES = os.open in os.supports_dir_fd  # not on Windows: there paths stand for handles
_STRICT = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_KINDS = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe"}


class OpenFolder:
    """A folder by its handle: nothing outside it is written, truncated or deleted.

    Links are not followed, and what is not a regular file, or has another name (a hard link), is
    not written to. A folder that is `owned` is made if it is absent, and neither it nor anything in
    it may be a link or belong to another user.

    >>> import tempfile
    >>> with OpenFolder(Path(tempfile.mkdtemp()) / "new", owned=True) as folder:
    ...     folder.write("page.md", b"all of it")
    ...     folder.names(), folder.read("page.md"), folder.read("other.md")
    (['page.md'], b'all of it', None)
    """

    def __init__(self, path: Path, *, owned: bool = False) -> None:
        self.path = path
        self._owned = owned
        if owned:
            if path.is_symlink():
                raise StoreError(f"{path} is a link. Name the directory that it points to.")
            path.mkdir(parents=True, exist_ok=True)
        self._open(path, None)

    def child(self, name: str) -> OpenFolder:
        """Return a folder in this one, made if it is absent and this one is owned."""
        inner = object.__new__(OpenFolder)
        inner.path, inner._owned = self.path / name, self._owned
        if self._owned:
            with suppress(FileExistsError):
                os.mkdir(**self._at(name))  # noqa: PTH102 - pathlib knows no handles
        if not stat.S_ISDIR((found := self.stat(name)).st_mode):
            raise StoreError(f"{inner.path} is {_kind(found)}, not a directory.")
        inner._open(self._at(name)["path"], self._handle)
        return inner

    def _open(self, path: Any, parent: int | None) -> None:
        self._handle: int | None = None
        if not _HANDLES:
            return
        strict = self._owned or parent is not None
        self._handle = os.open(path, _FOLDER | (_STRICT if strict else 0), dir_fd=parent)
        if self._owned:
            try:
                self._require_owner(os.fstat(self._handle), self.path)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the handle."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _at(self, name: str) -> dict[str, Any]:
        """Return the arguments by which the system finds a name in this folder."""
        if name in ("", ".", "..") or os.path.basename(name) != name:  # noqa: PTH119
            raise StoreError(f"{name[:80]!r} is not the name of a file in {self.path}.")
        return {"path": name if _HANDLES else self.path / name, "dir_fd": self._handle}

    def names(self) -> list[str]:
        """Return the names of everything in the folder, sorted."""
        return sorted(os.listdir(self.path if self._handle is None else self._handle))  # noqa: PTH208

    def stat(self, name: str) -> os.stat_result:
        """Return what the system knows about an entry, about a link if it is one."""
        return os.stat(**self._at(name), follow_symlinks=False)

    def check(self, name: str, *, in_place: bool = False) -> None:
        """Raise `StoreError` unless an entry is a regular file that may be read, or written to."""
        self._check(name, self.stat(name), in_place=in_place)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of a regular file; nothing is cut off before it has been checked."""
        in_place = flags & (os.O_WRONLY | os.O_RDWR) != 0 and not flags & os.O_EXCL
        with suppress(FileNotFoundError):  # a device must not even be opened
            self._check(name, self.stat(name), in_place=in_place)
        found = os.open(**self._at(name), flags=flags | _STRICT, mode=0o666)
        try:
            self._check(name, os.fstat(found), in_place=in_place)
        except BaseException:
            os.close(found)
            raise
        return found

    def _check(self, name: str, found: os.stat_result, *, in_place: bool) -> None:
        path = self.path / name
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"{path} is {_kind(found)}, not a regular file; nothing was changed.")
        if self._owned or in_place:
            self._require_owner(found, path)
        if in_place and found.st_nlink > 1:
            raise StoreError(
                f"{path} has another name (a hard link), under which it would change as well. "
                "Remove it."
            )

    @staticmethod
    def _require_owner(found: os.stat_result, path: Path) -> None:
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
            raise StoreError(
                f"{path} belongs to another user (number {found.st_uid}), so it was not changed. "
                "Copy it to a directory of your own, or write as that user."
            )

    def read(self, name: str) -> bytes | None:
        """Return the content of a regular file, None if it is absent."""
        try:
            descriptor = self.open(name)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def remove(self, name: str) -> None:
        """Delete an entry, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(**self._at(name))

    @contextmanager
    def replacing(
        self, name: str, into: OpenFolder | None = None, *, durable: bool = True
    ) -> Iterator[IO[bytes]]:
        """Give a file to write that becomes `name` here, or `into` another folder, if all is well.

        The rename is durable once `sync` has been called on the folder; what was written, only if
        it is `durable`.
        """
        part = f"{TEMPORARY}{secrets.token_hex(8)}"
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with os.fdopen(self.open(part, new), "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            self.rename(part, name, into)
        except BaseException:
            with suppress(OSError):
                self.remove(part)
            raise

    def rename(self, name: str, new: str, into: OpenFolder | None = None) -> None:
        """Put an entry in the place of another, here or in another folder."""
        source, target = self._at(name), (into or self)._at(new)
        handles = {"src_dir_fd": source["dir_fd"], "dst_dir_fd": target["dir_fd"]}
        os.replace(source["path"], target["path"], **handles)  # noqa: PTH105

    def write(
        self, name: str, data: bytes, into: OpenFolder | None = None, *, durable: bool = True
    ) -> None:
        """Make or replace a file, whole or not at all."""
        with self.replacing(name, into, durable=durable) as file:
            file.write(data)

    def append(self, name: str, data: bytes) -> None:
        """Add to the end of a file, which is made if it is absent."""
        with os.fdopen(self.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
            file.write(data)

    def flush(self, name: str) -> None:
        """Make the content of a file durable."""
        with os.fdopen(self.open(name), "rb") as file:
            os.fsync(file.fileno())

    def sync(self) -> None:
        """Make the names in the folder durable, where the system knows how."""
        if self._handle is not None:
            os.fsync(self._handle)


def _kind(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "a device or a socket")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file to write that takes the place of `path` when, and only when, all went well."""
    with OpenFolder(path.parent) as folder, folder.replacing(path.name) as file:
        yield file


def write_bytes(path: Path, data: bytes) -> None:
    """Make or replace a file in a folder that exists; what the system refuses is a StoreError."""
    write_together({path: data})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Make or replace several files, all on the disk before the first one takes its place."""
    try:
        with ExitStack() as waiting:
            for path, data in files.items():
                waiting.enter_context(replacing(path)).write(data)
    except OSError as error:
        names = ", ".join(map(str, files))
        raise StoreError(f"Cannot write {names}: {error.strerror or error}.") from error
