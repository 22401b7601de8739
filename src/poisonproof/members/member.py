"""The contract between a partition and its member, and members that vote one after the other.

A *learner* is deterministic: given one partition and a seed it returns one member; nothing else may
reach the member. Learners that train many members in one computation implement `BatchedLearner`,
and owe the same members, bit for bit.
"""

from __future__ import annotations

import errno
import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import asdict, dataclass, fields
from math import prod
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils.parallel import Parallel, delayed

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.exceptions import (
    InvalidInputError,
    InvalidRowsError,
    MemberWarning,
    PoisonproofError,
)
from poisonproof.members.streams import restored_streams
from poisonproof.partition.containers import is_sparse, n_rows, take_rows
from poisonproof.partition.partitioned import Partition, PartitionedData
from poisonproof.progress import Progress, reporting
from poisonproof.threads import one_thread


@dataclass(frozen=True)
class Spec:
    """Everything that can change a bit of something trained: one frozen value with a JSON form."""

    kind: ClassVar[str]
    """The name of the specification in errors."""
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Allowed values, by field."""
    counts: ClassVar[tuple[str, ...]] = ()
    """Fields that are numbers of at least one."""

    def __post_init__(self) -> None:
        if problems := self.problems():
            raise InvalidInputError(f"The {self.kind} specification is wrong: {' '.join(problems)}")

    def problems(self) -> list[str]:
        """Return what is wrong with the values, one sentence each."""
        wrong = [
            f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}."
            for name, allowed in self.choices.items()
            if getattr(self, name) not in allowed
        ]
        values = {name: getattr(self, name) for name in self.counts}
        return wrong + [
            f"{name} must be at least 1, got {value!r}."
            for name, value in values.items()
            if not isinstance(value, Real) or value < 1
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        if unknown := sorted(set(values) - {item.name for item in fields(cls)}):
            raise InvalidInputError(
                f"A {cls.kind} specification of this version has no field {', '.join(unknown)}."
                " It was written by another version of poisonproof."
            )
        return cls(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON form."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Member(ABC):
    """One fitted f_i: a function from samples to votes."""

    @abstractmethod
    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return one class index per row of `X`, `ABSTAIN` where there is none."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hexadecimal digest of everything that decides this member's votes."""

    failure: str | None = None
    """The reason why this member abstains everywhere, or None."""


class Ensemble(ABC):
    """The k fitted members of one model, in the order of their partitions."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of members, k."""

    @abstractmethod
    def votes(self, X: Any, *, n_jobs: int | None, progress: Progress) -> NDArray[np.int16]:
        """Return the vote matrix, shape (n, k)."""

    def digests(self) -> list[str]:
        """Return one digest per member."""
        return self.digests_of(range(len(self)))

    @abstractmethod
    def digests_of(self, which: Sequence[int]) -> list[str]:
        """Return the digests of some members."""

    @abstractmethod
    def failures(self) -> dict[int, str]:
        """Return the reason of every member that abstains because its learner raised."""

    def part(self, which: Sequence[int]) -> Ensemble:
        """Return some of the members, as an ensemble that votes."""
        raise InvalidInputError(f"Members of {type(self).__name__} cannot vote apart.")

    @abstractmethod
    def replaced(self, which: Sequence[int], members: Ensemble) -> Ensemble:
        """Return a copy in which member ``which[j]`` is member j of `members`."""


Finished = Callable[[Sequence[int], Ensemble], None]
"""Receives members as soon as they are trained: their partitions, and an ensemble of as many."""


Content = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]
"""The content of a member: JSON values, and arrays by name."""


class ArrayEnsemble(Ensemble):
    """Members that are nothing but arrays, so that the store need not know what they do."""

    family: ClassVar[str]
    """The name by which the store finds the function that rebuilds them."""

    @abstractmethod
    def export(self) -> tuple[dict[str, Any], list[Content]]:
        """Return what all members share, as JSON values, and what each consists of.

        The same members can be rebuilt from that, and a store can keep, replace and forget every
        member by itself.
        """


class Learner(ABC):
    """A kind of member: a deterministic function of one partition and a seed."""

    @abstractmethod
    def specification(self) -> Mapping[str, Any]:
        """Return everything about this learner that can change a member's bits, as JSON."""

    @abstractmethod
    def fit_member(self, partition: Partition, n_classes: int, seed: int) -> Member:
        """Train one member on one non-empty partition of at least two classes."""


