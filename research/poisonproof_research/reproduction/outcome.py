"""The numbers of one row, beside the paper's, and its result files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.plurality import plurality, plurality_radius
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat, parse_threat
from poisonproof.evaluation.accuracy import (
    base_accuracy,
    certified_accuracy,
    clean_accuracy,
    median_radius,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.strict import parse_json
from poisonproof_research.methods.shared_buckets import certify_finite_aggregation, make_spread
from poisonproof_research.reproduction.recipe import PaperNumbers
from poisonproof_research.reproduction.result import (
    CommandRun,
    RowResult,
    decode_votes,
    encode_votes,
    merge_results,
)
from poisonproof_research.reproduction.whole_files import (
    npz_bytes,
    read_json,
    read_npz,
    sha256,
    write_bytes,
    write_json,
)

POINTS = 1.0
"""Accuracies may differ by this many percentage points."""

SHARE = 0.03
"""Medians may differ by this share of the paper's, or by 1."""


@dataclass(frozen=True)
class Outcome:
    """Numbers of a finished row.

    Attributes
    ----------
    clean, base : float
        Accuracy of the ensemble and mean accuracy of its members, in percent.
    median : int or None
        Largest attack size with a certified accuracy of at least one half.
    at_median, after_median : float or None
        Certified accuracy at `median` and at one more, in percent.
    """

    clean: float
    base: float
    median: int | None
    at_median: float | None
    after_median: float | None

    @property
    def published(self) -> int | None:
        """The median as the paper counts: attack sizes from 0 on, so one more."""
        return None if self.median is None else self.median + 1

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        return {
            "clean_percent": round(self.clean, 4),
            "base_percent": round(self.base, 4),
            "median_radius": self.median,
            "published_median": self.published,
            "certified_percent_at_median": self.at_median,
            "certified_percent_after_median": self.after_median,
        }


