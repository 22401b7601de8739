"""The votes of a row, coded in few bytes, and the record of the runs that made them."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import poisonproof
from poisonproof.certificates.plurality import ABSTAIN, count_votes
from poisonproof.exceptions import InvalidInputError
from poisonproof.store.manifest import installed_version

# Votes in the fewest bytes: an entropy coder with one model per test row.
#
# The votes of one row are nearly independent draws from that row's own distribution, and its vote
# counts are that distribution. Each row is coded by a range coder of its own (rANS: one number that
# grows with every vote by its information, and sheds 16 bits whenever it gets too large), all rows
# side by side in NumPy. On simulated votes with MNIST's accuracies the words are within 1 % of the
# entropy and the whole file, counts included, within 10 %; deflate needs 40 to 50 % more than that,
# and LZMA 20 to 25 % more at twenty times the time.

ABSTAINED = 255
"""Code of an abstention in a matrix of uint8 votes."""

LARGEST = 60_000
"""Votes per row in one code: one shed word must be enough for every vote."""

_WORD = 16


def encode_votes(votes: NDArray[np.uint8], n_classes: int) -> dict[str, NDArray[Any]]:
    """Code a vote matrix of shape (n, k), `ABSTAINED` where a member abstains, row by row.

    Examples
    --------
    >>> votes = np.array([[2, 2, 0, 255], [1, 1, 1, 1]], dtype=np.uint8)
    >>> code = encode_votes(votes, n_classes=3)
    >>> code["counts"]
    array([[1, 0, 2, 1],
           [0, 4, 0, 0]], dtype=uint16)
    >>> decode_votes(code)
    array([[  2,   2,   0, 255],
           [  1,   1,   1,   1]], dtype=uint8)
    """
    n, k = votes.shape
    symbols = np.where(votes == ABSTAINED, n_classes, votes).astype(np.intp)
    outside = (votes != ABSTAINED) & (votes >= min(n_classes, ABSTAINED))
    if k > LARGEST or n_classes > ABSTAINED or outside.any():
        raise InvalidInputError(
            f"At most {LARGEST} votes per row of up to 255 classes can be coded, and every vote "
            f"must be below n_classes={n_classes}. Got {k} votes per row."
        )
    width = n_classes + 1
    places = np.arange(n)[:, np.newaxis] * width + symbols
    counts = np.bincount(places.ravel(), minlength=n * width).reshape(n, width)
    starts = np.cumsum(counts, axis=1) - counts
    states = np.full(n, k << _WORD, dtype=np.uint64)
    words = np.empty((n, k), dtype=np.uint16)
    lengths = np.zeros(n, dtype=np.int64)
    rows = np.arange(n)
    for j in reversed(range(k)):  # the last vote first: decoding meets them in order
        share = counts[rows, symbols[:, j]].astype(np.uint64)
        full = np.flatnonzero(states >= share << np.uint64(2 * _WORD))
        words[full, lengths[full]] = states[full].astype(np.uint16)  # its lowest 16 bits
        lengths[full] += 1
        states[full] >>= np.uint64(_WORD)
        whole, rest = np.divmod(states, share)
        states = whole * np.uint64(k) + starts[rows, symbols[:, j]].astype(np.uint64) + rest
    used = np.arange(k) < lengths[:, np.newaxis]
    return {
        "counts": counts.astype(np.uint16),
        "states": states,
        "lengths": lengths.astype(np.uint16),
        "words": words[used],
    }


def decode_votes(code: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return the votes that `encode_votes` coded, shape (n, k)."""
    try:
        counts = code["counts"].astype(np.int64)
        states = code["states"].astype(np.uint64)
        lengths = code["lengths"].astype(np.int64)
        words = code["words"].astype(np.uint64)
        n, width = counts.shape
        k = int(counts[0].sum()) if n else 0
        fits = bool((counts.sum(axis=1) == k).all()) and int(lengths.sum()) == len(words)
        if not fits or states.shape != (n,) or lengths.shape != (n,):
            raise InvalidInputError("The coded votes are damaged: their parts do not fit.")
    except (KeyError, ValueError) as error:
        raise InvalidInputError(f"The coded votes are damaged: {error}.") from error
    starts = np.cumsum(counts, axis=1) - counts
    # Which vote owns each of the k places of a row: its counts, laid side by side.
    owners = np.repeat(np.tile(np.arange(width), n), counts.ravel()).reshape(n, k)
    next_word = np.cumsum(lengths)  # one past the last word of each row; words are read backwards
    votes = np.empty((n, k), dtype=np.uint8)
    rows = np.arange(n)
    for j in range(k):
        whole, place = np.divmod(states, np.uint64(k))
        symbol = owners[rows, place.astype(np.intp)]
        votes[:, j] = np.where(symbol == width - 1, ABSTAINED, symbol)
        share, start = counts[rows, symbol], starts[rows, symbol]
        states = share.astype(np.uint64) * whole + place - start.astype(np.uint64)
        low = np.flatnonzero(states < np.uint64(k << _WORD))
        next_word[low] -= 1
        states[low] = (states[low] << np.uint64(_WORD)) | words[next_word[low]]
    if not np.array_equal(next_word, np.cumsum(lengths) - lengths):
        raise InvalidInputError("The coded votes are damaged: not all of the code was used.")
    return votes


