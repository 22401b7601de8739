"""Results on disk: a readable summary, and votes in files small enough to commit.

A finished row is a folder with ``result.json`` and a few ``votes-*.npz``. While a row is being
made its folder also holds one ``part-*.npz`` per block of members; each is whole or absent, so a
killed run loses at most the block it was at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.reproduction.outcome import evaluate
from poisonproof.reproduction.result import RowResult, merge_results
from poisonproof.reproduction.runs import Run
from poisonproof.reproduction.vote_coding import decode_votes, encode_votes
from poisonproof.reproduction.whole_files import (
    npz_bytes,
    read_json,
    read_npz,
    sha256,
    write_bytes,
    write_json,
)
from poisonproof.strict import parse_json

__all__ = ["SUMMARY", "has_result", "members_finished", "read_result", "write_part", "write_result"]

FORMAT = "poisonproof reproduction result"
VERSION = 1
SUMMARY = "result.json"
VOTES_PER_FILE = 16_000_000
"""Coded votes take less than a byte each, so a file stays below 16 MiB."""


def has_summary(folder: Path) -> bool:
    """Say whether a folder holds a result that was written to its end."""
    return (folder / SUMMARY).is_file()


def has_result(folder: Path) -> bool:
    """Say whether a folder holds a result, finished or not."""
    return has_summary(folder) or any(folder.glob("part-*.npz"))


def members_finished(folder: Path) -> int:
    """Return how many members a folder holds."""
    if any(folder.glob("part-*.npz")):
        return len(read_result(folder).members)
    return (
        int(read_json(folder / SUMMARY, FORMAT, VERSION)["members"]) if has_summary(folder) else 0
    )


def write_part(folder: Path, result: RowResult) -> None:
    """Write the members of one block; quick to write, larger than in a finished result."""
    run = result.runs[0]
    name = f"part-{run.id}-{run.blocks[0].number:04d}.npz"
    write_bytes(folder / name, npz_bytes({**_arrays(result), "votes": result.votes}))


def write_result(folder: Path, result: RowResult) -> None:
    """Write all members compactly and take the parts away."""
    old = [*folder.glob("part-*.npz"), *folder.glob("votes-*.npz")]
    n_files = max(1, -(-result.votes.size // VOTES_PER_FILE))
    with ThreadPoolExecutor(4) as pool:
        contents = list(pool.map(_coded, _pieces(result, n_files)))
    files = [
        # Named by its content, so that a file of an earlier state is never overwritten.
        {"file": f"votes-{number}-{digest[:8]}.npz", "sha256": digest, "bytes": len(content)}
        for number, content in enumerate(contents)
        for digest in [sha256(content)]
    ]
    for entry, content in zip(files, contents, strict=True):
        write_bytes(folder / str(entry["file"]), content)
    write_json(folder / SUMMARY, _summary(result, files))
    current = {str(entry["file"]) for entry in files}
    for path in old:
        if path.name not in current:
            path.unlink(missing_ok=True)


def read_result(folder: Path) -> RowResult:
    """Read a result, finished or not, and check everything that was recorded about it."""
    if not has_result(folder):
        raise InvalidInputError(f"{folder} holds no result.")
    found = []
    summary: dict[str, Any] | None = None
    if has_summary(folder):
        summary = read_json(folder / SUMMARY, FORMAT, VERSION)
        try:
            listed = [(folder / entry["file"], entry["sha256"]) for entry in summary["files"]]
        except (KeyError, TypeError) as error:
            raise InvalidInputError(f"{folder / SUMMARY} lists no files of votes.") from error
        found = [_read(path, digest) for path, digest in listed]
        whole = merge_results(found)
        if summary.get("votes_sha256") != votes_digest(whole):
            raise InvalidInputError(f"{folder}: the votes are not those of {SUMMARY}.")
        found = [whole]
    found += [_read(path, None) for path in sorted(folder.glob("part-*.npz"))]
    return merge_results(found)


def votes_digest(result: RowResult) -> str:
    """Return the SHA-256 of the vote matrix, members in ascending order."""
    return sha256(np.ascontiguousarray(result.votes).tobytes())


def _summary(result: RowResult, files: list[dict[str, Any]]) -> dict[str, Any]:
    train, vote = (sum(times) for times in zip(*(run.seconds for run in result.runs), strict=True))
    return {
        "format": FORMAT,
        "version": VERSION,
        "row": result.row,
        "complete": result.is_complete,
        "members": len(result.members),
        "n_partitions": result.n_partitions,
        "n_classes": result.n_classes,
        "n_test": len(result.labels),
        "outcome": evaluate(result).to_json() if result.is_complete else None,
        "abstaining_members": {str(i): why for i, why in sorted(result.failures.items())},
        "train_seconds": round(train, 3),
        "vote_seconds": round(vote, 3),
        "law": result.law,
        "runs": [run.to_json() for run in result.runs],
        "votes_sha256": votes_digest(result),
        "files": files,
    }


def _pieces(result: RowResult, n_files: int) -> Iterable[RowResult]:
    for places in np.array_split(np.arange(len(result.members)), n_files):
        chosen = np.zeros(len(result.members), dtype=bool)
        chosen[places] = True
        yield result.only(chosen)


def _coded(result: RowResult) -> bytes:
    return npz_bytes({**_arrays(result), **encode_votes(result.votes, result.n_classes)})


def _arrays(result: RowResult) -> dict[str, NDArray[Any]]:
    about = {
        "law": result.law,
        "n_partitions": result.n_partitions,
        "n_classes": result.n_classes,
        "failures": {str(i): why for i, why in sorted(result.failures.items())},
        "runs": [run.to_json() for run in result.runs],
    }
    return {
        "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
        "labels": result.labels.astype(np.uint8),
        "members": result.members.astype(np.int32),
        "sizes": result.sizes.astype(np.int32),
        "digests": result.digests,
    }


def _read(path: Path, digest: str | None) -> RowResult:
    arrays = read_npz(path, digest)
    try:
        about = parse_json(arrays["about"].tobytes())
        votes = arrays["votes"] if "votes" in arrays else decode_votes(arrays)
        return RowResult(
            about["law"],
            about["n_partitions"],
            about["n_classes"],
            arrays["labels"].astype(np.int64),
            arrays["members"].astype(np.int64),
            votes,
            arrays["digests"],
            arrays["sizes"].astype(np.int64),
            {int(i): why for i, why in about["failures"].items()},
            tuple(Run.from_json(run) for run in about["runs"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise InvalidInputError(f"{path}: {error}") from error
        raise InvalidInputError(f"{path} is no file of votes: {error}.") from error
