"""What a reader of published files sees: paths, and their bytes up to a limit."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from poisonproof.exceptions import InvalidInputError

__all__ = ["MEBIBYTE", "FileTree", "Readable", "read_at_most"]

MEBIBYTE = 2**20


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none at the end."""


def read_at_most(file: Readable, limit: int, where: str) -> bytes:
    """Read a stream to its end, or refuse it beyond `limit` bytes.

    Examples
    --------
    >>> import io
    >>> read_at_most(io.BytesIO(b"abc"), 3, "here")
    b'abc'
    """
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
