"""Members with a closed form in a few shared arrays: how they are stacked, stored and vote.

A member is a stretch of rows (weight vectors, or its own training rows) and the classes it knows.
The rows of all members lie one after the other, so the products of test rows with all of them are
one stream of large tiles. Products are exact, so the tiles cannot change a bit.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy import sparse

from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.exceptions import InvalidRowsError, StoreError
from poisonproof.features.exact import ExactRows, exact_rows
from poisonproof.members.member import ArrayEnsemble, Content, Ensemble
from poisonproof.progress import Progress, reporting
from poisonproof.threads import one_thread

TILE = 256
"""Rows that are multiplied at once, and only longer members."""
MAX_BYTES = 2**28
"""Working memory for votes."""

_LANES = 64
_CELLS = 2**18  # products at once: more do not fit into the cache
_TURNED = 256
_KINDS: dict[str, type[StackedMembers]] = {}


@dataclass(frozen=True)
class MemberParts:
    """The arrays of one member, before they are stacked or cut out of the stack."""

    classes: NDArray[np.int16]  # for which it can vote, ascending: of none it abstains
    rows: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # with one entry per row
    single: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # with one for the member
    failure: str | None = None

    def digest(self, head: bytes) -> str:
        """Return a digest of all of this, and of what members share."""
        sha = hashlib.sha256(head)
        sha.update(repr((self.classes.tolist(), self.failure)).encode())
        for group in (self.rows, self.single):
            for name, array in sorted(group.items()):
                sha.update(f"{name}{array.dtype.str}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, for `from_arrays`."""
        return (
            {"classes": self.classes}
            | {f"rows.{name}": array for name, array in self.rows.items()}
            | {f"single.{name}": array for name, array in self.single.items()}
        )

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], like: MemberParts, failure: str | None
    ) -> MemberParts:
        """Rebuild a member from a file; `like` has the names, shapes and types it must have."""
        rows = {name: _checked(arrays, f"rows.{name}", a) for name, a in like.rows.items()}
        single = {name: _checked(arrays, f"single.{name}", a) for name, a in like.single.items()}
        if len({len(array) for array in rows.values()}) > 1:
            sizes = {f"rows.{name}": len(array) for name, array in rows.items()}
            raise StoreError(f"The saved arrays of a member have different lengths: {sizes}.")
        return cls(_checked(arrays, "classes", like.classes), rows, single, failure)


def _checked(arrays: Mapping[str, NDArray[Any]], name: str, like: NDArray[Any]) -> NDArray[Any]:
    if name not in arrays:
        raise StoreError(f"A saved member lacks the array {name}.")
    found = arrays[name]
    if found.ndim != like.ndim or found.shape[1:] != like.shape[1:] or found.dtype != like.dtype:
        raise StoreError(
            f"The saved array {name} has shape {found.shape} and type {found.dtype}, but "
            f"{('n', *like.shape[1:])} and {like.dtype} belong to these members."
        )
    return found


def sample_matrix(X: Any) -> NDArray[Any]:
    """Return samples as numbers of shape (n, d), one row each, in the dtype they came in."""
    if sparse.issparse(X):
        raise InvalidRowsError(
            "Closed-form members need dense rows, but X is a sparse matrix. Use fewer columns "
            "and X.toarray(), for example HashedNGrams(n_features=1024)."
        )
    samples = np.asarray(X)
    if samples.dtype == object:
        if any(isinstance(cell, np.generic) and cell.dtype.kind in "mM" for cell in samples.flat):
            raise InvalidRowsError("Closed-form members take numbers only, not dates.")
        try:
            samples = samples.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRowsError(
                f"Closed-form members take numbers only: {error}. Encode texts and categories "
                "inside the member, in a pipeline, or by a frozen schema."
            ) from None
    if samples.ndim < 2 or samples.dtype.kind not in "buif":
        raise InvalidRowsError(
            "Closed-form members take numbers of shape (n, d), but X has shape "
            f"{samples.shape} and dtype {samples.dtype}."
        )
    return samples.reshape(len(samples), int(np.prod(samples.shape[1:])))


