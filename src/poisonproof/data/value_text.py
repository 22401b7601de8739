"""One text for every value, whatever type a file stores it in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

if TYPE_CHECKING:
    from poisonproof.partition.cells import Instant


class NoTextError(InvalidInputError):
    """A value that no text stands for; the row that holds it is rejected."""


def escaped(text: str) -> str:
    """Return a text as it can be shown: what a screen would obey, reorder or hide is spelt out.

    Whatever leaves the library for a human goes through here, once or more often.
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
    may have decided when the file was written; ``docs/data-files.md`` lists the texts. Bytes are
    read as UTF-8, others as ``\xff``. Fractions of a second have six digits, or as many groups of
    three as they need. What is missing, NaN or empty has none.

    Raises
    ------
    NoTextError
        For objects, dates outside the years 1 to 9999, and text that is not Unicode.

    Examples
    --------
    >>> import datetime, numpy as np
    >>> [label_text(value) for value in (7, 7.0, np.uint8(7), Decimal("7.00"), "7", b"7", True)]
    ['7', '7', '7', '7', '7', '7', '1']
    >>> [label_text(value) for value in (0.5, Decimal("0.50"), 1e-7, "ham", b"ham", None, "")]
    ['0.5', '0.5', '0.0000001', 'ham', 'ham', None, None]
    >>> label_text(datetime.datetime(2020, 1, 31)), label_text(np.datetime64("2020-01-31T10", "ns"))
    ('2020-01-31', '2020-01-31 10:00:00')
    """
    from poisonproof.partition.cells import Instant, NoCanonicalFormError, canonical_cell

    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, str):
        return _checked(str(value))
    if isinstance(value, Decimal):
        return None if value.is_nan() else _digits(value)
    try:
        cell = canonical_cell(value)
    except NoCanonicalFormError as error:  # the text of an object may be its address
        raise NoTextError(f"it cannot be written as text: {error}") from None
    if isinstance(cell, Instant):
        return _moment_text(cell)
    if isinstance(cell, float):
        return None if math.isnan(cell) else _float_text(cell)
    return str(cell)


def texts_of(
    values: Sequence[Any] | NDArray[Any], most: int
) -> tuple[list[str | None], dict[int, str]]:
    """Return the text of every value, as `label_text` writes it, and why some have none.

    A value of more than `most` bytes has none.
    """
    texts: list[str | None] = []
    reasons: dict[int, str] = {}
    for number in range(len(values)):
        try:
            value = values[number]
            text = label_text(value)
            if len(value if isinstance(value, bytes) else (text or "").encode()) > most:
                raise NoTextError(too_long("it", most))
            texts.append(text)
        except (NoTextError, SystemError) as error:  # NumPy fails on what is no Unicode
            texts.append(None)
            reasons[number] = str(error)
    return texts, reasons


def too_long(what: str, most: int) -> str:
    """Return why a cell or line is rejected whose size is beyond the declared limit."""
    return f"{what} holds more than {most:,} bytes, the limit that is declared"


def _checked(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise NoTextError("it is not valid Unicode: it holds half of a surrogate pair") from None
    return text or None


def _float_text(value: float) -> str:
    if value.is_integer():
        return str(int(value))
    return repr(value) if math.isinf(value) else _digits(Decimal(repr(value)))


def _digits(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _moment_text(moment: Instant) -> str:
    from poisonproof.partition.cells import time_text

    text = time_text(moment.seconds)
    if text is None:
        raise NoTextError("it is a date outside the years 1 to 9999")
    if not moment.attoseconds:
        return text
    digits = f"{moment.attoseconds:018}"
    while len(digits) > 6 and digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}{'' if ':' in text else ' 00:00:00'}.{digits}"
