"""Class probabilities of members, for certificates that need more than votes.

They are too large to commit; the command that made them is in the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.reproduction.whole_files import npz_bytes, read_npz, write_bytes

__all__ = ["read_scores", "write_scores"]

BYTES_PER_FILE = 16_000_000


def write_scores(
    folder: Path, name: str, members: NDArray[np.int64], scores: NDArray[np.float32]
) -> list[Path]:
    """Write scores of shape (n, b, C) as float16, some test rows per file."""
    step = max(1, BYTES_PER_FILE // max(1, 2 * scores[:1].size))
    paths = []
    for number, start in enumerate(range(0, len(scores), step)):
        part = scores[start : start + step].astype(np.float16)
        path = folder / f"scores-{name}-{number:03d}.npz"
        arrays = {"members": members, "start": np.array(start), "scores": part}
        write_bytes(path, npz_bytes(arrays))
        paths.append(path)
    return paths


def read_scores(folder: Path, n_test: int, n_partitions: int, *others: Path) -> NDArray[np.float16]:
    """Read all scores of a row, shape (n, k, C), from one folder or several that complete it.

    Raises
    ------
    InvalidInputError
        If scores of some member on some row are missing.
    """
    files: list[dict[str, NDArray[Any]]] = [
        read_npz(path) for home in (folder, *others) for path in sorted(home.glob("scores-*.npz"))
    ]
    if not files:
        raise InvalidInputError(f"{folder} holds no scores. Make them with --scores.")
    n_classes = files[0]["scores"].shape[2]
    scores = np.zeros((n_test, n_partitions, n_classes), dtype=np.float16)
    seen = np.zeros((n_test, n_partitions), dtype=bool)
    for file in files:
        rows = np.arange(int(file["start"]), int(file["start"]) + len(file["scores"]))
        scores[np.ix_(rows, file["members"])] = file["scores"]
        seen[np.ix_(rows, file["members"])] = True
    if not seen.all():
        raise InvalidInputError(f"{folder} lacks scores of {int((~seen).sum())} votes.")
    return scores
