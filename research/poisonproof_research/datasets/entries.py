"""Imported datasets on disk: images of many sizes in one array, written whole and read checked."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.files import LOCK_FLAGS, TEMPORARY, OpenFolder, writer_lock
from poisonproof.strict import parse_json


class RaggedImages(Sequence[NDArray[np.uint8]]):
    """A sequence of n images, each with its own shape, kept in one array (memory-mapped or not).

    Iterating yields views, channels first; nothing is copied. ``list(images)`` is a list of
    arrays, which every partitioner takes: each image carries its size.

    Parameters
    ----------
    values : ndarray of shape (total,)
        All pixels, image after image, each in C order.
    offsets : ndarray of shape (n + 1,)
        Image i is ``values[offsets[i]:offsets[i + 1]]``.
    shapes : ndarray of shape (n, dimensions)
        The shape of each image.

    Examples
    --------
    >>> values = np.arange(10, dtype=np.uint8)
    >>> images = RaggedImages(values, np.array([0, 4, 10]), np.array([[2, 2], [2, 3]]))
    >>> [image.shape for image in images]
    [(2, 2), (2, 3)]
    >>> images.sums()
    array([ 6, 39])
    """

    def __init__(
        self,
        values: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        shapes: NDArray[np.int64],
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.shapes = shapes

    def __len__(self) -> int:
        """Return the number of images, n."""
        return len(self.shapes)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[np.uint8]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[np.uint8] | list[NDArray[np.uint8]]:
        """Return one image, or a list of them."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        return self.values[self.offsets[i] : self.offsets[i + 1]].reshape(self.shapes[i])

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return (self[i] for i in range(len(self)))

    def sums(self) -> NDArray[np.int64]:
        """Return the sum of all pixel values of each image, shape (n,): what the paper hashes."""
        return np.array([image.sum(dtype=np.int64) for image in self], dtype=np.int64)


# Writing one imported dataset: whole or not at all, whenever the process is killed.
#
# A dataset is a folder with ``manifest.json`` and one folder of arrays, which the manifest names.
# New arrays are written beside the old ones and synced; replacing the manifest, one atomic step,
# makes them the dataset. One process writes at a time, so what the manifest does not name was left
# by a killed one: the next import removes it.

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
            stack.enter_context(writer_lock(file, folder.parent))
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


# Reading an imported dataset: memory-mapped, and only if it is what was written.


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check the manifest of the dataset in `folder`."""
    path = folder / MANIFEST
    try:
        manifest = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}. {_again(folder)}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InvalidInputError(f"{path} does not describe an imported dataset.")
    if manifest.get("version") != VERSION:
        raise InvalidInputError(
            f"{path} has version {manifest.get('version')!r}, this poisonproof reads version "
            f"{VERSION}. {_again(folder)}"
        )
    inner = manifest.get("folder")
    if not isinstance(inner, str) or Path(inner).name != inner or inner in {"", ".", ".."}:
        raise InvalidInputError(f"{path} names no folder of arrays. {_again(folder)}")
    if not isinstance(manifest.get("arrays"), dict):
        raise InvalidInputError(f"{path} lists no arrays. {_again(folder)}")
    return manifest


def open_array(folder: Path, manifest: dict[str, Any], name: str, check: bool) -> NDArray[Any]:
    """Map one array of the dataset in `folder`, read-only."""
    entry = manifest["arrays"].get(name)
    path = folder / manifest["folder"] / f"{name}.npy"
    if not isinstance(entry, dict):
        raise InvalidInputError(f"{folder / MANIFEST} lists no array {name!r}. {_again(folder)}")
    try:
        empty = 0 in entry["shape"]
        array: NDArray[Any] = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    except Exception as error:  # a damaged header makes NumPy raise nearly anything
        raise InvalidInputError(f"{path} cannot be read: {error}. {_again(folder)}") from error
    written = (entry.get("dtype"), entry.get("shape"))
    if (array.dtype.str, list(array.shape)) != written:
        raise InvalidInputError(f"{path} does not match the manifest. {_again(folder)}")
    if check and array_digest(array) != entry.get("sha256"):
        raise InvalidInputError(
            f"{path} is damaged: its digest is not the one in the manifest. {_again(folder)}"
        )
    return array


def _again(folder: Path) -> str:
    return f"Import it again: python -m poisonproof_research data {folder.name} --from DIR."


# Training and test arrays as readers hand them on.

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Split:
    """Images of one size with their labels, and what they were read from."""

    images: NDArray[np.uint8]
    labels: NDArray[Any]
    where: str


def put_split(entry: EntryWriter, name: str, split: Split, n_classes: int) -> None:
    """Check one split and write it as ``x_<name>`` and ``y_<name>``."""
    if len(split.images) != len(split.labels):
        raise InvalidInputError(
            f"{split.where}: there are {len(split.images):,} {name} images but "
            f"{len(split.labels):,} labels."
        )
    outside = np.flatnonzero((split.labels < 0) | (split.labels >= n_classes))
    if len(outside):
        raise InvalidInputError(
            f"{split.where}: label {outside[0]} of the {name} images is "
            f"{split.labels[outside[0]]}; allowed are 0 to {n_classes - 1}."
        )
    entry.put(f"x_{name}", split.images, np.uint8)
    entry.put(f"y_{name}", split.labels, np.int64)
