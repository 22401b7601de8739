"""Files that appear whole or not at all, and stay after a power cut."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from poisonproof.exceptions import StoreError
from poisonproof.replacing import replacing

__all__ = ["TEMPORARY", "write_atomically", "writing"]

TEMPORARY = ".part-"
"""How the names of unfinished files begin; whoever writes next removes them."""


def write_atomically(path: Path, data: bytes, *, folder: Path | None = None) -> None:
    """Write beside the target (or in `folder`), sync, rename.

    The rename itself is durable once `sync_folder` has been called on the parent.
    """
    part = (folder or path.parent) / f"{TEMPORARY}{secrets.token_hex(8)}"
    with replacing(path, part) as file:
        file.write(data)


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
