"""Zip and tar files, read in place.

Nothing is unpacked to a path that an archive chose, only regular members count, and no member is
read beyond a limit.
"""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from poisonproof.datasets.images.file_tree import MEBIBYTE, FileTree, read_at_most
from poisonproof.exceptions import InvalidInputError

__all__ = ["is_archive", "open_archive", "unreadable"]

LARGEST_UNPACKED = 4096 * MEBIBYTE  # CIFAR-10 takes 0.2 GiB, GTSRB 0.5 GiB


def is_archive(name: str) -> bool:
    """Whether `open_archive` reads files of this name.

    Examples
    --------
    >>> is_archive("cifar-10-binary.tar.gz"), is_archive("train-labels-idx1-ubyte.gz")
    (True, False)
    """
    return name.endswith((".zip", ".tar", ".tar.gz", ".tgz"))


@contextmanager
def open_archive(path: Path) -> Iterator[FileTree]:
    """Open an archive; one that is no archive, or was cut off, is an error of one line."""
    with ExitStack() as stack:
        try:
            archive: zipfile.ZipFile | tarfile.TarFile
            if path.suffix == ".zip":
                archive = stack.enter_context(zipfile.ZipFile(path))
            else:
                plain = stack.enter_context(_uncompressed(path))
                archive = stack.enter_context(tarfile.open(fileobj=plain, mode="r:"))
            tree = _ArchiveTree(path, archive)
        except InvalidInputError:
            raise
        except Exception as error:  # see `unreadable`
            raise unreadable(str(path), error) from error
        yield tree


def unreadable(where: str, error: Exception) -> InvalidInputError:
    """Return what to raise for an error met while unpacking.

    The decoders of the standard library and NumPy raise nearly anything on damaged, encrypted or
    exotic bytes; only an error of the system has a number.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return InvalidInputError(f"{where} cannot be read: {error.strerror}.")
    return InvalidInputError(f"{where} is damaged or truncated: {error or type(error).__name__}.")


def _uncompressed(path: Path) -> IO[bytes]:
    """Return the tar file behind a compressed one, seekable, in a file without a name."""
    if path.suffix == ".tar":
        return path.open("rb")
    with ExitStack() as stack:
        plain: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
        packed = stack.enter_context(gzip.open(path))
        size = 0
        while part := packed.read(MEBIBYTE):
            size += plain.write(part)
            if size > LARGEST_UNPACKED:
                raise InvalidInputError(f"{path} unpacks to more than {LARGEST_UNPACKED:,} bytes.")
        plain.seek(0)
        packed.close()
        stack.pop_all()
    return plain


class _ArchiveTree(FileTree):
    def __init__(self, path: Path, archive: zipfile.ZipFile | tarfile.TarFile) -> None:
        self._path = path
        self._archive = archive
        if isinstance(archive, zipfile.ZipFile):
            members = [info.filename for info in archive.infolist() if not info.is_dir()]
        else:
            members = [info.name for info in archive.getmembers() if info.isreg()]
        self._members = {name.removeprefix("./"): name for name in members}

    def paths(self) -> Sequence[str]:
        return sorted(self._members)

    def where(self, path: str) -> str:
        return f"{self._path}/{path}"

    def read(self, path: str, limit: int) -> bytes:
        try:
            with self._open(self._members[path]) as file:
                return read_at_most(file, limit, self.where(path))
        except InvalidInputError:
            raise
        except Exception as error:  # see `unreadable`
            raise unreadable(self.where(path), error) from error

    def _open(self, member: str) -> IO[bytes]:
        if isinstance(self._archive, zipfile.ZipFile):
            return self._archive.open(member)
        file = self._archive.extractfile(member)
        if file is None:
            raise tarfile.TarError("it is not a regular file")
        return file
