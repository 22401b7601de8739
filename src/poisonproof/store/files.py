"""Files that appear whole or not at all, and stay after a power cut."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from poisonproof.exceptions import StoreError

__all__ = ["TEMPORARY", "sync_folder", "write_atomically", "writing"]

TEMPORARY = ".part-"
"""How the names of unfinished files begin; whoever writes next removes them."""


def write_atomically(path: Path, data: bytes, *, folder: Path | None = None) -> None:
    """Write beside the target (or in `folder`), sync, rename.

    The rename itself is durable once `sync_folder` has been called on the parent.
    """
    part = (folder or path.parent) / f"{TEMPORARY}{secrets.token_hex(8)}"
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105 - tests count the calls of os
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system knows how."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write a model to {path}: {error.strerror or error}. What was stored before is "
            "as it was; run again when the cause is gone."
        ) from error
