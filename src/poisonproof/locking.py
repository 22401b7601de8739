"""One writer at a time; the lock of a killed process is gone with it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from poisonproof.exceptions import StoreError

__all__ = ["LOCK", "LOCK_FLAGS", "WriterLock"]

LOCK = "lock"
LOCK_FLAGS = os.O_RDWR | os.O_CREAT
"""How the file is opened that is locked."""


class WriterLock:
    """Holds the right to write to a model, or to another folder with one writer.

    Parameters
    ----------
    descriptor : int
        Of the file that is locked; closed at the end.
    folder : Path
        What a second writer is told about.
    """

    def __init__(self, descriptor: int, folder: Path) -> None:
        self.descriptor = descriptor
        self._folder = folder

    def __enter__(self) -> Self:
        try:
            _lock(self.descriptor)
        except OSError as error:
            os.close(self.descriptor)
            raise StoreError(
                f"another process is writing to {self._folder}. Wait until it has finished."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self.descriptor)


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
