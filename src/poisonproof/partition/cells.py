"""One cell of a sample: its canonical value and its canonical bytes.

A cell is brought to one of a few plain types. Which one depends on the value alone: ``3``,
``3.0``, ``numpy.uint8(3)`` and ``Decimal("3")`` are the same cell, and so are ``None``, ``nan``
and ``NaT``. The full table is in ``docs/canonical-form.md``.
"""

from __future__ import annotations

import datetime
import math
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, order=True, slots=True)
class Instant:
    """A point in time: whole seconds since 1970 in UTC, and attoseconds (10^-18 s) after that."""

    seconds: int
    attoseconds: int


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """A length of time: whole seconds, rounded down, and attoseconds after that."""

    seconds: int
    attoseconds: int


Cell: TypeAlias = int | float | Fraction | str | bytes | Instant | Duration

MISSING = float("nan")
ATTOSECONDS = 10**18
LARGEST_EXPONENT = 400  # no float64 goes further; the digits of an exact 1e1000000 fill a disk
LARGEST_CALENDAR_COUNT = 10**12  # years or months that NumPy converts to days without wrapping
SECONDS_PER = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
NOT_A_TIME = -(2**63)  # the count with which NumPy says NaT
EPOCH = datetime.datetime(1970, 1, 1)
FIRST_DAY = datetime.date(1970, 1, 1)


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


def shown(value: Any) -> str:
    """Return the beginning of a value's `repr`; its type if it cannot be shown."""
    try:
        return f"{value!r:.60}"
    except Exception:
        return f"a value of type {type(value).__name__}"


def is_number(cell: Cell) -> bool:
    """Return whether the cell is a number; a missing value counts as one, the NaN."""
    return isinstance(cell, (int, float, Fraction))


def is_exact_float(cell: Cell) -> bool:
    """Return whether the cell is a number that float64 holds without rounding."""
    return isinstance(cell, float) or (isinstance(cell, int) and nearest_float(cell) == cell)


def nearest_float(number: int | float | Fraction) -> float:
    """Return a number rounded to float64, infinity beyond its range."""
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _exact_number(value: Fraction) -> Cell:
    """Return a rational as an integer or a float64 where one holds it exactly."""
    if value.denominator == 1:
        return value.numerator
    rounded = nearest_float(value)
    return rounded if rounded == value else value


def _decimal(value: Decimal) -> Cell:
    if value.is_nan():
        return MISSING
    if value.is_infinite():
        return float(value)
    if value and abs(value.adjusted()) > LARGEST_EXPONENT:
        raise NoCanonicalFormError(f"the decimal {shown(value)} lies outside 1e-400 to 1e+400")
    return _exact_number(Fraction(value))


def _datetime(value: datetime.datetime) -> Cell:
    since = value.replace(tzinfo=None) - EPOCH
    # Subtracting the offset here, and not by astimezone, also serves the first and last day.
    length = _timedelta(since - (value.utcoffset() or datetime.timedelta()))
    return Instant(length.seconds, length.attoseconds)


def _timedelta(value: datetime.timedelta) -> Duration:
    return Duration(value.days * 86_400 + value.seconds, value.microseconds * 10**12)


def time_cells(values: NDArray[Any]) -> list[Cell]:
    """Return dates or durations of NumPy as cells, exactly: the integers are Python's."""
    kind = Instant if values.dtype.kind == "M" else Duration
    unit, multiple = np.datetime_data(values.dtype)
    counts = values.astype(np.int64).tolist()
    if unit in {"Y", "M"} and kind is Instant:
        far = next((c for c in counts if LARGEST_CALENDAR_COUNT < abs(c) < 2**63), None)
        if far is not None:
            raise NoCanonicalFormError(f"the date {far} [{unit}] is too far from 1970")
        unit, multiple = "D", 1
        counts = values.astype("M8[D]").astype(np.int64).tolist()
    if unit in SECONDS_PER:
        scale = multiple * SECONDS_PER[unit]
        return [MISSING if c == NOT_A_TIME else kind(c * scale, 0) for c in counts]
    if unit not in PER_SECOND:
        if all(c == NOT_A_TIME for c in counts):
            return [MISSING] * len(counts)
        raise NoCanonicalFormError(f"a duration in units of [{unit}] has no fixed length")
    per_second, rest = PER_SECOND[unit], ATTOSECONDS // PER_SECOND[unit]
    parts = (divmod(c * multiple, per_second) for c in counts)
    return [
        MISSING if c == NOT_A_TIME else kind(whole, broken * rest)
        for c, (whole, broken) in zip(counts, parts, strict=True)
    ]


def _numpy_scalar(value: np.generic) -> Cell:
    if isinstance(value, (np.datetime64, np.timedelta64)):  # the second is an np.integer, too
        return time_cells(np.asarray(value)[None])[0]
    if isinstance(value, (np.bool_, np.integer)):
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
    if isinstance(value, pandas.Timedelta):
        return canonical_cell(value.to_timedelta64())
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


_PLAIN = frozenset({int, float, Fraction, str, bytes, Instant, Duration})

# A base class must stand behind its subclasses: bool before int, datetime before date.
_RULES: dict[type, Callable[[Any], Cell]] = {
    bool: int,
    int: int,
    float: float,
    str: str,
    bytes: bytes,
    bytearray: bytes,
    type(None): lambda _: MISSING,
    Decimal: _decimal,
    Fraction: _exact_number,
    datetime.datetime: _datetime,
    datetime.date: lambda day: Instant((day - FIRST_DAY).days * 86_400, 0),
    datetime.timedelta: _timedelta,
    Instant: lambda instant: instant,
    Duration: lambda duration: duration,
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
    if isinstance(cell, Fraction):
        return b"q" + encode_cell(cell.numerator) + encode_cell(cell.denominator)
    tag = b"t" if isinstance(cell, Instant) else b"d"
    return tag + encode_cell(cell.seconds) + struct.pack("<Q", cell.attoseconds)


def _sized(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack("<Q", len(data)) + data


def cell_order(cell: Cell) -> tuple[int, Any]:
    """Return a key that sorts cells: numbers, missing, bytes, text, dates, durations."""
    if isinstance(cell, float) and math.isnan(cell):
        return 1, 0
    for rank, kind in ((2, bytes), (3, str), (4, Instant), (5, Duration)):
        if isinstance(cell, kind):
            return rank, cell
    return 0, cell
