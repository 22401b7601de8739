"""What one row came to: votes, who gave them, and under which law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import ABSTAIN
from poisonproof.exceptions import InvalidInputError
from poisonproof.reproduction.runs import Run, merge_runs
from poisonproof.reproduction.vote_coding import ABSTAINED

__all__ = ["RowResult", "compact_votes", "merge_results", "require_law"]


@dataclass(frozen=True)
class RowResult:
    """The votes of some or all members of one row.

    Attributes
    ----------
    law : mapping
        Everything a member's bits depend on: row, data, partitions, specification, seed, machine.
    n_partitions, n_classes : int
        k and C.
    labels : ndarray of int64, shape (n,)
        True labels of the test images.
    members : ndarray of int64, shape (b,)
        Which members voted, ascending.
    votes : ndarray of uint8, shape (n, b)
        Their votes, 255 where one abstains.
    digests : ndarray of uint8, shape (b, 32)
        SHA-256 of each member's own digest.
    sizes : ndarray of int64, shape (b,)
        Rows of their partitions.
    failures : mapping of int to str
        Why members with rows abstain.
    runs : tuple of Run
        Who computed this, and how long it took.
    """

    law: Mapping[str, Any]
    n_partitions: int
    n_classes: int
    labels: NDArray[np.int64]
    members: NDArray[np.int64]
    votes: NDArray[np.uint8]
    digests: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    failures: Mapping[int, str]
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        n, b = len(self.labels), len(self.members)
        shapes = (self.votes.shape, self.digests.shape, self.sizes.shape)
        ascending = bool((np.diff(self.members) > 0).all())
        inside = not b or (self.members[0] >= 0 and self.members[-1] < self.n_partitions)
        if shapes != ((n, b), (b, 32), (b,)) or not ascending or not inside:
            raise InvalidInputError(
                f"The result of {self.row} is damaged: its arrays do not fit together."
            )

    @property
    def row(self) -> str:
        """Name of the row."""
        return str(self.law["row"])

    @property
    def threat(self) -> str:
        """What the votes certify against; rows are inserted or deleted unless the law says more."""
        return str(self.law.get("threat", "insert_delete"))

    @property
    def is_complete(self) -> bool:
        """Whether all members voted."""
        return len(self.members) == self.n_partitions

    @cached_property
    def signed_votes(self) -> NDArray[np.int16]:
        """The votes as `certify_votes` takes them, -1 for an abstention."""
        return np.where(self.votes == ABSTAINED, ABSTAIN, self.votes.astype(np.int16))

    def only(self, chosen: NDArray[np.bool_]) -> RowResult:
        """Return the members at the places `chosen`."""
        members = self.members[chosen]
        kept = set(members.tolist())
        return replace(
            self,
            members=members,
            votes=self.votes[:, chosen],
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


def require_law(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    """Raise if a result was made under another law, and say what differs."""
    different = _differences(found, wanted)
    if different:
        name, theirs, ours = different[0]
        raise InvalidInputError(
            f"{where} holds members of another law: {name} is {theirs!r} there and {ours!r} here"
            f"{f' ({len(different)} differences)' if len(different) > 1 else ''}. Members of two "
            "laws are not one model. Choose another folder, or start again."
        )


def merge_results(results: Sequence[RowResult]) -> RowResult:
    """Join the members of several runs of one row.

    A member that is in two of them must be the same in both.

    Raises
    ------
    InvalidInputError
        If laws or labels differ, or a member has two digests or two sets of votes.
    """
    first = results[0]
    kept = [first]
    for other in results[1:]:
        require_law(other.law, first.law, f"One of the results of {first.row}")
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
        votes=np.concatenate([result.votes for result in kept], axis=1)[:, order],
        digests=np.concatenate([result.digests for result in kept])[order],
        sizes=np.concatenate([result.sizes for result in kept])[order],
        failures={i: why for result in kept for i, why in result.failures.items()},
        runs=merge_runs([run for result in results for run in result.runs]),
    )


def _require_same_members(first: RowResult, second: RowResult) -> None:
    _, mine, theirs = np.intersect1d(first.members, second.members, return_indices=True)
    same = (first.digests[mine] == second.digests[theirs]).all(axis=1)
    same &= (first.votes[:, mine] == second.votes[:, theirs]).all(axis=0)
    if not same.all():
        raise InvalidInputError(
            f"Member {int(first.members[mine][~same][0])} of {first.row} is not the same in two "
            f"results ({int((~same).sum())} such members), although their laws are. One of them "
            "was made by changed code or a faulty machine: train that part again."
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
