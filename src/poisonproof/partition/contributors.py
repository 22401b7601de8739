"""Partitioners by who contributed a row, or when: the radius counts whom or what they tell apart.

They read `groups` and never the samples. What is told apart (sources, entities, where time begins)
is declared and never found in the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.partition.blocks import row_blocks
from poisonproof.partition.canonical import readable_rows, sample_digests
from poisonproof.partition.cells import (
    EPOCH,
    Cell,
    Instant,
    NoCanonicalFormError,
    canonical_cell,
    shown,
)
from poisonproof.partition.containers import (
    as_container,
    frame_columns,
    is_pandas,
    n_rows,
    take_rows,
)
from poisonproof.partition.rule import Partitioner, reduce_digests

MOST_NAMES = 2**20
"""Most sources or accounts that can be declared."""

LONGEST_NAME = 4096
LONGEST_BLOCK = 36_525
"""Days in a time block at most: a century."""


@dataclass(frozen=True, kw_only=True)
class GroupPartitioner(Partitioner):
    """The base of the partitioners that read `groups` and not the samples."""

    certifies: ClassVar[Mapping[str, int]] = {"replace": 1, "insert_delete": 1, "label_flip": 1}
    by_group: ClassVar[bool] = True

    @property
    def allowed(self) -> str:
        """The groups that have a partition, in words."""
        return "any identity"

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each row from its group; the samples are not read.

        Identities are compared in canonical form: ``1``, ``1.0`` and ``numpy.int64(1)`` are one
        group, ``"1"`` is another.

        Raises
        ------
        InvalidInputError
            If `groups` is left out, has another length than `X`, or a group is missing or none of
            those declared.
        """
        name = type(self).__name__
        if groups is None:
            raise InvalidInputError(f"{name} needs groups: one identity per row of X.")
        if n_rows(groups) != n_rows(X):
            raise InvalidInputError(
                f"groups has {n_rows(groups)} entries, but X has {n_rows(X)} rows. "
                "Give one identity per row."
            )
        k = self.k
        try:
            missing = _rows_without_group(groups)
            places = self._places(groups, k)
        except InvalidRowsError as error:
            raise InvalidInputError(f"groups cannot be read as identities: {error}") from None
        if len(missing):
            raise InvalidInputError(
                f"Row {missing[0]} has no group ({len(missing)} rows in all). Give every row an "
                "identity: rows without one could come from any number of contributors."
            )
        if len(unknown := np.flatnonzero(places < 0)):
            cell = _cells(take_rows(as_container(groups), unknown[:1]))[0]
            raise InvalidInputError(
                f"Row {unknown[0]} has the group {shown(cell)} ({len(unknown)} such rows), but "
                f"{name} takes {self.allowed}. Correct the row, or leave such rows out: "
                "invalid_rows='drop'."
            )
        return places

    def placeable(self, X: Any, groups: Any = None) -> NDArray[np.bool_]:
        """Return which rows have a group that counts; without any, `assign` says so."""
        if groups is None or n_rows(groups) != n_rows(X):
            return np.ones(n_rows(X), dtype=np.bool_)
        try:
            placeable = readable_rows(groups)
            kept = np.flatnonzero(placeable)
            readable = take_rows(as_container(groups), kept)
            placeable[kept[_rows_without_group(readable)]] = False
            placeable[kept[self._places(readable, 1) < 0]] = False
        except InvalidRowsError as error:
            raise InvalidInputError(f"groups cannot be read as identities: {error}") from None
        return placeable

    @abstractmethod
    def units(self, groups: Any) -> list[Any]:
        """Return what the radius counts for each row, None where a group is not `allowed`.

        `assign` puts a unit, given as a group, where it puts the group.
        """

    @abstractmethod
    def _places(self, groups: Any, k: int) -> NDArray[np.int64]:
        """Return the partition of each group, -1 for one that has none."""


def _rows_without_group(groups: Any) -> NDArray[np.intp]:
    found = [np.empty(0, dtype=np.intp)]
    for rows, values, _ in row_blocks(as_container(groups)):
        if isinstance(values, list):
            missing = [np.isnan(column.floats) & ~column.odd for column in values]
            # An identity of no parts is none.
            found.append(rows[np.any(missing, axis=0)] if missing else rows)
        elif isinstance(values, np.ndarray):
            found.append(rows[np.isnan(values).any(axis=1)])
        else:
            raise InvalidRowsError("a sparse matrix cannot hold identities")
    return np.sort(np.concatenate(found))


