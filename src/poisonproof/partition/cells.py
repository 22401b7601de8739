"""One cell of a sample: its canonical value and its canonical bytes.

A cell is brought to one of a few plain types. Which one depends on the value alone: ``3``,
``3.0`` and ``numpy.uint8(3)`` are the same cell, and so are ``None``, ``nan`` and ``NaT``. The full
table is in ``docs/canonical-form.md``.
"""

from __future__ import annotations

import datetime
import math
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, order=True, slots=True)
class Instant:
    """A point in time: whole seconds since 1970 in UTC, and attoseconds (10^-18 s) after that."""

    seconds: int
    attoseconds: int


Cell: TypeAlias = int | float | str | bytes | Instant

MISSING = float("nan")
ATTOSECONDS = 10**18
LARGEST_CALENDAR_COUNT = 10**11  # of years, the coarsest unit, whose seconds int64 can count
PER_SECOND = {
    "s": 1,
    "ms": 10**3,
    "us": 10**6,
    "ns": 10**9,
    "ps": 10**12,
    "fs": 10**15,
    "as": 10**18,
}
NOT_A_TIME = -(2**63)  # the count with which NumPy says NaT
EPOCH = datetime.datetime(1970, 1, 1)


class NoCanonicalFormError(TypeError):
    """A value that no rule covers; the caller adds the row and the column."""


def canonical_cell(value: Any) -> Cell:
    """Return the canonical value of one cell."""
    rule = _RULES.get(type(value))
    if rule is not None:
        return rule(value)
    try:
        cell = _by_inheritance(value)
    except NoCanonicalFormError:
        raise
    except Exception as error:  # an object of the caller's: its methods may raise anything
        raise NoCanonicalFormError(
            f"a cell of type {type(value).__name__} raises {type(error).__name__} when it is read"
        ) from None
    if type(cell) not in _PLAIN:
        raise NoCanonicalFormError(f"{shown(value)} is of type {type(value).__name__}")
    return cell


def time_text(seconds: int) -> str | None:
    """Return a time of the years 1 to 9999 as ISO 8601, without the hour at midnight."""
    try:
        moment = EPOCH + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return None
    return moment.isoformat(" ").removesuffix(" 00:00:00")


def shown(value: Any) -> str:
    """Return the beginning of a value's `repr`; its type if it cannot be shown."""
    try:
        return f"{value!r:.60}"
    except Exception:
        return f"a value of type {type(value).__name__}"


def is_number(cell: Cell) -> bool:
    """Return whether the cell is a number; a missing value counts as one, the NaN."""
    return isinstance(cell, (int, float))


def is_exact_float(cell: Cell) -> bool:
    """Return whether the cell is a number that float64 holds without rounding."""
    return isinstance(cell, float) or (isinstance(cell, int) and nearest_float(cell) == cell)


def nearest_float(number: int | float) -> float:
    """Return a number rounded to float64, infinity beyond its range."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _datetime(value: datetime.datetime) -> Cell:
    # Subtracting the offset here, and not by astimezone, also serves the first and last day.
    since = value.replace(tzinfo=None) - EPOCH - (value.utcoffset() or datetime.timedelta())
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 10**12)


def time_cells(values: NDArray[Any]) -> list[Cell]:
    """Return dates of NumPy as cells, exactly: the integers are Python's."""
    unit, multiple = np.datetime_data(values.dtype)
    counts = values.astype(np.int64).tolist()
    most = (2**63 - 1 if unit in PER_SECOND else LARGEST_CALENDAR_COUNT) // multiple
    if far := [c for c in counts if c != NOT_A_TIME and abs(c) > most]:
        raise NoCanonicalFormError(f"the date {far[0]} [{unit}] is too far from 1970")
    if unit not in PER_SECOND:
        unit, multiple = "s", 1
        counts = values.astype("M8[s]").astype(np.int64).tolist()
    per_second, rest = PER_SECOND[unit], ATTOSECONDS // PER_SECOND[unit]
    parts = (divmod(c * multiple, per_second) for c in counts)
    return [
        MISSING if c == NOT_A_TIME else Instant(whole, broken * rest)
        for c, (whole, broken) in zip(counts, parts, strict=True)
    ]


def _numpy_scalar(value: np.generic) -> Cell:
    if isinstance(value, np.datetime64):
        return time_cells(np.asarray(value)[None])[0]
    if value.dtype.kind in "biu":  # a duration is an np.integer, too
        return int(value)
    if isinstance(value, np.floating):
        rounded = float(value)
        if rounded == value or np.isnan(value):
            return rounded
        raise NoCanonicalFormError(f"{value!r} is not exactly a float64")
    raise NoCanonicalFormError(f"{value!r} is of type {type(value).__name__}")


def _pandas_scalar(value: Any) -> Cell | None:
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return None
    if value is pandas.NA or value is pandas.NaT:
        return MISSING
    if isinstance(value, pandas.Timestamp):
        if value.tzinfo is not None:
            value = value.tz_convert("UTC").tz_localize(None)
        return canonical_cell(value.to_datetime64())
    return None


def _by_inheritance(value: Any) -> Cell:
    """Serve the types that have no rule of their own: NumPy's, pandas' and subclasses."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return canonical_cell(value[()])
    if (cell := _pandas_scalar(value)) is not None:
        return cell
    if isinstance(value, np.generic) and not isinstance(value, (str, bytes, float)):
        return _numpy_scalar(value)
    for base, rule in _RULES.items():
        if isinstance(value, base):
            return rule(value)
    raise NoCanonicalFormError(f"{shown(value)} is of type {type(value).__name__}")


_PLAIN = frozenset({int, float, str, bytes, Instant})

# A base class must stand behind its subclasses: bool before int, datetime before date.
_RULES: dict[type, Callable[[Any], Cell]] = {
    bool: int,
    int: int,
    float: float,
    str: str,
    bytes: bytes,
    bytearray: bytes,
    type(None): lambda _: MISSING,
    datetime.datetime: _datetime,
    datetime.date: lambda day: Instant((day - EPOCH.date()).days * 86_400, 0),
    Instant: lambda instant: instant,
}


def encode_cell(cell: Cell) -> bytes:
    """Return the canonical bytes of one cell: a tag and a value that says where it ends."""
    if isinstance(cell, str):
        return _sized(b"s", cell.encode("utf-8", "surrogatepass"))
    if isinstance(cell, float):
        if math.isnan(cell):
            return b"n"
        if not cell.is_integer():
            return struct.pack("<cd", b"f", cell)
        cell = int(cell)
    if isinstance(cell, int):
        if -(2**63) <= cell < 2**63:
            return struct.pack("<cq", b"i", cell)
        return _sized(b"z", cell.to_bytes((cell.bit_length() + 8) // 8, "little", signed=True))
    if isinstance(cell, bytes):
        return _sized(b"b", cell)
    return b"t" + encode_cell(cell.seconds) + struct.pack("<Q", cell.attoseconds)


def _sized(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack("<Q", len(data)) + data


def cell_order(cell: Cell) -> tuple[int, Any]:
    """Return a key that sorts cells: numbers, missing, bytes, text, dates."""
    if isinstance(cell, float) and math.isnan(cell):
        return 1, 0
    for rank, kind in ((2, bytes), (3, str), (4, Instant)):
        if isinstance(cell, kind):
            return rank, cell
    return 0, cell
