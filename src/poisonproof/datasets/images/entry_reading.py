"""Reading an imported dataset: memory-mapped, and only if it is what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.datasets.images.entry_writing import FORMAT, MANIFEST, VERSION, array_digest
from poisonproof.exceptions import InvalidInputError
from poisonproof.strict import parse_json

__all__ = ["open_array", "read_manifest"]


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
    """Map one array of the dataset in `folder`, read-only.

    Parameters
    ----------
    folder : Path
        Folder of the dataset.
    manifest : dict
        Its manifest.
    name : str
        Name of the array.
    check : bool
        Whether to read the array once and compare its digest.
    """
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
    return f"Import it again: poisonproof data {folder.name} --from DIR."