def _cells(groups: Any) -> list[Cell | None]:
    """Return the canonical cell of every identity, None for one of several parts."""
    groups = as_container(groups)
    found: list[Cell | None] = [None] * n_rows(groups)
    for rows, values, _ in row_blocks(groups):
        listed: list[Cell] = []
        if isinstance(values, list) and len(values) == 1:
            listed = values[0].taken(np.arange(len(rows)))
        elif isinstance(values, np.ndarray) and values.shape[1] == 1:
            listed = values[:, 0].tolist()
        for row, cell in zip(rows.tolist(), listed, strict=False):
            found[row] = cell
    return found


def _name(name: Any, what: str) -> int | str:
    """Return a declared name as canonical cell: text or an integer."""
    try:
        cell = canonical_cell(name)
    except NoCanonicalFormError:
        cell = float("nan")
    if isinstance(cell, str) and 0 < len(cell) <= LONGEST_NAME:
        return cell
    if isinstance(cell, int) and not isinstance(name, bool):
        return cell
    raise InvalidInputError(
        f"{what} are named by integers, or texts of 1 to {LONGEST_NAME:,} characters. Got "
        f"{shown(name)}."
    )


def _in_order(name: int | str) -> tuple[bool, int | str]:
    return isinstance(name, str), name


@dataclass(frozen=True, kw_only=True)
class GroupHash(GroupPartitioner):
    """Put all rows of a contributor (user, device, domain) into one partition.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.
    entities : mapping of account to entity, optional
        To whom the accounts belong, where several may be one contributor's. An account that is not
        listed is an entity of its own. Accounts and entities are texts or integers.

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
    >>> owners = GroupHash(n_partitions=50, entities={"bo": "ada", "bo2": "ada"})
    >>> owners.units(["ada", "bo", "bo2", "cy"])
    ['ada', 'ada', 'ada', 'cy']
    """

    entities: Any = None

    name: ClassVar[str] = "group"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.entities is not None:
            object.__setattr__(self, "entities", _entities(self.entities))

    @property
    def unit(self) -> str:
        """What the attacker's budget counts: contributors, or entities where they are declared."""
        return "group" if self.entities is None else "entity"

    @cached_property
    def _owner(self) -> dict[Any, Any]:
        return dict(self.entities or ())

    def units(self, groups: Any) -> list[Any]:
        """Return the entity, or else the contributor, of each row."""
        groups = as_container(groups)
        if is_pandas(groups) and groups.ndim == 2:
            groups = list(zip(*frame_columns(groups), strict=True))
        pairs = zip(_cells(groups), groups, strict=True)
        return [self._owner.get(cell, group) for cell, group in pairs]

    def _places(self, groups: Any, k: int) -> NDArray[np.int64]:
        if self.entities is not None:
            groups = self.units(groups)
        return reduce_digests(sample_digests(groups), k)


def _entities(entities: Any) -> tuple[tuple[int | str, int | str], ...]:
    """Return declared pairs of account and entity, sorted and without contradiction."""
    try:
        pairs = [tuple(p) for p in (entities.items() if hasattr(entities, "items") else entities)]
    except TypeError:
        pairs = []
    if not 1 <= len(pairs) <= MOST_NAMES or {len(pair) for pair in pairs} != {2}:
        raise InvalidInputError(
            f"entities maps 1 to {MOST_NAMES:,} accounts to entities: "
            "{'account': 'entity', ...}. " + f"Got {shown(entities)}."
        )
    known: dict[int | str, int | str] = {}
    named = [(_name(account, "Accounts"), _name(entity, "Entities")) for account, entity in pairs]
    for account, entity in named:
        if known.setdefault(account, entity) != entity:
            raise InvalidInputError(
                f"entities gives the account {shown(account)} to {shown(known[account])} and to "
                f"{shown(entity)}. Give it to one of them."
            )
    for account, entity in known.items():
        if known.get(entity, entity) != entity:
            raise InvalidInputError(
                f"entities gives {shown(account)} to {shown(entity)}, and that to "
                f"{shown(known[entity])}. Give every account to its last owner."
            )
    return tuple(sorted(known.items(), key=lambda pair: _in_order(pair[0])))


class NumberedUnits(GroupPartitioner):
    """The base of the partitioners that number what they tell apart, and hash nothing."""

    def units(self, groups: Any) -> list[Any]:
        """Return the source, or the beginning of the block, of each row; None if it has none."""
        numbers = map(self._number, _cells(groups))
        return [None if number is None else self._unit_at(number) for number in numbers]

    def _places(self, groups: Any, k: int) -> NDArray[np.int64]:
        numbers = map(self._number, _cells(groups))
        found = (-1 if number is None else number % k for number in numbers)
        return np.fromiter(found, dtype=np.int64, count=n_rows(groups))

    @abstractmethod
    def _number(self, cell: Cell | None) -> int | None:
        """Return the number of the unit to which an identity belongs, None if there is none."""

    @abstractmethod
    def _unit_at(self, number: int) -> Any:
        """Return the unit of a number."""


