"""Partitioners by who contributed a row, or when; and all partitioners by name.

Of the former the radius counts whom or what they tell apart. They read `groups` and never the
samples. What is told apart (sources, entities, where time begins) is declared and never found in
the rows.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.blocks import row_blocks
from poisonproof.partition.canonical import readable_rows, sample_digests
from poisonproof.partition.cells import Instant, canonical_cell, shown, time_text
from poisonproof.partition.containers import as_container, is_sparse, n_rows, take_rows
from poisonproof.partition.partitioners import (
    ContentHash,
    Partitioner,
    PixelSum,
    SortedIndex,
    reduce_digests,
)

MOST_NAMES = 2**20
"""Most sources or accounts that can be declared."""

USUAL_K = 50
"""Partitions where neither the estimator nor the partitioner says how many."""


@dataclass(frozen=True, kw_only=True)
class GroupPartitioner(Partitioner):
    """The base of the partitioners that read `groups` and not the samples."""

    certifies: ClassVar[Mapping[str, int]] = {"replace": 1, "insert_delete": 1, "label_flip": 1}
    by_group: ClassVar[bool] = True
    allowed: ClassVar[str] = "any identity"

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each row from its group; the samples are not read.

        Identities are compared in canonical form: ``1``, ``1.0`` and ``numpy.int64(1)`` are one
        group, ``"1"`` is another. A tuple is an identity of several parts.

        Raises
        ------
        InvalidInputError
            If `groups` is left out, has another length than `X`, or a group is missing or none of
            those declared.
        """
        name = type(self).__name__
        if groups is None:
            raise InvalidInputError(
                f"{name} needs groups, one identity per row of X: fit(X, y, groups=...)."
            )
        if n_rows(groups) != n_rows(X):
            raise InvalidInputError(
                f"groups has {n_rows(groups)} entries, but X has {n_rows(X)} rows. "
                "Give one identity per row."
            )
        try:
            units = self.units(groups)
        except InvalidRowsError as error:
            raise InvalidInputError(f"groups cannot be read as identities: {error}") from None
        if bad := [row for row, unit in enumerate(units) if unit is None]:
            cell = _cells(take_rows(as_container(groups), np.array(bad[:1])))[0]
            if _is_missing(cell):
                raise InvalidInputError(
                    f"Row {bad[0]} has no group ({len(bad)} rows in all). Give every row an "
                    "identity: rows without one could come from any number of contributors."
                )
            raise InvalidInputError(
                f"Row {bad[0]} has the group {shown(cell)} ({len(bad)} such rows), but {name} "
                f"takes {self.allowed}. Correct the row, or leave such rows out: "
                "invalid_rows='drop'."
            )
        return self._places(groups, units)

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which rows have a group that counts; without any, `assign` says so."""
        if groups is None or n_rows(groups) != n_rows(X):
            return np.ones(n_rows(X), dtype=np.bool_)
        try:
            placeable = readable_rows(groups)
            units = self.units(take_rows(as_container(groups), np.flatnonzero(placeable)))
        except InvalidRowsError as error:
            raise InvalidInputError(f"groups cannot be read as identities: {error}") from None
        placeable[placeable] = [unit is not None for unit in units]
        return placeable

    def units(self, groups: Any) -> list[Any]:
        """Return what the radius counts for each row; None if its group is not `allowed`.

        `assign` puts a unit, given as a group, where it puts the group.
        """
        return [None if _is_missing(cell) else self._unit(cell) for cell in _cells(groups)]

    @abstractmethod
    def _unit(self, cell: Any) -> Any:
        """Return the unit to which an identity belongs, None if there is none."""

    @abstractmethod
    def _places(self, groups: Any, units: list[Any]) -> NDArray[np.int64]:
        """Return the partition of each group, whose unit is known."""


def _cells(groups: Any) -> list[Any]:
    """Return the canonical cell of every identity, a tuple for one of several parts."""
    groups = as_container(groups)
    if is_sparse(groups):
        raise InvalidRowsError("a sparse matrix cannot hold identities")
    found: list[Any] = [()] * n_rows(groups)
    for rows, values, _ in row_blocks(groups):
        listed: Any = (
            np.asarray(values).T.tolist()
            if not isinstance(values, list)
            else [column.taken(np.arange(len(rows))) for column in values]
        )
        for row, parts in zip(rows.tolist(), zip(*listed, strict=True), strict=False):
            found[row] = parts if len(parts) > 1 else parts[0]
    return found


def _is_missing(cell: Any) -> bool:
    parts = cell if isinstance(cell, tuple) else (cell,)
    return not parts or any(isinstance(part, float) and math.isnan(part) for part in parts)


def _named(names: Any) -> list[int | str]:
    """Return declared names as canonical cells: texts and integers."""
    try:
        cells = [canonical_cell(name) for name in names]
    except TypeError:
        cells = [float("nan")]
    if not all(isinstance(cell, int) or (isinstance(cell, str) and cell) for cell in cells):
        raise InvalidInputError(f"Names are texts or integers. Got {shown(names)}.")
    return cells  # type: ignore[return-value]


def _in_order(name: Any) -> tuple[bool, Any]:
    return isinstance(name, str), name


@dataclass(frozen=True, kw_only=True)
class GroupHash(GroupPartitioner):
    """Put all rows of a contributor (user, device, domain) into one partition.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.
    entities : mapping of account to entity, optional
        Whose the accounts are, where several may be one contributor's: texts or integers. An
        account that is not listed is an entity of its own. Where all that are listed are integers,
        a text is invalid, and the other way round: it could match none of them.

    Guarantee
    ---------
    The radius counts malicious contributors (with `entities`: entities), whatever each does to
    however many rows.

    Assumes
    -------
    Identities cannot be forged: nobody can contribute under another name, or under many. The
    entities are declared, and not made from the training rows.

    Examples
    --------
    >>> X = np.zeros((4, 2))
    >>> first, *_, last = GroupHash(n_partitions=50).assign(X, groups=["ada", "bo", "cy", "ada"])
    >>> bool(first == last)
    True
    >>> GroupHash(n_partitions=50, entities={"bo": "ada"}).units(["ada", "bo", "cy"])
    ['ada', 'ada', 'cy']
    """

    entities: Any = None

    name: ClassVar[str] = "group"
    unit: ClassVar[str] = "group"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.entities is not None:
            object.__setattr__(self, "entities", _entities(self.entities))
            object.__setattr__(self, "unit", "entity")
            kind = " or ".join({False: "an integer", True: "a text"}[kind] for kind in self._texts)
            object.__setattr__(self, "allowed", f"{kind}, as the accounts in entities are")

    @cached_property
    def _owner(self) -> dict[Any, Any]:
        return dict(self.entities or ())

    @cached_property
    def _texts(self) -> list[bool]:
        """Whether names in `entities` are texts: one of another type would match none of them."""
        return sorted({isinstance(name, str) for pair in self.entities for name in pair})

    def _unit(self, cell: Any) -> Any:
        if self._owner and isinstance(cell, str) not in self._texts:
            return None
        return self._owner.get(cell, cell)

    def _places(self, groups: Any, units: list[Any]) -> NDArray[np.int64]:
        return reduce_digests(sample_digests(units if self._owner else groups), self.k)


def _entities(entities: Any) -> tuple[tuple[int | str, int | str], ...]:
    """Return declared pairs of account and entity, sorted and without contradiction."""
    pairs = entities.items() if isinstance(entities, Mapping) else entities
    try:
        accounts, owners = map(_named, zip(*pairs, strict=True))
    except (TypeError, ValueError):
        accounts, owners = [], []
    if not 1 <= len(accounts) <= MOST_NAMES:
        raise InvalidInputError(
            f"entities maps 1 to {MOST_NAMES:,} accounts to entities, all of them texts or "
            f"integers: {{'account': 'entity'}}. Got {shown(entities)}."
        )
    known = dict(zip(accounts, owners, strict=True))
    for account, entity in zip(accounts, owners, strict=True):
        for name in (account, entity):
            if known.get(name, entity) != entity:
                raise InvalidInputError(
                    f"entities gives {shown(account)} to {shown(entity)}, but {shown(name)} to "
                    f"{shown(known[name])}. Give every account to one owner, the last."
                )
    return tuple(sorted(known.items(), key=lambda pair: _in_order(pair[0])))


@dataclass(frozen=True)
class NamedSources(GroupPartitioner):
    """Give every declared source (a vendor, an annotator, a site) a partition of its own.

    Parameters
    ----------
    sources : sequence of str or int
        The names of all sources, in any order. A row of another source is invalid.
    n_partitions : int, optional
        The number of sources.

    Guarantee
    ---------
    The radius counts malicious sources, whatever each does to however many rows. No two sources
    share a partition.

    Assumes
    -------
    The list is declared, and not made from the training rows; every row came from the source that
    it names.

    Examples
    --------
    >>> NamedSources(["south", "north"]).assign(np.zeros((3, 2)), ["south", "north", "south"])
    array([1, 0, 1])
    """

    sources: Sequence[str | int] = ()

    name: ClassVar[str] = "source"
    unit: ClassVar[str] = "source"

    def __post_init__(self) -> None:
        given = self.sources
        names = [] if isinstance(given, str) else sorted(_named(given), key=_in_order)
        if len(set(names)) != len(names) or not 2 <= len(names) <= MOST_NAMES:
            raise InvalidInputError(
                f"NamedSources takes the names of 2 to {MOST_NAMES:,} sources, each of them once: "
                f"NamedSources(['north', 'south']). Got {shown(given)}."
            )
        if self.n_partitions not in (None, len(names)):
            raise InvalidInputError(
                f"n_partitions is {self.n_partitions}, but there are {len(names)} sources and each "
                "has a partition of its own. Leave n_partitions out."
            )
        object.__setattr__(self, "sources", tuple(names))
        object.__setattr__(self, "n_partitions", len(names))
        object.__setattr__(
            self, "allowed", f"one of the declared sources {', '.join(map(repr, names))}"[:300]
        )

    @cached_property
    def _number(self) -> dict[Any, int]:
        return {source: number for number, source in enumerate(self.sources)}

    def _unit(self, cell: Any) -> Any:
        return cell if cell in self._number else None

    def _places(self, groups: Any, units: list[Any]) -> NDArray[np.int64]:
        return np.array([self._number[unit] for unit in units], dtype=np.int64)


@dataclass(frozen=True)
class TimeBlocks(GroupPartitioner):
    """Put all rows of a day, or of another block of time, into one partition.

    Block j after `start` belongs to partition j modulo k, and so do the blocks before it: no time
    is out of range, and new days go where the days k before them went. Choose a k that 7 does not
    divide, so that every member sees all weekdays.

    Parameters
    ----------
    start : str or date
        When a block begins, such as ``"2020-01-01"``; ``"2020-01-01T00:00-05:00"`` lets days begin
        at midnight of another zone than UTC.
    days : int, default=1
        The length of a block.
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    The radius counts days (with ``days > 1``: blocks) of which an attacker controls every row.

    Assumes
    -------
    The time of a row is set by whoever receives it, not by its author.

    Examples
    --------
    >>> times = ["2020-01-01", "2020-01-01 23:59:59", "2020-01-08T12:00:00Z"]
    >>> weeks = TimeBlocks("2020-01-01", days=7, n_partitions=10)
    >>> weeks.assign(np.zeros((3, 1)), times), weeks.units(times)[-1]
    (array([0, 0, 1]), '2020-01-08')
    """

    start: Any = ""
    days: int = 1

    name: ClassVar[str] = "time"
    unit: ClassVar[str] = "day"
    allowed: ClassVar[str] = "a time such as 2020-01-31 or 2020-01-31T10:00:00Z"

    def __post_init__(self) -> None:
        super().__post_init__()
        start = _seconds_of(self.start if isinstance(self.start, str) else _cells([self.start])[0])
        if start is None or (text := time_text(start)) is None:
            raise InvalidInputError(
                "TimeBlocks needs the time at which a block begins: TimeBlocks('2020-01-01'). Got "
                f"{shown(self.start)}."
            )
        if type(self.days) is not int or not 1 <= self.days <= 36_525:
            raise InvalidInputError(f"days is an integer from 1 to 36,525. Got {shown(self.days)}.")
        object.__setattr__(self, "start", text)
        if self.days > 1:
            object.__setattr__(self, "unit", "block")

    def _block(self, time: Any) -> int:
        since = (_seconds_of(time) or 0) - (_seconds_of(self.start) or 0)
        return since // (86_400 * self.days)

    def _unit(self, cell: Any) -> Any:
        if _seconds_of(cell) is None:
            return None
        return time_text((_seconds_of(self.start) or 0) + self._block(cell) * 86_400 * self.days)

    def _places(self, groups: Any, units: list[Any]) -> NDArray[np.int64]:
        return np.array([self._block(unit) % self.k for unit in units], dtype=np.int64)


@lru_cache(maxsize=2**16)
def _seconds_of(cell: Any) -> int | None:
    """Return the seconds from 1970 to a time or an ISO 8601 text, None for anything else."""
    try:
        if isinstance(cell, str):
            cell = canonical_cell(datetime.fromisoformat(cell.strip()))
    except (ValueError, OverflowError):
        return None
    return cell.seconds if isinstance(cell, Instant) else None


PARTITIONERS: Mapping[str, type[Partitioner]] = {
    ContentHash.name: ContentHash,
    PixelSum.name: PixelSum,
    SortedIndex.name: SortedIndex,
    GroupHash.name: GroupHash,
    NamedSources.name: NamedSources,
    TimeBlocks.name: TimeBlocks,
}


def make_partitioner(
    partitioner: str | Partitioner, n_partitions: int | None = None
) -> Partitioner:
    """Return a partitioner with its number of partitions, which either may leave open."""
    if isinstance(partitioner, str) and partitioner in PARTITIONERS:
        partitioner = PARTITIONERS[partitioner]()
    if not isinstance(partitioner, Partitioner):
        raise InvalidInputError(
            f"partitioner must be one of {', '.join(map(repr, PARTITIONERS))} or a Partitioner, "
            f"but it is {partitioner!r}."
        )
    if n_partitions is None:
        n_partitions = partitioner.n_partitions or USUAL_K
    if partitioner.n_partitions not in {None, n_partitions}:
        raise InvalidInputError(
            f"n_partitions is {n_partitions}, but the partitioner makes "
            f"{partitioner.n_partitions} partitions. Leave n_partitions (-k) out."
        )
    return dataclasses.replace(partitioner, n_partitions=n_partitions)
