"""A model directory, written whole or not at all, and read only if it is what was written."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poisonproof.exceptions import StoreError

__all__ = ["read_model", "write_model"]

FORMAT = "poisonproof-model"
VERSION = 1
MANIFEST = "manifest.json"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def write_model(
    path: str | os.PathLike[str], manifest: Mapping[str, Any], files: Mapping[str, bytes]
) -> None:
    """Write a model directory atomically: a temporary sibling, synced, then renamed.

    Parameters
    ----------
    path : path
        The directory. An earlier model there is replaced; anything else there is an error.
    manifest : mapping
        JSON values; the format, its version and the digests of the files are added.
    files : mapping of str to bytes
        Plain file names and contents.
    """
    target = Path(path)
    if target.exists() and not (target / MANIFEST).is_file():
        raise StoreError(f"{target} exists and is not a poisonproof model; choose another path.")
    listed = {name: {"bytes": len(data), "blake2b": _digest(data)} for name, data in files.items()}
    whole = {"format": FORMAT, "version": VERSION, **manifest, "files": listed}
    text = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise StoreError(f"cannot write a model to {target}: {error.strerror or error}.") from error
    try:
        for name, data in {**files, MANIFEST: text.encode()}.items():
            _write_synced(folder / name, data)
        folder.chmod(0o755)
        _put_in_place(folder, target)
    except OSError as error:
        raise StoreError(f"cannot write a model to {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read a model directory and check every file against the manifest."""
    folder = Path(path)
    if not (folder / MANIFEST).is_file():
        raise StoreError(f"{folder} is not a poisonproof model: it has no {MANIFEST}.")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{folder / MANIFEST} is damaged: {error}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StoreError(f"{folder / MANIFEST} does not describe a poisonproof model.")
    if manifest.get("version") != VERSION:
        raise StoreError(
            f"{folder} has format version {manifest.get('version')!r}; this version of poisonproof "
            f"reads version {VERSION}."
        )
    listed = manifest.get("files")
    if not isinstance(listed, dict):
        raise StoreError(f"{folder / MANIFEST} lists no files.")
    return manifest, {name: _read_checked(folder, name, entry) for name, entry in listed.items()}


def _read_checked(folder: Path, name: str, entry: Any) -> bytes:
    if not _PLAIN_NAME.fullmatch(name) or name == MANIFEST:
        raise StoreError(f"{folder / MANIFEST} names {name!r}, which is not a plain file name.")
    if (folder / name).is_symlink():
        raise StoreError(f"{folder / name} is a link; a model holds its files itself.")
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise StoreError(f"{folder / name} cannot be read: {error.strerror or error}.") from error
    if not isinstance(entry, dict) or entry.get("blake2b") != _digest(data):
        raise StoreError(f"{folder / name} is damaged: its digest is not the one in {MANIFEST}.")
    return data


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(folder: Path, target: Path) -> None:
    if not target.exists():
        folder.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent)) / "model"
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        old.rename(target)
        raise
    finally:
        shutil.rmtree(old.parent, ignore_errors=True)