def certify_result(result: RowResult) -> Certificates:
    """Return the certificates of all test images against the threat of the row."""
    if not result.is_complete:
        raise InvalidInputError(
            f"{result.row} has {len(result.members)} of {result.n_partitions} members; a "
            "certificate needs all. Go on with --resume-from."
        )
    degree = int(result.origin.get("degree", 1))
    if degree == 1:
        return certify_counts(result.counts, result.n_partitions, result.threat)
    spread = make_spread(result.n_partitions // degree, degree)
    return certify_finite_aggregation(
        result.signed_votes, result.n_classes, spread, threat=result.threat
    )


def certify_counts(counts: NDArray[Any], n_members: int, threat: str | Threat) -> Certificates:
    """Return the certificates of a plurality vote from its counts, which are enough for them."""
    wanted = parse_threat(threat)
    labels, runner_up = plurality(counts)
    radius = plurality_radius(counts, labels, runner_up, n_members) // wanted.touches
    return Certificates(labels, radius, runner_up, counts, wanted, n_members)


def evaluate(result: RowResult) -> Outcome:
    """Certify a finished row and compute its numbers."""
    certificates = certify_result(result)
    median = median_radius(certificates, result.labels)
    around: list[float | None] = [None, None]
    if median is not None:
        shares = certified_accuracy(certificates, result.labels, [median, median + 1])
        around = [round(100 * float(share), 4) for share in shares]
    return Outcome(
        100 * clean_accuracy(certificates, result.labels),
        100 * base_accuracy(certificates, result.labels),
        median,
        *around,
    )


def disagreements(ours: Outcome, paper: PaperNumbers) -> list[str]:
    """Return in words what lies outside the tolerance; nothing where all agrees.

    Examples
    --------
    >>> ours = Outcome(95.0, 77.2, 440, 50.1, 49.9)
    >>> disagreements(ours, PaperNumbers(95.85, 76.97, 448))
    []
    >>> disagreements(ours, PaperNumbers(97.0, 76.97, None))
    ['clean -2.00 points', 'median 441, paper none']
    """
    found = [
        f"{name} {ours_value - paper_value:+.2f} points"
        for name, ours_value, paper_value in (
            ("clean", ours.clean, paper.clean),
            ("base", ours.base, paper.base),
        )
        # Both are rounded to two digits in print; so is their difference here.
        if round(abs(ours_value - paper_value), 2) > POINTS
    ]
    theirs, mine = paper.median, ours.published
    if (theirs is None) != (mine is None):
        found.append(f"median {_or_none(mine)}, paper {_or_none(theirs)}")
    elif theirs is not None and mine is not None and abs(mine - theirs) > max(1, SHARE * theirs):
        found.append(f"median {mine - theirs:+d}")
    return found


def _or_none(median: int | None) -> str:
    return "none" if median is None else str(median)


# Results on disk: a readable summary, and votes in files small enough to commit.
#
# A finished row is a folder with ``result.json`` and a few ``votes-*.npz``, or one ``counts-*.npz``
# (`keep_counts`). While a row is being made its folder also holds one ``part-*.npz`` per block of
# members; each is whole or absent, so a killed run loses at most the block it was at.

FORMAT = "poisonproof reproduction result"
VERSION = 1
SUMMARY = "result.json"
VOTES_PER_FILE = 16_000_000
"""Coded votes take less than a byte each, so a file stays below 16 MiB."""

LARGEST_VOTES = 2_000_000
"""Bytes of coded votes that a finished row keeps; of larger ones it keeps the counts."""


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
    write_bytes(folder / name, npz_bytes({**_arrays(result), "votes": result.present_votes}))


def write_result(folder: Path, result: RowResult) -> None:
    """Write all members compactly and take the parts away."""
    old = [*folder.glob("part-*.npz"), *folder.glob("votes-*.npz")]
    n_files = max(1, -(-result.present_votes.size // VOTES_PER_FILE))
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


def counts_are_enough(folder: Path) -> bool:
    """Say whether a finished row needs no votes beside the counts in the repository.

    So it is where votes are large, and where all members share one seed, which no other result is
    computed from. The certificates of finite aggregation need the votes.
    """
    summary = read_json(folder / SUMMARY, FORMAT, VERSION)
    origin = summary["law"]
    if not summary["complete"] or int(origin.get("degree", 1)) > 1:
        return False
    size = sum(int(entry["bytes"]) for entry in summary["files"])
    return size > LARGEST_VOTES or origin["specification"]["seed_rule"] == "shared"


def keep_counts(folder: Path) -> None:
    """Replace the votes of a finished row by their counts: all that its certificates need.

    The summary goes on naming the digest of the votes.
    """
    result = read_result(folder)
    counts = result.counts.astype(np.uint16)
    content = npz_bytes({**_arrays(result), "counts": counts})
    digest = sha256(content)
    summary = read_json(folder / SUMMARY, FORMAT, VERSION)
    old = [folder / entry["file"] for entry in summary["files"]]
    name = f"counts-{digest[:8]}.npz"
    write_bytes(folder / name, content)
    summary["files"] = [{"file": name, "sha256": digest, "bytes": len(content)}]
    write_json(folder / SUMMARY, summary)
    for path in old:
        path.unlink()


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
        if whole.votes is not None and summary.get("votes_sha256") != votes_digest(whole):
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
        "law": result.origin,  # the key of files that were written before
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
    return npz_bytes({**_arrays(result), **encode_votes(result.present_votes, result.n_classes)})


def _arrays(result: RowResult) -> dict[str, NDArray[Any]]:
    about = {
        "law": result.origin,
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
        votes = counts = None
        if "votes" in arrays:
            votes = arrays["votes"]
        elif "words" in arrays:
            votes = decode_votes(arrays)
        else:
            counts = arrays["counts"].astype(np.int32)
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
            tuple(CommandRun.from_json(run) for run in about["runs"]),
            counts,
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise InvalidInputError(f"{path}: {error}") from error
        raise InvalidInputError(f"{path} is no file of votes: {error}.") from error
