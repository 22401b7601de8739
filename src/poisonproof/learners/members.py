"""Members that need no learner, and a list of members as an ensemble."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from poisonproof.exceptions import InvalidRowsError, MemberWarning, PoisonproofError
from poisonproof.learners.base import ABSTAIN, Ensemble, Member
from poisonproof.learners.machine_errors import is_machine_error, reason_of
from poisonproof.learners.streams import restored_streams
from poisonproof.partition.containers import is_sparse, n_rows, take_rows
from poisonproof.progress import Progress, reporting
from poisonproof.threads import one_thread

__all__ = ["AbstainingMember", "ConstantMember", "MemberList", "guarded", "mapped_by"]


@dataclass(frozen=True)
class ConstantMember(Member):
    """Votes the only class its partition holds."""

    label: int

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return `label` for every row."""
        return np.full(n_rows(X), self.label, dtype=np.int16)

    def digest(self) -> str:
        """Return a digest of the constant."""
        return f"constant:{self.label}"


@dataclass(frozen=True)
class AbstainingMember(Member):
    """Gives no vote: its partition is empty, or its learner raised on it.

    The reason is not part of the digest: it decides no vote, and an error may quote an address.
    """

    reason: str | None = None

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return `ABSTAIN` for every row."""
        return np.full(n_rows(X), ABSTAIN, dtype=np.int16)

    def digest(self) -> str:
        """Return a digest of the abstention."""
        return "abstain:empty" if self.reason is None else "abstain:failed"

    @property
    def failure(self) -> str | None:
        """What the learner raised, or None for an empty partition."""
        return self.reason


class MemberList(Ensemble):
    """Members that are asked one after the other, or by several workers.

    Parameters
    ----------
    members : sequence of Member
        One per partition, in order.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)

    def __len__(self) -> int:
        return len(self.members)

    def votes(self, X: Any, *, n_jobs: int | None, progress: Progress) -> NDArray[np.int16]:
        """Ask every member about every row of `X`.

        A member that raises on a row abstains on it, and a `MemberWarning` says why. That is so
        where all do, too: an attacker who silences the others must not turn an answer into an
        error.
        """
        votes = np.empty((n_rows(X), len(self)), dtype=np.int16)
        workers = effective_n_jobs(n_jobs)
        blocks = np.array_split(np.arange(len(self)), min(len(self), 8 * workers))
        errors: dict[int, str] = {}
        with reporting(progress, len(self), "Voting"):
            for block, answers in zip(blocks, self._answers(blocks, X, workers), strict=True):
                votes[:, block] = answers.votes
                errors.update({int(block[place]): text for place, text in answers.errors.items()})
                progress.advance(len(block))
        self._report(errors)
        return votes

    def _answers(
        self, blocks: Sequence[NDArray[np.intp]], X: Any, workers: int
    ) -> Iterator[_Answers]:
        chosen = ([self.members[i] for i in block] for block in blocks)
        if workers == 1:
            with _fixed_settings():
                yield from (_ask(members, X) for members in chosen)
        else:
            yield from Parallel(n_jobs=workers, backend="loky", return_as="generator")(
                delayed(_ask_in_worker)(members, X) for members in chosen
            )

    def _report(self, errors: dict[int, str]) -> None:
        if not errors:
            return
        first = min(errors)
        warnings.warn(
            f"{len(errors)} of {len(self)} members abstain on some of these rows; "
            f"member {first}: {errors[first]}",
            MemberWarning,
            stacklevel=4,
        )

    def digests(self) -> list[str]:
        """Return one digest per member."""
        return [member.digest() for member in self.members]

    def digests_of(self, which: Sequence[int]) -> list[str]:
        """Return the digests of some members."""
        return [self.members[index].digest() for index in which]

    def failures(self) -> dict[int, str]:
        """Return why the members without a model abstain."""
        return {
            index: member.failure
            for index, member in enumerate(self.members)
            if member.failure is not None
        }

    def replaced(self, which: Sequence[int], members: Ensemble) -> MemberList:
        """Return a copy in which member ``which[j]`` is member j of `members`."""
        if not isinstance(members, MemberList):
            raise TypeError(f"expected a MemberList, got {type(members).__name__}")
        copy = list(self.members)
        for index, member in zip(which, members.members, strict=True):
            copy[index] = member
        return MemberList(copy)


@dataclass(frozen=True)
class _Answers:
    """What a few members said: votes (n, b), and what some raised."""

    votes: NDArray[np.int16]
    errors: dict[int, str]


def _ask(members: Sequence[Member], X: Any) -> _Answers:
    votes = np.full((n_rows(X), len(members)), ABSTAIN, dtype=np.int16)
    errors: dict[int, str] = {}
    for position, member in enumerate(members):
        try:
            votes[:, position] = _votes(member, X)
        except Exception as error:
            if is_machine_error(error):
                raise
            errors[position] = reason_of(error)
            votes[:, position] = _ask_by_halves(member, X)
    return _Answers(votes, errors)


def _votes(member: Member, X: Any) -> NDArray[np.int16]:
    with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
        return member.votes(guarded(X))


def _ask_by_halves(member: Member, X: Any) -> NDArray[np.int16]:
    """Ask a member that has raised about fewer rows, so that one row silences it on no other."""
    votes = np.full(n_rows(X), ABSTAIN, dtype=np.int16)
    waiting = np.array_split(np.arange(len(votes)), 2)[::-1] if len(votes) > 1 else []
    while waiting:
        rows = waiting.pop()
        try:
            votes[rows] = _votes(member, take_rows(X, rows))
        except Exception as error:
            if is_machine_error(error):
                raise
            if len(rows) > 1:
                waiting += np.array_split(rows, 2)[::-1]
    return votes


def _ask_in_worker(members: Sequence[Member], X: Any) -> _Answers:
    with _fixed_settings():
        return _ask(members, X)


@contextmanager
def _fixed_settings() -> Iterator[None]:
    """Ask on one thread, for BLAS may round differently with another number of them."""
    with one_thread(), restored_streams():
        yield


def mapped_by(features: Any, rows: Any) -> Any:
    """Map rows; what the map raises is said about the rows, unless it is the machine's error."""
    try:
        return features.transform(rows)
    except Exception as error:
        if isinstance(error, PoisonproofError) or is_machine_error(error):
            raise
        raise InvalidRowsError(
            f"{type(features).__name__} cannot map these rows: {type(error).__name__}: {error}"
        ) from error


def guarded(X: Any) -> Any:
    """Return the rows in a form through which whoever sees them cannot change them for the next."""
    if isinstance(X, np.ndarray):
        view = X.view()
        view.setflags(write=False)
        return view
    if is_sparse(X):  # canonical rows are CSR
        arrays = tuple(guarded(part) for part in (X.data, X.indices, X.indptr))
        return type(X)(arrays, shape=X.shape)
    if hasattr(X, "iloc"):
        return X.copy(deep=False)  # pandas copies on write
    return X
