"""Folders and archives as a reader of published files sees them: paths, and limited bytes."""

from __future__ import annotations

import gzip
import re
import tarfile
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from poisonproof.data.image_files import read_file, walk
from poisonproof.exceptions import InvalidInputError

MEBIBYTE = 2**20


def read_at_most(file: Any, limit: int, where: str) -> bytes:
    """Read a stream to its end, or refuse it beyond `limit` bytes."""
    parts, size = [], 0
    while part := file.read(MEBIBYTE):
        size += len(part)
        if size > limit:
            raise InvalidInputError(f"{where} holds more than the {limit:,} bytes allowed here.")
        parts.append(part)
    return b"".join(parts)


class FileTree(ABC):
    """Files by their path below a root, with ``/`` between folders."""

    @abstractmethod
    def paths(self) -> Sequence[str]:
        """Return the paths of all regular files, sorted by code point."""

    @abstractmethod
    def where(self, path: str) -> str:
        """Return how to name the file to a human."""

    @abstractmethod
    def read(self, path: str, limit: int) -> bytes:
        """Return the whole file; one of more than `limit` bytes is an error."""

    def matching(self, pattern: str) -> list[str]:
        """Return the paths in which the regular expression is found, sorted by code point."""
        expression = re.compile(pattern)
        return [path for path in self.paths() if expression.search(path)]

    def one(self, *names: str) -> str | None:
        """Return the path of the file with one of these names, or None.

        The file nearest to the root is meant; two that are equally near are an error.
        """
        found = self.matching(rf"(?:^|/)(?:{'|'.join(map(re.escape, names))})$")
        nearest = min((path.count("/") for path in found), default=0)
        found = [path for path in found if path.count("/") == nearest]
        if len(found) > 1:
            both = " and ".join(map(self.where, found[:2]))
            raise InvalidInputError(f"{both} both match; name the folder that holds one of them.")
        return found[0] if found else None


# Zip and tar files, read in place.
#
# Nothing is unpacked to a path that an archive chose, only regular members count, and no member is
# read beyond a limit.

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


# The folder, archive or single file that a user names, as a tree of files.


class FolderTree(FileTree):
    """Files of a folder, and of archives in it.

    An archive is opened only if the folder itself has no match: a folder in which a download was
    unpacked beside its archive is read once. Links and pipes are never followed or opened.
    """

    def __init__(
        self, root: Path, files: Sequence[str], archives: Sequence[str], stack: ExitStack
    ) -> None:
        self.root = root
        self._files = sorted(files)
        self._waiting = sorted(archives)
        self._mounted: dict[str, FileTree] = {}
        self._stack = stack

    def paths(self) -> Sequence[str]:
        """Return the files of the folder, without those in archives."""
        return self._files

    def matching(self, pattern: str) -> list[str]:
        """Return matches in the folder, else in its archives (as ``archive/inner/path``)."""
        if found := super().matching(pattern):
            return found
        for path in self._waiting:
            self._mounted[path] = self._stack.enter_context(open_archive(self.root / path))
        self._waiting = []
        return [
            f"{path}/{inner}"
            for path, tree in self._mounted.items()
            for inner in tree.matching(pattern)
        ]

    def where(self, path: str) -> str:
        """Return the path with the root before it."""
        return str(self.root / path)

    def read(self, path: str, limit: int) -> bytes:
        """Read a file of the folder, or of an archive in it."""
        for archive, tree in self._mounted.items():
            if path.startswith(f"{archive}/"):
                return tree.read(path.removeprefix(f"{archive}/"), limit)
        return read_file(self.root / path, limit)


@contextmanager
def open_tree(source: Path, archives: str = "") -> Iterator[FolderTree]:
    """Open a folder, an archive or a single file for reading."""
    with ExitStack() as stack:
        if source.is_dir():
            files = [path for path, reason in walk(source) if not reason]
            packed = [path for path in files if archives and re.fullmatch(archives, path)]
            yield FolderTree(source, files, packed, stack)
        elif not source.is_file():
            raise InvalidInputError(
                f"{source} is neither a folder nor a file; name the folder that holds the files."
            )
        elif is_archive(source.name):
            yield FolderTree(source.parent, [], [source.name], stack)
        else:
            yield FolderTree(source.parent, [source.name], [], stack)
