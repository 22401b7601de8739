"""One writer at a time; the lock of a killed process is gone with it."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from poisonproof.exceptions import StoreError

__all__ = ["LOCK", "WriterLock"]

LOCK = "lock"


class WriterLock:
    """Holds the right to write to a model, or to another folder with one writer.

    Parameters
    ----------
    file : Path
        The file that is locked; made if it is not there.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._descriptor = os.open(self._file, flags, 0o644)
        try:
            _lock(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreError(
                f"another process is writing to {self._file.parent}. Wait until it has finished."
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