class BatchedLearner(ABC):
    """A learner that trains many members in one computation.

    Guarantee
    ---------
    Member i of the result is a function of ``data[i]``, `n_classes` and `seed` alone: not of the
    other partitions' contents or sizes, of `which`, or of the order of the work.
    """

    @abstractmethod
    def specification(self) -> Mapping[str, Any]:
        """Return everything about this learner that can change a member's bits, as JSON."""

    @abstractmethod
    def fit_members(
        self,
        data: PartitionedData,
        which: Sequence[int],
        n_classes: int,
        seed: int,
        *,
        n_jobs: int | None,
        progress: Progress,
    ) -> Ensemble:
        """Train the members of the partitions `which`; the result has ``len(which)`` members.

        Every partition is allowed, the empty ones too: those members abstain. `progress` has been
        started by the caller, and advances with every member.
        """


# Memory, disks and devices are shared: a member whose neighbor takes them all would abstain,
# although its own partition did not change. So the machine's errors must not become abstentions:
# the fit stops and can be resumed. Everything else that a learner raises is a function of its rows.

_ADDRESSES = 2**47
"""Bytes that a process can address at most (128 TiB), however much memory a machine has."""

_OF_A_NAME = frozenset(
    {
        *(errno.EACCES, errno.EBADF, errno.EEXIST, errno.EFBIG, errno.EILSEQ, errno.EINVAL),
        *(errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENODEV, errno.ENOENT),
        *(errno.ENOTDIR, errno.ENOTEMPTY, errno.ENOTSUP, errno.ENOTTY, errno.ENXIO),
        *(errno.EOPNOTSUPP, errno.EOVERFLOW, errno.EPERM, errno.EROFS, errno.ESPIPE),
        *(errno.ETXTBSY, errno.EXDEV),
    }
)
"""Errors of the system because of a file's name, or of what lies there.

A row may hold that name. All other numbers are the machine's (no space, no memory, no quota, too
many open files, a broken disk or connection), and so is one that is not known.
"""

_SHARED = (BrokenExecutor, BlockingIOError, ChildProcessError, ConnectionError, TimeoutError)
"""Errors about workers and connections. joblib's `TerminatedWorkerError` is one of the first."""

_BEGINNINGS = (
    "[enforce fail at alloc_cpu",
    "CUDA ",
    "DefaultCPUAllocator",
    "Resource temporarily unavailable",
    "can't start new thread",
    "cuDNN error",
    "std::bad_alloc",
)
"""Beginnings of what torch and other native code raise without memory, or without a device.

Further on a message may quote a cell, which an attacker wrote.
"""

_NATIVE = frozenset({"catboost", "_catboost", "lightgbm", "torch", "xgboost"})
"""Packages whose own errors, of whatever class, carry the words of native code."""

_DEVICE = frozenset({"AcceleratorError", "OutOfMemoryError"})
"""Their classes that are about a device, whatever the message."""


def is_machine_error(error: BaseException) -> bool:
    """Return whether an error must stop the work instead of silencing the member that met it.

    An error that was raised from a machine's error is one, too. (What else was being handled then
    may be the caller's: a fit that is tried again after an error trains the same members.)
    """
    seen: list[BaseException] = []
    behind: BaseException | None = error
    while behind is not None and not any(behind is one for one in seen):
        if _is_of_machine(behind):
            return True
        seen.append(behind)
        behind = behind.__cause__
    return False


