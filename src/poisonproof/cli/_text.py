"""What the terminal shows: tables and sentences that read well at 80 columns and in a pipe."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from poisonproof.datasets.value_text import escaped
from poisonproof.exceptions import ClusterWarning, MemberWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poisonproof.certificates import Certificates
    from poisonproof.datasets import CheckedRows
    from poisonproof.evaluation import Summary

__all__ = [
    "console",
    "counted",
    "note",
    "note_one_label",
    "note_problems",
    "print_closing",
    "print_protected",
    "print_summary",
    "say",
    "self_check_sentence",
    "shares_table",
    "shown",
    "spoken_warnings",
    "verbosity",
]


class _Screen(Console):
    """A console on which no name of a file, column or class has a meaning of its own."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Show a sentence or a cell of a table as it is: nothing in it styles or moves anything."""
        plain = {**options, "markup": False, "emoji": False, "highlight": False}
        return super().render_str(escaped(text), **plain)


def console() -> Console:
    """Return a console on the standard output of this moment."""
    return _Screen()


def say(*sentences: str) -> None:
    """Print sentences, each on a line of its own."""
    screen = console()
    for sentence in sentences:
        screen.print(sentence)


def note(text: str) -> None:
    """Say on standard error what the user should know although nothing failed."""
    sys.stderr.write(f"Note: {escaped(' '.join(text.split()))}\n")


def note_one_label(labels: NDArray[Any], truth: NDArray[Any], whose: str = "") -> None:
    """Say on standard error that a model told nothing apart, if every row got the same label."""
    if len(labels) and (labels == labels[0]).all() and not (truth == truth[0]).all():
        note(
            f"{whose}All {len(labels):,} rows got the label {shown(str(labels[0]))!r}: the members "
            "tell nothing apart. Some kinds (kernel-ridge, svc, neighbors) need columns of one "
            "scale, about 1; scaled-kernel takes any units."
        )


def note_problems(rows: CheckedRows) -> None:
    """Say on standard error which rows of a file were left out, and what for."""
    if rows.problems:
        left_out = f"{counted(len(rows.problems), 'row')} left out that did not fit"
        kinds = shown(rows.describe_kinds(), 600)
        note(f"{left_out}; the first: {rows.describe_problems()} {kinds}")


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(12000, "row"), counted(2, "class", "classes")
    ('1 row', '12,000 rows', '2 classes')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def shown(text: str, most: int = 60) -> str:
    """Return a text from a data file that is not too long.

    >>> shown("a long label", 9)
    'a long...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def self_check_sentence(classifier: Any) -> str:
    """Say how many members were trained twice."""
    if n := classifier.n_self_checked_:
        return (
            f"Self-check: {counted(n, 'member')} trained again in a fresh process, no difference."
        )
    return "Self-check: no member was trained again to see whether it comes out the same."


def verbosity() -> int:
    """Return 1 where a progress bar can be drawn: on a terminal."""
    return int(sys.stdout.isatty())


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Turn what the library warns about into notes on standard error, at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in (ClusterWarning, MemberWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_args, **_more: note(str(message))
        yield


def print_summary(summary: Summary) -> None:
    """Print the certified accuracy at each attack size, then the findings in words."""
    table = shares_table(
        (summary.threat.plural.capitalize(), "Test rows that stay correct"),
        summary.sizes,
        summary.certified,
        summary.n_rows,
    )
    console().print(table)
    say(*summary.sentences())


def print_protected(certificates: Certificates, sizes: Sequence[int]) -> None:
    """Print how many predictions, right or wrong, no attack of each size can change."""
    from poisonproof.evaluation import protected_share

    targeted = certificates.target is not None
    table = shares_table(
        (
            certificates.threat.plural.capitalize(),
            f"Predictions that cannot {'become the target' if targeted else 'change'}",
        ),
        sizes,
        protected_share(certificates, list(sizes)).tolist(),
        len(certificates),
    )
    console().print(table)
    say(*str(certificates).splitlines())


def print_closing(certificates: Certificates, classifier: Any) -> None:
    """Say in plain words what was proved about these predictions."""
    from poisonproof.evaluation import closing_sentences

    known = getattr(classifier, "provenance_", None) or {}
    if certificates.target is None:
        counts = {key: known.get(key) for key in ("n_rows", "n_groups")}
        say(*closing_sentences(certificates, **counts))


def shares_table(
    heads: tuple[str, str], sizes: Sequence[int], shares: Sequence[float], n_rows: int
) -> Table:
    """Return a table of attack sizes, and how many of `n_rows` withstand each."""
    table = Table(*(Column(head, justify="right") for head in (*heads, "Share")))
    for size, share in zip(sizes, shares, strict=True):
        rows = f"{round(share * n_rows):,} of {n_rows:,}"
        table.add_row(f"{size:,}", rows, f"{100 * share:.1f} %")
    return table
