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
from collections.abc import Iterator

from poisonproof.replacing import OpenFolder

__all__ = ["JOURNAL", "SYNC_SECONDS", "Journal"]

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
