"""Writing one imported dataset: whole or not at all, whenever the process is killed.

A dataset is a folder with ``manifest.json`` and one folder of arrays, which the manifest names.
New arrays are written beside the old ones and synced; replacing the manifest, one atomic step,
makes them the dataset. One process writes at a time, so what the manifest does not name was left by
a killed one: the next import removes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.locking import LOCK_FLAGS, WriterLock
from poisonproof.replacing import TEMPORARY, OpenFolder
from poisonproof.strict import parse_json

__all__ = [
    "FORMAT",
    "MANIFEST",
    "VERSION",
    "EntryWriter",
    "array_digest",
    "only_writer",
    "write_entry",
]

FORMAT = "poisonproof-images"
VERSION = 1
MANIFEST = "manifest.json"
CHUNK = 2**24


def array_digest(array: NDArray[Any]) -> str:
    """Return the SHA-256 of an array's values in C order; a mapped array is read in chunks.

    Examples
    --------
    >>> array_digest(np.zeros((0, 28), dtype=np.uint8))[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, len(flat), CHUNK):
        digest.update(flat[start : start + CHUNK].data)
    return digest.hexdigest()


class EntryWriter:
    """The arrays of a dataset that is being imported.

    Attributes
    ----------
    arrays : dict of str to memmap
        What was written so far.
    details : dict
        JSON values that the manifest will hold.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.arrays: dict[str, NDArray[Any]] = {}
        self.details: dict[str, Any] = {}

    def create(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        """Return a new array on disk, to be filled by the caller."""
        path = self._folder / f"{name}.npy"
        if 0 in shape:  # nothing can be mapped
            self.arrays[name] = np.empty(shape, dtype)
            np.save(path, self.arrays[name])
        else:
            self.arrays[name] = np.lib.format.open_memmap(
                str(path), mode="w+", dtype=dtype, shape=shape
            )
            _reserve(path)
        return self.arrays[name]

    def put(self, name: str, values: NDArray[Any], dtype: type[np.generic]) -> None:
        """Write an array that is at hand."""
        self.create(name, values.shape, dtype)[...] = values

    def manifest(self) -> dict[str, Any]:
        """Sync every array and return the manifest."""
        arrays = {}
        for name, array in self.arrays.items():
            if isinstance(array, np.memmap):
                array.flush()
            with (self._folder / f"{name}.npy").open("rb+") as file:
                os.fsync(file.fileno())
            arrays[name] = {
                "dtype": array.dtype.str,
                "shape": list(array.shape),
                "sha256": array_digest(array),
            }
        return {"format": FORMAT, "version": VERSION, **self.details, "arrays": arrays}


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Refuse a second process that would write to `folder` while the block runs.

    The locked file lies beside the folder, which may come and go, and stays there.
    """
    with ExitStack() as stack:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            parent = stack.enter_context(OpenFolder(folder.parent))
            file = parent.open(f".{folder.name}.lock", LOCK_FLAGS)
        except OSError as error:
            raise _unwritable(folder, error) from error
        try:
            stack.enter_context(WriterLock(file, folder.parent))
        except StoreError as error:
            raise InvalidInputError(
                f"another process is writing {folder.name} to {folder.parent}. Wait until it has "
                "finished."
            ) from error
        yield


@contextmanager
def write_entry(folder: Path) -> Iterator[EntryWriter]:
    """Write the dataset in `folder`; it appears when the block ends, and only without an error."""
    try:
        with only_writer(folder), ExitStack() as stack:
            opened = stack.enter_context(OpenFolder(folder, owned=True))
            _remove_unnamed(folder)
            arrays = Path(tempfile.mkdtemp(prefix="arrays-", dir=folder))
            try:
                writer = EntryWriter(arrays)
                yield writer
                _publish(opened, arrays, writer.manifest())
            finally:
                _remove_unnamed(folder)
                _remove_if_empty(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _publish(folder: OpenFolder, arrays: Path, manifest: Mapping[str, Any]) -> None:
    text = json.dumps({**manifest, "folder": arrays.name}, indent=1, sort_keys=True)
    arrays.chmod(0o755)
    with folder.child(arrays.name) as inner:
        inner.sync()
    folder.write(MANIFEST, f"{text}\n".encode())
    folder.sync()


def _reserve(path: Path) -> None:
    """Claim the disk space now: a full disk met while filling a mapped file kills the process."""
    if hasattr(os, "posix_fallocate"):
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _remove_unnamed(folder: Path) -> None:
    """Remove what the manifest does not name: replaced arrays, and what was left unfinished."""
    try:
        named = parse_json((folder / MANIFEST).read_bytes())["folder"]
    except FileNotFoundError:
        named = None
    except (OSError, ValueError, KeyError, TypeError):
        return  # it may name any of them
    for path in (*folder.glob("arrays-*"), *folder.glob(f"{TEMPORARY}*")):
        if path.name == named:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # a dataset lies there


def _unwritable(folder: Path, error: OSError) -> InvalidInputError:
    return InvalidInputError(f"cannot write a dataset to {folder}: {error.strerror or error}.")