@dataclass(frozen=True)
class NamedSources(NumberedUnits):
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

    def __post_init__(self) -> None:
        given = self.sources
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise InvalidInputError(f"sources lists the names of sources. Got {shown(given)}.")
        names = [_name(source, "Sources") for source in given]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise InvalidInputError(f"sources names {shown(twice[0])} twice. Name each once.")
        if not 2 <= len(names) <= MOST_NAMES:
            raise InvalidInputError(
                "NamedSources needs the names of at least two sources, such as "
                f"NamedSources(['north', 'south']), and at most {MOST_NAMES:,}. Got {len(names):,}."
            )
        object.__setattr__(self, "sources", tuple(sorted(names, key=_in_order)))
        if self.n_partitions is None:
            object.__setattr__(self, "n_partitions", len(names))
        super().__post_init__()
        if self.n_partitions != len(names):
            raise InvalidInputError(
                f"n_partitions is {self.n_partitions}, but there are {len(names)} sources and each "
                "has a partition of its own. Leave n_partitions (-k) out."
            )

    @property
    def unit(self) -> str:
        """What the attacker's budget counts: sources."""
        return "source"

    @property
    def allowed(self) -> str:
        """The groups that have a partition, in words."""
        more = len(self.sources) - 12
        listed = ", ".join(map(repr, self.sources[:12]))
        return f"one of the declared sources {listed}{f' and {more} more' * (more > 0)}"

    @cached_property
    def _index(self) -> dict[Any, int]:
        return {source: number for number, source in enumerate(self.sources)}

    def _number(self, cell: Cell | None) -> int | None:
        return self._index.get(cell)

    def _unit_at(self, number: int) -> Any:
        return self.sources[number]


@dataclass(frozen=True)
class TimeBlocks(NumberedUnits):
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
    >>> times = ["2020-01-01", "2020-01-01 23:59:59", "2020-01-02", "2020-01-08T12:00:00Z"]
    >>> weeks = TimeBlocks("2020-01-01", days=7, n_partitions=10)
    >>> weeks.assign(np.zeros((4, 1)), times)
    array([0, 0, 0, 1])
    >>> weeks.units(times)[-1]
    '2020-01-08'
    """

    start: Any = ""
    days: int = 1

    name: ClassVar[str] = "time"

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            seconds = _seconds_of(self.start)
        except TypeError:  # not hashable
            seconds = None
        if seconds is None or _time_text(seconds) is None:
            raise InvalidInputError(
                "TimeBlocks needs the time at which a block begins, such as "
                f"TimeBlocks('2020-01-01'). Got start={shown(self.start)}."
            )
        if type(self.days) is not int or not 1 <= self.days <= LONGEST_BLOCK:
            raise InvalidInputError(
                f"days is an integer from 1 to {LONGEST_BLOCK:,}. Got {shown(self.days)}."
            )
        object.__setattr__(self, "start", _time_text(seconds))

    @property
    def unit(self) -> str:
        """What the attacker's budget counts: days, or blocks of several days."""
        return "day" if self.days == 1 else "block"

    @property
    def allowed(self) -> str:
        """The groups that have a partition, in words."""
        return "a time such as 2020-01-31 or 2020-01-31T10:00:00Z"

    @cached_property
    def _first(self) -> int:
        return _seconds_of(self.start) or 0

    def _number(self, cell: Cell | None) -> int | None:
        seconds = _seconds_of(cell)
        if seconds is None:
            return None
        number = (seconds - self._first) // (86_400 * self.days)
        return None if _time_text(self._begin(number)) is None else number

    def _begin(self, number: int) -> int:
        return self._first + number * 86_400 * self.days

    def _unit_at(self, number: int) -> Any:
        return _time_text(self._begin(number))


@lru_cache(maxsize=2**16)
def _seconds_of(value: Any) -> int | None:
    """Return the seconds from 1970 to a time or an ISO 8601 text, None for anything else."""
    try:
        cell = canonical_cell(value)
        if isinstance(cell, str):
            cell = canonical_cell(datetime.fromisoformat(cell.strip()))
    except (NoCanonicalFormError, ValueError, OverflowError):
        return None
    return cell.seconds if isinstance(cell, Instant) else None


def _time_text(seconds: int) -> str | None:
    """Return a time of the years 1 to 9999 as ISO 8601, without the hour at midnight."""
    try:
        moment = EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return None
    return moment.isoformat(sep=" ").removesuffix(" 00:00:00")
