"""What the terminal shows: tables and sentences that read well at 80 columns and in a pipe."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from poisonproof.exceptions import MemberWarning

if TYPE_CHECKING:
    from poisonproof.certificates import Certificates
    from poisonproof.evaluation import Summary

__all__ = [
    "console",
    "counted",
    "note",
    "print_protected",
    "print_summary",
    "say",
    "spoken_warnings",
    "verbosity",
]


def console() -> Console:
    """Return a console on the standard output of this moment."""
    return Console(highlight=False)


def say(*sentences: str) -> None:
    """Print sentences, each on a line of its own."""
    screen = console()
    for sentence in sentences:
        screen.print(sentence, markup=False)


def note(text: str) -> None:
    """Say on standard error what the user should know although nothing failed."""
    sys.stderr.write(f"Note: {' '.join(text.split())}\n")


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(12000, "row"), counted(2, "class", "classes")
    ('1 row', '12,000 rows', '2 classes')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def verbosity() -> int:
    """Return 1 where a progress bar can be drawn: on a terminal."""
    return int(sys.stdout.isatty())


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Turn what the library warns about into notes on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", MemberWarning)
        yield
    for warning in caught:
        note(str(warning.message))


def print_summary(summary: Summary, title: str = "Certified accuracy") -> None:
    """Print the certified accuracy at each attack size, then the findings in words."""
    unit = summary.threat.plural.capitalize()
    table = Table(title=title, title_justify="left")
    table.add_column(unit, justify="right")
    table.add_column("Test rows that stay correct", justify="right")
    table.add_column("Share", justify="right")
    for size, share in zip(summary.sizes, summary.certified, strict=True):
        rows = round(share * summary.n_rows)
        table.add_row(f"{size:,}", f"{rows:,} of {summary.n_rows:,}", f"{100 * share:.1f} %")
    console().print(table)
    say(*summary.sentences())


def print_protected(certificates: Certificates, sizes: Sequence[int]) -> None:
    """Print how many predictions, right or wrong, no attack of each size can change."""
    from poisonproof.evaluation import protected_share  # noqa: PLC0415 - when a command runs

    n = len(certificates)
    table = Table(title="Certified predictions", title_justify="left")
    table.add_column(certificates.threat.plural.capitalize(), justify="right")
    table.add_column("Predictions that cannot change", justify="right")
    table.add_column("Share", justify="right")
    shares = protected_share(certificates, list(sizes)).tolist()
    for size, share in zip(sizes, shares, strict=True):
        table.add_row(f"{size:,}", f"{round(share * n):,} of {n:,}", f"{100 * share:.1f} %")
    console().print(table)
    say(*str(certificates).splitlines())
