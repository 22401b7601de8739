"""k without any rows: from numbers that are known beforehand."""

from __future__ import annotations

from poisonproof.exceptions import GuaranteeError, InvalidInputError

__all__ = ["declared_partitions"]

ROWS_PER_CLASS = 25
"""Rows of each class that a member should see where nothing else is said."""

FEWEST_PER_CLASS = 2


def declared_partitions(
    n_classes: int, expected_rows: int | None = None, wanted_radius: int | None = None
) -> int:
    """Return k from declared numbers.

    A radius r needs a lead of 2 r votes. With ``k = 4 r`` members it takes a lead of half of the
    votes, as when three quarters of the members of a two-class problem agree. Without a wanted
    radius k leaves 25 rows of each class for each member.

    Parameters
    ----------
    n_classes : int
        Size of the label set.
    expected_rows : int, optional
        Rows that will be trained on.
    wanted_radius : int, optional
        The attack size that half of the rows should withstand.

    Raises
    ------
    GuaranteeError
        If nothing was declared: k would have to come from the untrusted rows.

    Examples
    --------
    >>> declared_partitions(2, expected_rows=10_000), declared_partitions(2, wanted_radius=37)
    (200, 148)
    """
    if expected_rows is None and wanted_radius is None:
        raise GuaranteeError(
            "k cannot be chosen from the rows that it is to protect against: whoever poisons them "
            "would choose it. Give rows that you trust (--trusted FILE), or numbers that you know "
            "beforehand (--expected-rows N, --wanted-radius R)."
        )
    for name, value in (("expected_rows", expected_rows), ("wanted_radius", wanted_radius)):
        if value is not None and value < 1:
            raise InvalidInputError(f"{name} must be at least 1. Got {value}.")
    if wanted_radius is None:
        return max(2, (expected_rows or 0) // (ROWS_PER_CLASS * n_classes))
    k = 4 * wanted_radius
    if expected_rows is not None and expected_rows < k * FEWEST_PER_CLASS * n_classes:
        raise InvalidInputError(
            f"A radius of {wanted_radius:,} asks for {k:,} members; of {expected_rows:,} rows each "
            f"would see {expected_rows / k:.1f}, fewer than {FEWEST_PER_CLASS} of each of the "
            f"{n_classes} classes. Want less, or collect more rows."
        )
    return k
