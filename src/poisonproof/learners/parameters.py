"""What a parameter may be: of the right type, and such that training comes to an end."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, LinearSVC, NuSVC

from poisonproof.exceptions import InvalidInputError

__all__ = ["check_random_state", "is_count", "is_number", "largest_value", "limit_steps"]

MOST_STEPS = 1_000_000
"""How many steps libsvm takes at most for one pair of classes where no limit is set.

By default it has none, and one row with a cell of 1e15 keeps a linear kernel busy for ever. A
million steps on 1,000 rows take seconds; ordinary rows of one scale need thousands.
"""

LARGEST = 1e15
"""The largest value that liblinear is given.

Its inner loops have no limit. They end if they can be computed: they do not where squares overflow
(1e300), and none of many rows of up to 1e15 kept them for long.
"""


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


def limit_steps(estimator: Any) -> None:
    """Limit the steps of support vector machines that have no limit, nested ones too.

    A number of steps is a function of the rows, as a time limit would not be.

    >>> from sklearn.pipeline import make_pipeline
    >>> member = make_pipeline(SVC())
    >>> limit_steps(member)
    >>> member[0].max_iter
    1000000
    """
    for part in (estimator, *estimator.get_params(deep=True).values()):
        if isinstance(part, (SVC, NuSVC)) and part.max_iter == -1:
            part.set_params(max_iter=MOST_STEPS)


def largest_value(estimator: Any) -> float:
    """Return how large a number in a training row may be, so that training ends.

    >>> largest_value(LinearSVC()), largest_value(LogisticRegression())
    (1000000000000000.0, inf)
    """
    parts = [estimator, *estimator.get_params(deep=True).values()]
    return LARGEST if any(map(_uses_liblinear, parts)) else math.inf


def _uses_liblinear(part: Any) -> bool:
    if isinstance(part, LogisticRegression):
        return bool(part.solver == "liblinear")
    default = isinstance(part, CalibratedClassifierCV) and part.estimator is None
    return default or isinstance(part, LinearSVC)