@dataclass(frozen=True)
class Tile:
    """Rows ``start:stop`` of the stack: those of a few members, whole."""

    start: int
    stop: int
    members: NDArray[np.intp]
    counts: NDArray[np.intp]  # how many classes each of them knows: its rows of the scores
    classes: NDArray[np.int16]  # those classes, member after member

    @cached_property
    def _by_knowledge(self) -> NDArray[np.intp]:
        """Places in `members`, those that know most classes first."""
        return np.argsort(-self.counts, kind="stable")

    @cached_property
    def _rows_by_rank(self) -> list[NDArray[np.intp]]:
        """Score rows of the first, second, ... class of all members that know so many."""
        firsts = (np.cumsum(self.counts) - self.counts)[self._by_knowledge]
        counts = self.counts[self._by_knowledge]
        return [firsts[counts > rank] + rank for rank in range(int(counts[0]))]

    def vote(self, scores: NDArray[np.float64], votes: NDArray[np.int16]) -> None:
        """Write the class of each member's largest score into `votes`, the smaller on ties."""
        # Rank after rank for all members at once: calls are few, and all loops run along rows.
        first, *others = self._rows_by_rank
        best = scores[first]
        found = np.broadcast_to(self.classes[first, np.newaxis], best.shape).copy()
        for rows in others:
            leading, leader = best[: len(rows)], found[: len(rows)]
            challenger = scores[rows]
            # Arithmetic instead of a masked copy, whose branches a CPU would guess wrong.
            change = self.classes[rows, np.newaxis] - leader
            change *= challenger > leading
            leader += change
            np.maximum(leading, challenger, out=leading)
        votes[self.members[self._by_knowledge]] = found


def cut_tiles(
    offsets: NDArray[np.intp], classes: Sequence[NDArray[np.int16]], sizes: Sequence[int]
) -> list[Tile]:
    """Put whole members together until their `sizes` add up to more than `TILE`."""
    groups, total = list[list[int]](), 0
    for member in np.flatnonzero(np.diff(offsets)).tolist():
        if not groups or total + sizes[member] > TILE:
            groups.append([])
            total = 0
        groups[-1].append(member)
        total += sizes[member]
    return [
        Tile(
            int(offsets[members[0]]),
            int(offsets[members[-1] + 1]),
            np.array(members, dtype=np.intp),
            np.array([len(classes[member]) for member in members], dtype=np.intp),
            np.concatenate([classes[member] for member in members]),
        )
        for members in groups
    ]


Visit = Callable[[Tile, NDArray[np.float64]], None]


