"""The folder, archive or single file that a user names, as a tree of files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from poisonproof.datasets.images.archives import is_archive, open_archive
from poisonproof.datasets.images.file_tree import FileTree, read_at_most
from poisonproof.exceptions import InvalidInputError

__all__ = ["FolderTree", "open_tree", "walk"]


class FolderTree(FileTree):
    """Files of a folder, and of archives in it.

    An archive is opened only if the folder itself has no match: a folder in which a download was
    unpacked beside its archive is read once.

    Parameters
    ----------
    root : Path
        The folder.
    files : sequence of str
        Paths of its regular files.
    left_out : sequence of (str, str)
        Paths of everything else in it, and what that is: links and pipes are never followed or
        opened; readers complain of them.
    archives : sequence of str
        Paths of archives to look into.
    stack : ExitStack
        Closes the archives.
    """

    def __init__(
        self,
        root: Path,
        files: Sequence[str],
        left_out: Sequence[tuple[str, str]],
        archives: Sequence[str],
        stack: ExitStack,
    ) -> None:
        self.root = root
        self.left_out = left_out
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
        try:
            with (self.root / path).open("rb") as file:
                return read_at_most(file, limit, self.where(path))
        except OSError as error:
            reason = error.strerror or error
            raise InvalidInputError(f"{self.where(path)} cannot be read: {reason}.") from error


@contextmanager
def open_tree(source: Path, archives: str = "") -> Iterator[FolderTree]:
    """Open a folder, an archive or a single file for reading.

    Parameters
    ----------
    source : Path
        What the user named.
    archives : str
        If `source` is a folder: regular expression for the archives in it to look into.
    """
    with ExitStack() as stack:
        if source.is_dir():
            found = list(walk(source))
            files = [path for path, reason in found if not reason]
            others = [(path, reason) for path, reason in found if reason]
            packed = [path for path in files if archives and re.fullmatch(archives, path)]
            yield FolderTree(source, files, others, packed, stack)
        elif not source.is_file():
            raise InvalidInputError(
                f"{source} is neither a folder nor a file; name the folder that holds the files."
            )
        elif is_archive(source.name):
            yield FolderTree(source.parent, [], [], [source.name], stack)
        else:
            yield FolderTree(source.parent, [source.name], [], [], stack)


def walk(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the path of every entry below `root` that is no folder, and why it cannot be read.

    That is nothing for plain files. Links are not entered, and nothing is opened; a folder that
    cannot be listed is an error.
    """
    for folder, folders, files in os.walk(root, onerror=_refuse):
        inside = Path(folder)
        for name in [*(name for name in folders if (inside / name).is_symlink()), *files]:
            path = inside / name
            try:
                reason = _left_out(path.lstat().st_mode)
            except OSError as error:
                reason = f"cannot be read: {error.strerror}"
            yield path.relative_to(root).as_posix(), reason


def _left_out(mode: int) -> str:
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISLNK(mode):
        return "is a symbolic link; links are not followed"
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return f"is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file"


def _refuse(error: OSError) -> None:
    raise InvalidInputError(f"{error.filename} cannot be read: {error.strerror}.") from error
