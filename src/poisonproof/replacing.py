"""Files that appear whole or not at all: written beside their place, synced, renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from poisonproof.exceptions import StoreError

__all__ = ["replacing", "sync_folder", "write_bytes", "write_together"]


@contextmanager
def replacing(path: Path, part: Path | None = None) -> Iterator[IO[bytes]]:
    """Give a file to write that takes the place of `path` when, and only when, all went well.

    Parameters
    ----------
    path : Path
        The file to be made or replaced.
    part : Path, optional
        Where to write until then, on the same file system. By default a hidden name beside `path`.
        The rename is durable once `sync_folder` has been called on the folder of `path`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "page.md"
    >>> with replacing(path) as file:
    ...     _ = file.write(b"all of it")
    ...     path.exists()
    False
    >>> path.read_bytes()
    b'all of it'
    """
    part = part or path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105 - tests count the calls of os
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Make or replace a file in a folder that exists; what the system refuses is a StoreError."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from error


def write_together(files: Mapping[Path, bytes]) -> None:
    """Make or replace several files, all or none; what the system refuses is a StoreError.

    Everything is on the disk before the first file takes its place. If a later one cannot, the
    earlier ones are as they were.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "taken").mkdir()
    >>> try:
    ...     write_together({folder / "first": b"1", folder / "taken": b"2"})
    ... except StoreError:
    ...     sorted(path.name for path in folder.iterdir())
    ['taken']
    """
    before: dict[Path, bytes | None] = {}
    path = Path()
    try:
        with ExitStack() as waiting:
            for path, data in files.items():
                before[path] = path.read_bytes() if path.is_file() else None
                waiting.enter_context(_told(path)).write(data)
    except BaseException as error:
        for changed, held in before.items():
            _restore(changed, held)
        if isinstance(error, OSError):
            where = getattr(error, "written", path)
            raise StoreError(f"Cannot write {where}: {error.strerror or error}.") from error
        raise


@contextmanager
def _told(path: Path) -> Iterator[IO[bytes]]:
    """Do as `replacing`; an error of the system knows which file it was about."""
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        if not hasattr(error, "written"):
            error.written = path  # type: ignore[attr-defined]
        raise


def _restore(path: Path, data: bytes | None) -> None:
    """Give a file back what it held, if that is not what it holds."""
    if data is None:
        if path.is_file():
            path.unlink()
    elif path.read_bytes() != data:
        write_bytes(path, data)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system knows how."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
