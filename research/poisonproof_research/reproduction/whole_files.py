"""Files that are written whole or not at all, and read only if they are what was written."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof import files as replacing
from poisonproof import strict
from poisonproof.exceptions import InvalidInputError, StoreError

# Strings hold no raw line breaks in JSON, so this finds layout only.
_FLAT_LIST = re.compile(r"\[\n[^\[\]{}]*\]")


def sha256(data: bytes) -> str:
    """Return the hexadecimal SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Make or replace a file, and the folders it lies in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from error
    replacing.write_bytes(path, data)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as readable JSON, lists of plain values on one line each."""
    text = json.dumps(values, indent=1, ensure_ascii=False)
    text = _FLAT_LIST.sub(_on_one_line, text)
    write_bytes(path, (text + "\n").encode())


def _on_one_line(found: re.Match[str]) -> str:
    values = found[0][1:-1].strip().split(",\n")
    return f"[{', '.join(value.strip() for value in values)}]"


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON file that names its format and version."""
    try:
        values = strict.parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}.") from error
    if not isinstance(values, dict) or values.get("format") != kind:
        raise InvalidInputError(f"{path} is not a {kind}.")
    if values.get("version") != version:
        raise InvalidInputError(
            f"{path} has version {values.get('version')!r}; this poisonproof reads {version}."
        )
    return values


def npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays as a compressed npz file: the same arrays, the same bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def read_npz(path: Path, digest: str | None = None) -> dict[str, NDArray[Any]]:
    """Read all arrays of a npz file, checking its digest first where one is known."""
    try:
        data = path.read_bytes()
        if digest is not None and sha256(data) != digest:
            raise InvalidInputError(
                f"{path} is damaged: its digest is not the recorded one. Get it again."
            )
        return strict.read_npz(io.BytesIO(data))
    except InvalidInputError:
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} cannot be read: {error}.") from error
