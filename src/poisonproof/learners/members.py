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
from threadpoolctl import threadpool_limits

from poisonproof.exceptions import InvalidRowsError, MemberWarning
from poisonproof.learners.base import ABSTAIN, Ensemble, Member
from poisonproof.learners.streams import restored_streams
from poisonproof.partition.containers import is_sparse
from poisonproof.partition.values import n_rows
from poisonproof.progress import Progress

__all__ = ["AbstainingMember", "ConstantMember", "MemberList"]


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

        A member that raises abstains on all rows, and a `MemberWarning` says why; if all that have
        a model raise, the rows are to blame and the first error is raised as `InvalidRowsError`.
        """
        votes = np.empty((n_rows(X), len(self)), dtype=np.int16)
        workers = effective_n_jobs(n_jobs)
        blocks = np.array_split(np.arange(len(self)), min(len(self), 8 * workers))
        errors: dict[int, str] = {}
        progress.start(len(self), "Voting")
        try:
            for block, (columns, raised) in zip(
                blocks, self._answers(blocks, X, workers), strict=True
            ):
                votes[:, block] = columns
                errors.update({int(block[position]): text for position, text in raised.items()})
                progress.advance(len(block))
        finally:
            progress.stop()
        self._report(errors)
        return votes

    def _answers(
        self, blocks: Sequence[NDArray[np.intp]], X: Any, workers: int
    ) -> Iterator[tuple[NDArray[np.int16], dict[int, str]]]:
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
        with_model = sum(
            not isinstance(m, (ConstantMember, AbstainingMember)) for m in self.members
        )
        if len(errors) == with_model:
            raise InvalidRowsError(f"no member could vote on these rows; {errors[first]}")
        warnings.warn(
            f"{len(errors)} of {len(self)} members abstain on these rows; "
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


def _ask(members: Sequence[Member], X: Any) -> tuple[NDArray[np.int16], dict[int, str]]:
    columns = np.full((n_rows(X), len(members)), ABSTAIN, dtype=np.int16)
    errors: dict[int, str] = {}
    for position, member in enumerate(members):
        try:
            with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
                columns[:, position] = member.votes(_guarded(X))
        except (MemoryError, OSError):
            raise
        except Exception as error:
            errors[position] = f"{type(error).__name__}: {error}"
    return columns, errors


def _ask_in_worker(members: Sequence[Member], X: Any) -> tuple[NDArray[np.int16], dict[int, str]]:
    with _fixed_settings():
        return _ask(members, X)


@contextmanager
def _fixed_settings() -> Iterator[None]:
    """Ask on one thread, for BLAS may round differently with another number of them."""
    with threadpool_limits(limits=1), restored_streams():
        yield


def _guarded(X: Any) -> Any:
    """Return the rows in a form through which one member cannot change what the next one sees."""
    if isinstance(X, np.ndarray):
        view = X.view()
        view.setflags(write=False)
        return view
    if is_sparse(X):  # canonical rows are CSR
        arrays = tuple(_guarded(part) for part in (X.data, X.indices, X.indptr))
        return type(X)(arrays, shape=X.shape)
    if hasattr(X, "iloc"):
        return X.copy(deep=False)  # pandas copies on write
    return X