@dataclass(frozen=True, eq=False)
class StackedMembers(ArrayEnsemble):
    """The members of one closed-form learner, one after the other.

    Attributes
    ----------
    settings : dict
        What the members share and what decides their votes, as JSON.
    offsets : ndarray of shape (k + 1,)
        Rows of member i are ``offsets[i]:offsets[i + 1]`` of every array in `rows`.
    classes : tuple of k ndarrays
        The classes each member can vote for.
    rows, single : mapping of str to ndarray
        Arrays with one entry per row, and with one entry per member.
    reasons : mapping of int to str
        The reasons of members that abstain because their fit raised.

    Guarantee
    ---------
    The products of test rows with member rows are exact, and everything after them is computed
    entry by entry or from one member's entries alone. So the votes of a member on a test row are a
    function of that member and that row: not of other members, other rows, tiles or threads.
    """

    settings: dict[str, Any]
    offsets: NDArray[np.intp]
    classes: tuple[NDArray[np.int16], ...]
    rows: Mapping[str, NDArray[Any]]
    single: Mapping[str, NDArray[Any]]
    reasons: Mapping[int, str]

    family: ClassVar[str] = "closed_form"
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        _KINDS[cls.kind] = cls

    @classmethod
    def stack(cls, settings: dict[str, Any], parts: Sequence[MemberParts]) -> Self:
        """Put the members one after the other."""
        like = cls.like(settings)
        sizes = [len(part.rows["values"]) if part.rows else 0 for part in parts]
        return cls(
            settings=settings,
            offsets=np.concatenate([[0], np.cumsum(sizes, dtype=np.intp)]).astype(np.intp),
            classes=tuple(part.classes for part in parts),
            rows={
                name: np.concatenate([empty, *(part.rows[name] for part in parts if part.rows)])
                for name, empty in like.rows.items()
            },
            single={
                name: np.array([part.single.get(name, zero) for part in parts], dtype=zero.dtype)
                for name, zero in like.single.items()
            },
            reasons={i: part.failure for i, part in enumerate(parts) if part.failure is not None},
        )

    @classmethod
    @abstractmethod
    def like(cls, settings: dict[str, Any]) -> MemberParts:
        """Return a member without rows: the names, dtypes and shapes of its arrays."""

    @classmethod
    def _like_exact(cls, settings: dict[str, Any], **rows: NDArray[Any]) -> MemberParts:
        """Return a member without rows whose rows are those of `ExactRows`, and these arrays."""
        dtype = np.float32 if settings["precision"] == "single" else np.float64
        values = np.empty((0, settings["n_features"]), dtype=dtype)
        exact = {"values": values, "exponents": np.empty(0, dtype=np.int32)}
        return MemberParts(np.empty(0, dtype=np.int16), {**exact, **rows})

    @abstractmethod
    def _score_chunk(self, queries: Any, visit: Visit) -> None:
        """Call ``visit(tile, scores)`` for each tile."""

    def __len__(self) -> int:
        return len(self.classes)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the caches of the last votes."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def member(self, index: int) -> MemberParts:
        """Return the arrays of one member."""
        here = slice(self.offsets[index], self.offsets[index + 1])
        return MemberParts(
            self.classes[index],
            {name: array[here] for name, array in self.rows.items()},
            {name: array[index] for name, array in self.single.items()},
            self.reasons.get(index),
        )

    def votes(self, X: Any, *, n_jobs: int | None, progress: Progress) -> NDArray[np.int16]:
        """Return the class every member votes for on every row of `X`, shape (n, k)."""
        samples = self._samples(X)
        votes = np.empty((len(samples), len(self)), dtype=np.int16)
        only = [known[0] if len(known) == 1 else ABSTAIN for known in self.classes]
        constant = np.array(only, dtype=np.int16)[:, np.newaxis]

        def predict(start: int, stop: int) -> None:
            found = np.empty((len(self), padded(stop - start)), dtype=np.int16)
            found[:] = constant
            queries = self._chunk(samples, start, stop)
            # A row of a member may be so large that its products overflow; it is then infinitely
            # far, for that member alone.
            with np.errstate(over="ignore", invalid="ignore"):
                self._score_chunk(queries, lambda tile, scores: tile.vote(scores, found))
            # Turned in blocks that fit into the cache.
            for block in range(0, len(self), _TURNED):
                here = slice(block, block + _TURNED)
                votes[start:stop, here] = found[here, : stop - start].T

        self._stream(predict, len(samples), n_jobs, progress)
        return votes

    def scores(self, X: Any, *, n_jobs: int | None, progress: Progress) -> NDArray[np.float64]:
        """Return every member's score for every class, shape (n, k, C).

        A class that is not in a member's partition has the score minus infinity.
        """
        samples = self._samples(X)
        n_classes = self.settings["n_classes"]
        scores = np.full((len(samples), len(self), n_classes), -np.inf)
        for index, classes in enumerate(self.classes):
            scores[:, index, classes] = 0.0

        def score(start: int, stop: int) -> None:
            queries = self._chunk(samples, start, stop)

            def visit(tile: Tile, block: NDArray[np.float64]) -> None:
                units = np.array([self._unit(index) for index in tile.members])
                owners = np.repeat(tile.members, tile.counts)
                found = block[:, : stop - start].T * np.repeat(units, tile.counts)
                scores[start:stop, owners, tile.classes] = found

            with np.errstate(over="ignore", invalid="ignore"):  # as in `votes`
                self._score_chunk(queries, visit)

        self._stream(score, len(samples), n_jobs, progress)
        return scores

    def _unit(self, index: int) -> float:
        """Return the factor of a member's scores."""
        return 1.0

    def _samples(self, X: Any) -> NDArray[Any]:
        samples = sample_matrix(X)
        if samples.shape[1] != self.settings["n_features"]:
            raise InvalidRowsError(
                f"X has {samples.shape[1]} features, but the members were fitted on "
                f"{self.settings['n_features']}."
            )
        return samples

    def _chunk(self, samples: NDArray[Any], start: int, stop: int) -> Any:
        """Return test rows as integers, filled up so that no SIMD remainder loop is used."""
        block = np.zeros((padded(stop - start), samples.shape[1]))
        block[: stop - start] = samples[start:stop]
        return exact_rows(block, self.settings["precision"])

    def _stream(
        self, work: Callable[[int, int], None], n: int, n_jobs: int | None, progress: Progress
    ) -> None:
        """Call `work` on stretches of rows that fit into the working memory."""
        workers = effective_n_jobs(n_jobs)
        # Bytes per test row: its votes, copies of the row, and columns of the tiles' arrays.
        per_row = 2 * len(self) + 40 * self.settings["n_features"] + 48 * self._tile_rows()
        lanes = MAX_BYTES // (workers * per_row * _LANES)
        most = max(self._widest() // _LANES, 1)
        width = int(np.clip(lanes, 1, most)) * _LANES
        spans = [(start, min(start + width, n)) for start in range(0, n, width)]
        with (
            reporting(progress, n, "Voting"),
            one_thread("blas"),
            ThreadPoolExecutor(workers) as pool,
        ):
            done = pool.map(lambda span: work(*span), spans)
            for (start, stop), _ in zip(spans, done, strict=True):
                progress.advance(stop - start)

    def _products(
        self, queries: ExactRows
    ) -> Iterator[tuple[Tile, slice, NDArray[np.floating[Any]]]]:
        """Yield every tile, its rows, and their integer products with the test rows."""
        values = self.rows["values"]
        turned = np.ascontiguousarray(queries.values.T)
        products = np.empty((self._tile_rows(), len(queries)), dtype=values.dtype)
        for tile in self._tiles:
            here, room = slice(tile.start, tile.stop), products[: tile.stop - tile.start]
            yield tile, here, np.matmul(values[here], turned, out=room)

    def _tile_rows(self) -> int:
        return max((tile.stop - tile.start for tile in self._tiles), default=0)

    def _widest(self) -> int:
        """Return how many test rows at most are scored at once."""
        return _CELLS // max(self._tile_rows(), TILE)

    @cached_property
    def _tiles(self) -> list[Tile]:
        return cut_tiles(self.offsets, self.classes, np.diff(self.offsets).tolist())

    def digests_of(self, which: Sequence[int]) -> list[str]:
        """Return the digests of some members, over their arrays and the shared settings."""
        head = json.dumps([self.kind, self.settings], sort_keys=True).encode()
        return [self.member(index).digest(head) for index in which]

    def failures(self) -> dict[int, str]:
        """Return the reason of every member that abstains because its fit raised."""
        return dict(self.reasons)

    def part(self, which: Sequence[int]) -> Self:
        """Return some of the members."""
        return self.stack(self.settings, [self.member(index) for index in which])

    def replaced(self, which: Sequence[int], members: Ensemble) -> Self:
        """Return a copy in which member ``which[j]`` is member j of `members`."""
        if not isinstance(members, type(self)) or members.settings != self.settings:
            raise TypeError(
                "Only members of the same learner and settings can replace each other; got "
                f"{type(self).__name__} and {type(members).__name__}."
            )
        new = dict(zip(which, range(len(members)), strict=True))
        parts = [members.member(new[i]) if i in new else self.member(i) for i in range(len(self))]
        return self.stack(self.settings, parts)

    def export(self) -> tuple[dict[str, Any], list[Content]]:
        """Return what members share and what each consists of, for `restore_members`."""
        parts = [self.member(index) for index in range(len(self))]
        shared = {"kind": self.kind, "settings": self.settings}
        return shared, [({"failure": part.failure}, part.arrays()) for part in parts]

    @classmethod
    def restore(cls, shared: Mapping[str, Any], members: Sequence[Content]) -> Self:
        """Return the members that `export` described."""
        like = cls.like(shared["settings"])
        parts = [
            MemberParts.from_arrays(arrays, like, about["failure"]) for about, arrays in members
        ]
        return cls.stack(dict(shared["settings"]), parts)


def restore_members(shared: Mapping[str, Any], members: Sequence[Content]) -> StackedMembers:
    """Return the ensemble that `StackedMembers.export` described."""
    kind = shared.get("kind")
    if kind not in _KINDS:
        raise StoreError(f"Unknown kind of members {kind!r}; known are {sorted(_KINDS)}.")
    return _KINDS[kind].restore(shared, members)


def padded(n: int) -> int:
    """Return the width of a chunk of `n` test rows."""
    return -(-n // _LANES) * _LANES
