"""Features that were computed before, by the digest of the map and of the row."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.replacing import OpenFolder

__all__ = ["KeptVectors"]

_TABLE = "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB, seal BLOB)"
_AT_ONCE = 500


class KeptVectors:
    """Vectors in one file for one map; a file that is damaged or locked keeps nothing.

    Parameters
    ----------
    folder : Path
        Made if absent.
    map_digest : str
        Everything that decides the features of a row, apart from the row.

    Guarantee
    ---------
    What is found for a row was computed from an equal row by an equal map: the key is a SHA-256 of
    both, and a vector that does not match its seal counts as not found.
    """

    def __init__(self, folder: Path, map_digest: str) -> None:
        self._map = bytes.fromhex(map_digest)
        self._file = folder / f"{map_digest}.sqlite"

    def key(self, row: NDArray[np.float32]) -> bytes:
        """Return the name of a row under this map."""
        shape = str(row.shape).encode()
        return hashlib.sha256(self._map + shape + b"\0" + row.tobytes()).digest()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors that are there."""
        found: dict[bytes, NDArray[np.float32]] = {}
        if not self._file.exists():
            return found
        try:
            with closing(sqlite3.connect(self._file)) as file:
                for start in range(0, len(keys), _AT_ONCE):
                    some = keys[start : start + _AT_ONCE]
                    marks = ",".join("?" * len(some))
                    # Only question marks are put into the text.
                    query = f"SELECT key, vector, seal FROM vectors WHERE key IN ({marks})"
                    for key, vector, seal in file.execute(query, some):
                        if seal == _seal(key, vector):
                            found[key] = np.frombuffer(vector, dtype="<f4").astype(np.float32)
        except (sqlite3.Error, TypeError, ValueError):
            return {}
        return found

    def keep(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Write vectors down."""
        rows = []
        for key, vector in vectors.items():
            data = vector.astype("<f4").tobytes()
            rows.append((key, data, _seal(key, data)))
        try:
            with OpenFolder(self._file.parent, owned=True) as folder:  # no link, no other's file
                os.close(folder.open(self._file.name, os.O_RDWR | os.O_CREAT))
            with closing(sqlite3.connect(self._file)) as file, file:
                file.execute(_TABLE)
                file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError, StoreError):
            return  # the features are the same without it


def _seal(key: bytes, vector: bytes) -> bytes:
    return hashlib.sha256(key + vector).digest()[:16]
