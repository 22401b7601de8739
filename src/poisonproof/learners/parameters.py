"""What a parameter is, before it is compared: text would raise in the middle of something else."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from poisonproof.exceptions import InvalidInputError

__all__ = ["check_random_state", "is_count", "is_number"]


def is_count(value: object) -> bool:
    """Say whether a parameter is a whole number, at least 1.

    >>> is_count(3), is_count(0), is_count(2.5), is_count("3"), is_count(True)
    (True, False, False, False, False)
    """
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def is_number(value: object) -> bool:
    """Say whether a parameter is a real number.

    >>> is_number(0.5), is_number("0.5"), is_number(None)
    (True, False, False)
    """
    return isinstance(value, Real)


def check_random_state(random_state: Any) -> int:
    """Accept a non-negative integer: anything else is a stream that would be shared, or drawn."""
    if not isinstance(random_state, bool) and isinstance(random_state, Integral):
        seed = int(random_state)
        if seed >= 0:
            return seed
    raise InvalidInputError(
        "random_state must be a non-negative integer, so that everything drawn is a function of it "
        f"and of the rows; got {random_state!r}."
    )