# Who computed a result, with what, and how long it took.

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "triton")


@dataclass(frozen=True)
class MemberBlock:
    """Members that were trained and voted together.

    Attributes
    ----------
    number : int
        Which block of its run.
    members : int
        How many members.
    train_seconds, vote_seconds : float
        Wall time of training, and of voting on the whole test set.
    """

    number: int
    members: int
    train_seconds: float
    vote_seconds: float


@dataclass(frozen=True)
class CommandRun:
    """One run of the command on one machine.

    Attributes
    ----------
    id : str
        Random name, so that copies of a run are recognised.
    command : str
        What was run, without folders.
    software, hardware : mapping
        Versions and machine.
    blocks : tuple of MemberBlock
        The work done.
    """

    id: str
    command: str
    software: Mapping[str, Any]
    hardware: Mapping[str, Any]
    blocks: tuple[MemberBlock, ...] = ()

    @property
    def seconds(self) -> tuple[float, float]:
        """Wall time of training and of voting."""
        return (
            sum(block.train_seconds for block in self.blocks),
            sum(block.vote_seconds for block in self.blocks),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the run as JSON values."""
        return {
            "id": self.id,
            "command": self.command,
            "software": dict(self.software),
            "hardware": dict(self.hardware),
            "blocks": [
                [b.number, b.members, round(b.train_seconds, 3), round(b.vote_seconds, 3)]
                for b in self.blocks
            ],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CommandRun:
        """Read what `to_json` wrote."""
        blocks = tuple(MemberBlock(*block) for block in values["blocks"])
        return cls(**{**values, "blocks": blocks})


def merge_runs(runs: Iterable[CommandRun]) -> tuple[CommandRun, ...]:
    """Join runs by their names; a block that is there twice counts once."""
    merged: dict[str, CommandRun] = {}
    for run in runs:
        known = merged.get(run.id, run)
        blocks = {block.number: block for block in (*known.blocks, *run.blocks)}
        merged[run.id] = replace(known, blocks=tuple(blocks[i] for i in sorted(blocks)))
    return tuple(merged.values())


def new_run(command: str, machine: Mapping[str, Any]) -> CommandRun:
    """Describe a run that begins now on this machine."""
    return CommandRun(
        secrets.token_hex(6),
        command,
        {
            "poisonproof": poisonproof.__version__,
            "engine_sha256": _engine_digest(),
            "python": platform.python_version(),
            **{name: version for name in _PACKAGES if (version := installed_version(name))},
        },
        {"system": platform.system(), "cpu": _cpu(), "cores": os.cpu_count(), **machine},
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _engine_digest() -> str:
    """Return a digest of the code that trains networks."""
    root = Path(poisonproof.__file__).parent
    sha = hashlib.sha256()
    for path in sorted((root / "networks").rglob("*.py")):
        sha.update(f"{path.relative_to(root).as_posix()}\n".encode())
        sha.update(path.read_bytes())
    return sha.hexdigest()


# What one row came to: votes, who gave them, and what their bits depend on.


@dataclass(frozen=True)
class RowResult:
    """The votes of some or all members of one row.

    Attributes
    ----------
    origin : mapping
        Everything a member's bits depend on: row, data, partitions, specification, seed, machine.
    n_partitions, n_classes : int
        k and C.
    labels : ndarray of int64, shape (n,)
        True labels of the test images.
    members : ndarray of int64, shape (b,)
        Which members voted, ascending.
    votes : ndarray of uint8, shape (n, b), or None
        Their votes, 255 where one abstains; None where only their counts are kept.
    digests : ndarray of uint8, shape (b, 32)
        SHA-256 of each member's own digest.
    sizes : ndarray of int64, shape (b,)
        Rows of their partitions.
    failures : mapping of int to str
        Why members with rows abstain.
    runs : tuple of CommandRun
        Who computed this, and how long it took.
    kept_counts : ndarray of int32, shape (n, C), optional
        How many members voted for each class, where the votes are not kept.
    """

    origin: Mapping[str, Any]
    n_partitions: int
    n_classes: int
    labels: NDArray[np.int64]
    members: NDArray[np.int64]
    votes: NDArray[np.uint8] | None
    digests: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    failures: Mapping[int, str]
    runs: tuple[CommandRun, ...]
    kept_counts: NDArray[np.int32] | None = None

    def __post_init__(self) -> None:
        n, b = len(self.labels), len(self.members)
        shape = (n, b) if self.votes is None else self.votes.shape
        shapes = (shape, self.digests.shape, self.sizes.shape)
        ascending = bool((np.diff(self.members) > 0).all())
        inside = not b or (self.members[0] >= 0 and self.members[-1] < self.n_partitions)
        if shapes != ((n, b), (b, 32), (b,)) or not ascending or not inside:
            raise InvalidInputError(
                f"The result of {self.row} is damaged: its arrays do not fit together."
            )

    @property
    def row(self) -> str:
        """Name of the row."""
        return str(self.origin["row"])

    @property
    def threat(self) -> str:
        """Threat of the certificates: inserted or deleted rows unless `origin` says more."""
        return str(self.origin.get("threat", "insert_delete"))

    @property
    def is_complete(self) -> bool:
        """Whether all members voted."""
        return len(self.members) == self.n_partitions

    @cached_property
    def signed_votes(self) -> NDArray[np.int16]:
        """The votes as `certify_votes` takes them, -1 for an abstention."""
        votes = self.present_votes
        return np.where(votes == ABSTAINED, ABSTAIN, votes.astype(np.int16))

    @property
    def present_votes(self) -> NDArray[np.uint8]:
        """The votes, or an error where only their counts are kept."""
        if self.votes is None:
            raise InvalidInputError(
                f"Of {self.row} only the vote counts are kept. Make its votes again: reproduce it "
                "with --scores and another --out."
            )
        return self.votes

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """Number of members that voted for each class, shape (n, C)."""
        if self.kept_counts is not None:
            return self.kept_counts
        return count_votes(self.signed_votes, self.n_classes)

    def only(self, chosen: NDArray[np.bool_]) -> RowResult:
        """Return the members at the places `chosen`."""
        members = self.members[chosen]
        kept = set(members.tolist())
        return replace(
            self,
            members=members,
            votes=None if self.votes is None else self.votes[:, chosen],
            digests=self.digests[chosen],
            sizes=self.sizes[chosen],
            failures={i: why for i, why in self.failures.items() if i in kept},
        )


def compact_votes(votes: NDArray[Any]) -> NDArray[np.uint8]:
    """Return votes as uint8, 255 for an abstention.

    >>> compact_votes(np.array([[3, -1]]))
    array([[  3, 255]], dtype=uint8)
    """
    if votes.size and int(votes.max()) >= ABSTAINED:
        raise InvalidInputError(f"Votes for at most {ABSTAINED} classes can be kept as bytes.")
    return np.where(votes == ABSTAIN, ABSTAINED, votes).astype(np.uint8)


def require_origin(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raise if the members of a result depend on something else, and say what differs."""
    different = _differences(found, wanted)
    if different:
        name, theirs, ours = different[0]
        raise InvalidInputError(
            f"{where} holds members of another specification: {name} is {theirs!r} there and "
            f"{ours!r} here ({len(different)} in all). Members of two "
            "specifications are not one model. Choose another folder, or start again."
        )


def merge_results(results: Sequence[RowResult]) -> RowResult:
    """Join the members of several runs of one row.

    A member that is in two of them must be the same in both.
    """
    first = results[0]
    if len(results) == 1:
        return first
    kept = [first]
    for other in results[1:]:
        require_origin(other.origin, first.origin, f"One of the results of {first.row}")
        if not np.array_equal(other.labels, first.labels):
            raise InvalidInputError(f"Two results of {first.row} have different test labels.")
        for known in kept:
            _require_same_members(known, other)
        seen = np.concatenate([result.members for result in kept])
        kept.append(other.only(~np.isin(other.members, seen)))
    members = np.concatenate([result.members for result in kept])
    order = np.argsort(members)
    return replace(
        first,
        members=members[order],
        votes=np.concatenate([result.present_votes for result in kept], axis=1)[:, order],
        digests=np.concatenate([result.digests for result in kept])[order],
        sizes=np.concatenate([result.sizes for result in kept])[order],
        failures={i: why for result in kept for i, why in result.failures.items()},
        runs=merge_runs([run for result in results for run in result.runs]),
    )


def _require_same_members(first: RowResult, second: RowResult) -> None:
    _, mine, theirs = np.intersect1d(first.members, second.members, return_indices=True)
    same = (first.digests[mine] == second.digests[theirs]).all(axis=1)
    same &= (first.present_votes[:, mine] == second.present_votes[:, theirs]).all(axis=0)
    if not same.all():
        raise InvalidInputError(
            f"Member {int(first.members[mine][~same][0])} of {first.row} is not the same in two "
            f"results ({int((~same).sum())} such members), although their specifications are. One "
            "of them was made by changed code or a faulty machine: train that part again."
        )


def _differences(
    found: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = ""
) -> list[tuple[str, Any, Any]]:
    result: list[tuple[str, Any, Any]] = []
    for name in sorted({*found, *wanted}):
        a, b = found.get(name), wanted.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            result += _differences(a, b, f"{prefix}{name}.")
        elif a != b:
            result.append((f"{prefix}{name}", a, b))
    return result