def _is_of_machine(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
        if shape is None or dtype is None:
            return True
        # More than a process can address fails everywhere and always, so the rows are to blame.
        return bool(prod(map(int, shape)) * np.dtype(dtype).itemsize < _ADDRESSES)
    if isinstance(error, _SHARED):
        return True
    if isinstance(error, OSError):  # a library that raises one itself has no number for it
        return error.errno is not None and error.errno not in _OF_A_NAME
    native = type(error).__module__.split(".")[0] in _NATIVE
    if native and type(error).__name__ in _DEVICE:
        return True
    return (native or isinstance(error, RuntimeError)) and _text(error).startswith(_BEGINNINGS)


def reason_of(error: BaseException) -> str:
    """Return an error in words, as a member that abstains keeps them."""
    return f"{type(error).__name__}: {_text(error)}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # it quotes an object that cannot be shown
        return ""


def largest_cell(X: Any) -> str:
    """Return in words the largest number of some rows, which may be why memory ran out."""
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "iuf" or X.ndim != 2 or not X.size:
        return ""
    sizes = np.nan_to_num(np.abs(X.astype(np.float64)), nan=-1.0)
    row, column = np.unravel_index(int(np.argmax(sizes)), X.shape)
    return f" (its largest value is {X[row, column]:g}, in column {int(column)})"


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
    """Gives no vote; why is not part of the digest, because an error may quote an address."""

    failure: str | None = None

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return `ABSTAIN` for every row."""
        return np.full(n_rows(X), ABSTAIN, dtype=np.int16)

    def digest(self) -> str:
        """Return a digest of the abstention."""
        return "abstain:empty" if self.failure is None else "abstain:failed"


class MemberList(Ensemble):
    """Members that vote one after the other, or in several workers; one per partition, in order."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)

    def __len__(self) -> int:
        return len(self.members)

    def votes(self, X: Any, *, n_jobs: int | None, progress: Progress) -> NDArray[np.int16]:
        """Return the vote of every member on every row of `X`, shape (n, k).

        A member that raises on a row abstains on it, and a `MemberWarning` says why, even if all
        members do: an attacker who silences them must not turn a vote into an error.
        """
        votes = np.empty((n_rows(X), len(self)), dtype=np.int16)
        workers = effective_n_jobs(n_jobs)
        blocks = np.array_split(np.arange(len(self)), min(len(self), 8 * workers))
        chosen = ([self.members[i] for i in block] for block in blocks)
        found = (_votes_of(members, X) for members in chosen)
        if workers > 1:
            found = Parallel(n_jobs=workers, backend="loky", return_as="generator")(
                delayed(_votes_of)(members, X) for members in chosen
            )
        errors: dict[int, str] = {}
        with reporting(progress, len(self), "Voting"):
            for block, (voted, raised) in zip(blocks, found, strict=True):
                votes[:, block] = voted
                errors |= {int(block[place]): reason for place, reason in raised.items()}
                progress.advance(len(block))
        if errors:
            first = min(errors)
            warnings.warn(
                f"{len(errors)} of {len(self)} members abstain on some of these rows; "
                f"member {first}: {errors[first]}",
                MemberWarning,
                stacklevel=3,
            )
        return votes

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

    def part(self, which: Sequence[int]) -> MemberList:
        """Return some of the members."""
        return MemberList([self.members[index] for index in which])

    def replaced(self, which: Sequence[int], members: Ensemble) -> MemberList:
        """Return a copy in which member ``which[j]`` is member j of `members`."""
        if not isinstance(members, MemberList):
            raise TypeError(f"expected a MemberList, got {type(members).__name__}")
        copy = list(self.members)
        for index, member in zip(which, members.members, strict=True):
            copy[index] = member
        return MemberList(copy)


def _votes_of(members: Sequence[Member], X: Any) -> tuple[NDArray[np.int16], dict[int, str]]:
    """Return the votes of a few members, shape (n, b), and why some raised."""
    votes = np.full((n_rows(X), len(members)), ABSTAIN, dtype=np.int16)
    errors: dict[int, str] = {}
    # On one thread, for BLAS may round differently with another number of them.
    with one_thread(), restored_streams():
        for place, member in enumerate(members):
            error = predict_into(votes[:, place], member.votes, X)
            if error is not None:
                errors[place] = reason_of(error)
    return votes, errors


def predict_into(
    found: NDArray[Any], predict: Callable[[Any], Any], X: Any, parts: int = 2
) -> Exception | None:
    """Write predictions for the rows of `X` into `found`, and return what `predict` raised first.

    Where it raises, it is called on parts of the rows, so that one row silences a member on no
    other. Errors of the machine are raised.
    """
    raised: Exception | None = None
    waiting = [np.arange(len(found))]
    while waiting:
        rows = waiting.pop()
        try:
            with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
                some = X if len(rows) == len(found) else take_rows(X, rows)
                found[rows] = predict(guarded(some))
        except Exception as error:
            if is_machine_error(error):
                raise
            raised = error if raised is None else raised
            if len(rows) > 1:
                waiting += np.array_split(rows, min(parts, len(rows)))[::-1]
    return raised


def mapped_by(features: Any, rows: Any) -> Any:
    """Map rows; an error of the map counts as one of the rows, unless it is the machine's."""
    try:
        return features.transform(rows)
    except Exception as error:
        if isinstance(error, PoisonproofError) or is_machine_error(error):
            raise
        raise InvalidRowsError(
            f"{type(features).__name__} cannot map these rows: {type(error).__name__}: {error}"
        ) from error


def guarded(X: Any) -> Any:
    """Return rows that no member can change for the next one."""
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
