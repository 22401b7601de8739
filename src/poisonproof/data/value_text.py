"""One text for every value, whatever type a file stores it in."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from poisonproof.exceptions import InvalidInputError

if TYPE_CHECKING:
    from poisonproof.partition.cells import Duration, Instant

_DAY = 86_400
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()


class NoTextError(InvalidInputError):
    """A value that no text stands for; the row that holds it is rejected."""


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """Whole seconds after midnight, and attoseconds (10^-18 s) after that."""

    seconds: int
    attoseconds: int


def escaped(text: str) -> str:
    r"""Return a text as it can be shown: what a screen would obey, reorder or hide is spelt out.

    Names of files, columns and classes are other people's. Control codes move the cursor or
    rewrite lines above, marks of direction reverse what is read, letters without width make two
    names look alike. Whatever leaves the library for a human goes through here, once or more
    often.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def label_text(value: Any) -> str | None:
    r"""Return a stored value as the text that `Schema.classes` lists, None if it is missing.

    The text depends on the value, not on the type of the column, which one cell of another row
    may have decided when the file was written:

    =====================  =======================================================================
    value                  text
    =====================  =======================================================================
    text                   itself: the text ``1.0`` is not the number 1, nor ``007`` the number 7
    bytes                  as UTF-8, other bytes as ``\xff``
    number                 its digits, without an exponent or zeros at the end: ``7``, ``0.5``
    truth value            the number 1 or 0, as everywhere in this library
    date, moment           ``2020-01-31``, ``2020-01-31 10:00:00`` in UTC; midnight is the date
    time of day            ``10:00:00``
    length of time         ``1 days 02:00:00``, below zero ``-1 days +23:00:00``
    missing, NaN, empty    None
    =====================  =======================================================================

    Fractions of a second have six digits, or as many groups of three as they need.

    Raises
    ------
    NoTextError
        For dates outside the years 1 to 9999, and text that is not Unicode.

    Examples
    --------
    >>> [label_text(value) for value in (7, 7.0, np.uint8(7), Decimal("7.00"), "7", b"7", True)]
    ['7', '7', '7', '7', '7', '7', '1']
    >>> [label_text(value) for value in (0.5, Decimal("0.50"), 1e-7, "ham", b"ham", None, "")]
    ['0.5', '0.5', '0.0000001', 'ham', 'ham', None, None]
    >>> label_text(datetime.datetime(2020, 1, 31)), label_text(np.datetime64("2020-01-31T10", "ns"))
    ('2020-01-31', '2020-01-31 10:00:00')
    >>> label_text(np.timedelta64(-1, "h")), label_text(datetime.time(10))
    ('-1 days +23:00:00', '10:00:00')
    """
    from poisonproof.partition.cells import Duration, Instant, NoCanonicalFormError, canonical_cell

    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, str):
        return _checked(str(value))
    if isinstance(value, datetime.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        value = TimeOfDay(seconds, value.microsecond * 10**12)
    if isinstance(value, TimeOfDay):
        return _clock_text(value.seconds, value.attoseconds)
    try:
        cell = canonical_cell(value)
    except NoCanonicalFormError as error:
        if isinstance(value, np.generic):
            raise NoTextError(f"it cannot be written as text: {error}") from None
        return str(value)
    if isinstance(cell, Instant):
        return _moment_text(cell)
    if isinstance(cell, Duration):
        return _length_text(cell)
    if isinstance(cell, float):
        return None if math.isnan(cell) else _float_text(cell)
    return _digits(value) if isinstance(value, Decimal) else str(cell)


def _clock_text(seconds: int, attoseconds: int) -> str:
    if not 0 <= seconds < _DAY:
        raise NoTextError("it is a time of day outside 00:00 to 24:00")
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{_fraction(attoseconds)}"


def _checked(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NoTextError("it is no Unicode text: it holds half of a surrogate pair") from None
    return text or None


def _float_text(value: float) -> str:
    if value.is_integer():
        return str(int(value))
    return repr(value) if math.isinf(value) else _digits(Decimal(repr(value)))


def _digits(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _moment_text(moment: Instant) -> str:
    days, seconds = divmod(moment.seconds, _DAY)
    if not 1 <= _FIRST_DAY + days <= datetime.date.max.toordinal():
        raise NoTextError("it is a date outside the years 1 to 9999")
    day = str(datetime.date.fromordinal(_FIRST_DAY + days))
    if not seconds and not moment.attoseconds:
        return day
    return f"{day} {_clock_text(seconds, moment.attoseconds)}"


def _length_text(length: Duration) -> str:
    days, seconds = divmod(length.seconds, _DAY)
    return f"{days} days {'+' * (days < 0)}{_clock_text(seconds, length.attoseconds)}"


def _fraction(attoseconds: int) -> str:
    if not attoseconds:
        return ""
    digits = f"{attoseconds:018}"
    while len(digits) > 6 and digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"
