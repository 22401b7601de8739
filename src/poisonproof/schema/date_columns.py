"""Columns of dates and times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from poisonproof.schema.columns import Column

__all__ = ["DateColumn", "days_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def days_of(text: str) -> float:
    """Return the days from 1970 to an ISO 8601 date or time; one without a zone is UTC.

    Raises
    ------
    ValueError
        If it is none.

    Examples
    --------
    >>> days_of("1970-01-02"), days_of("1970-01-01T12:00:00"), days_of("1970-01-01 02:00+02:00")
    (1.0, 0.5, 0.0)
    """
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) / timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class DateColumn(Column):
    """A date or time in ISO 8601: days since `origin`, by `scale`, both declared.

    Parameters
    ----------
    name : str
    missing : {"reject", "nan"} or str
        An empty cell rejects its row, stays missing (for members that take missing values), or
        becomes this date, with a second feature that says so.
    origin : str
        A date.
    scale : float
        Days.

    Examples
    --------
    >>> DateColumn(name="opened", origin="2020-01-01", missing="2020-06-01").n_features
    2
    """

    type: ClassVar[str] = "date"

    missing: str = "reject"
    origin: str = "2000-01-01"
    scale: float = 365.25

    def __post_init__(self) -> None:
        for key in ("origin", "missing"):
            value = getattr(self, key)
            if key == "missing" and value in ("reject", "nan"):
                continue
            try:
                days_of(value)
            except (TypeError, ValueError, AttributeError):
                words = "a date, as 2020-01-31" + (", reject or nan" if key == "missing" else "")
                raise self._refuse(f"{key} is {words}. Got {value!r}.") from None
        if type(self.scale) not in (int, float) or not 0 < self.scale < math.inf:
            raise self._refuse(f"scale is a number of days above 0. Got {self.scale!r}.")
        object.__setattr__(self, "scale", float(self.scale))

    @property
    def fills(self) -> bool:
        """Whether a declared date takes the place of missing ones."""
        return self.missing not in ("reject", "nan")

    @property
    def n_features(self) -> int:
        """One, and another one where missing cells are filled."""
        return 2 if self.fills else 1
