"""The folder, archive or single file that a user names, as a tree of files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from poisonproof.datasets.images.archives import is_archive, open_archive
from poisonproof.datasets.images.file_tree import FileTree, read_at_most
from poisonproof.exceptions import InvalidInputError

__all__ = ["FolderTree", "open_tree"]


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
    links : sequence of str
        Paths of its symbolic links. They are never followed; readers can complain of them.
    archives : sequence of str
        Paths of archives to look into.
    stack : ExitStack
        Closes the archives.
    """

    def __init__(
        self,
        root: Path,
        files: Sequence[str],
        links: Sequence[str],
        archives: Sequence[str],
        stack: ExitStack,
    ) -> None:
        self.root = root
        self.links = links
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
            found = list(_walk(source))
            files = [path for path, link in found if not link]
            links = [path for path, link in found if link]
            packed = [path for path in files if archives and re.fullmatch(archives, path)]
            yield FolderTree(source, files, links, packed, stack)
        elif not source.is_file():
            raise InvalidInputError(
                f"{source} is neither a folder nor a file; name the folder that holds the files."
            )
        elif is_archive(source.name):
            yield FolderTree(source.parent, [], [], [source.name], stack)
        else:
            yield FolderTree(source.parent, [source.name], [], [], stack)


def _walk(root: Path) -> Iterator[tuple[str, bool]]:
    """Yield (path, is a link) of the files and links below `root`; links are not entered."""
    for folder, folders, files in os.walk(root, onerror=_refuse):
        for name in [*folders, *files]:
            path = Path(folder, name)
            link = path.is_symlink()
            if link or path.is_file():
                yield path.relative_to(root).as_posix(), link


def _refuse(error: OSError) -> None:
    raise InvalidInputError(f"{error.filename} cannot be read: {error.strerror}.") from error
