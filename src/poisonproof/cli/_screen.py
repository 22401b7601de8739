"""Print tables and messages; write output files completely or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from poisonproof.certificates.result import Certificates, GridCertificates
from poisonproof.data.rows import CheckedRows
from poisonproof.data.value_text import escaped
from poisonproof.evaluation.accuracy import (
    Summary,
    closing_sentences,
    default_sizes,
    protected_share,
)
from poisonproof.exceptions import ClusterWarning, InvalidInputError, MemberWarning, needing


class _Screen(Console):
    """A console on which no name of a file, column or class has a meaning of its own."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Show a sentence or a cell of a table as it is: nothing in it styles or moves anything."""
        plain = {**options, "markup": False, "emoji": False, "highlight": False}
        return super().render_str(text if text.isprintable() else escaped(text), **plain)


def console() -> Console:
    """Return a console on the standard output of this moment."""
    return _Screen()


def say(*things: str | Table) -> None:
    """Print sentences and tables, each on lines of its own."""
    screen = console()
    for thing in things:
        screen.print(thing)


def say_lines(*lines: str) -> None:
    """Print commands and code as they can be copied: never broken into several lines."""
    screen = console()
    for line in lines:
        screen.print(line, soft_wrap=True)


def say_written(files: Iterable[Path]) -> None:
    """Name the files that were written."""
    say(*(f"Written to {path}." for path in files))


def note(text: str) -> None:
    """Say on standard error what the user should know although nothing failed."""
    sys.stderr.write(f"Note: {escaped(' '.join(text.split()))}\n")


def note_one_label(labels: NDArray[Any], truth: NDArray[Any]) -> None:
    """Say on standard error that a model does not tell classes apart, if all rows got one label."""
    if len(labels) and (labels == labels[0]).all() and not (truth == truth[0]).all():
        note(
            f"All {len(labels):,} rows got the label {shown(str(labels[0]))!r}: the model "
            "does not tell the classes apart. Some kinds of member (kernel-ridge, svc, neighbors) "
            "need columns of a scale of about 1; scaled-kernel takes any units."
        )


def note_problems(rows: CheckedRows) -> None:
    """Say on standard error which rows of a file were left out, and what for."""
    if rows.problems:
        left_out = f"{counted(len(rows.problems), 'row')} left out that did not fit"
        note(f"{left_out}; the first: {rows.describe_problems()}")


def json_bytes(values: Mapping[str, Any]) -> bytes:
    """Return values as the text of a JSON file."""
    return json.dumps(values, indent=1).encode() + b"\n"


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun, as in ``12,000 rows``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def shown(text: str, most: int = 60) -> str:
    """Return a text from a data file, shortened to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


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


_MOST_CLASSES = 12


def print_summary(summary: Summary, classifier: Any) -> None:
    """Print the certified accuracy at each attack size, then the findings in words."""
    heads = (summary.threat.plural.capitalize(), "Test rows that stay correct")
    table = shares_table(heads, summary.sizes, summary.certified, summary.n_rows)
    say(table, classes_table(summary), *summary.sentences(getattr(classifier, "n_groups_", None)))


def classes_table(summary: Summary) -> Table:
    """Return the recall of every class, and what of it no attack of the median radius changes."""
    worst = sorted(summary.classes, key=lambda found: found.recall)[:_MOST_CLASSES]
    shown_classes = [found for found in summary.classes if found in worst]
    heads = ("Test rows", "Recall", f"Certified at {summary.median_radius or 0:,}", "Median radius")
    few = len(summary.classes) > _MOST_CLASSES
    first = Column(f"Class (the {_MOST_CLASSES} with the least recall)" if few else "Class")
    table = Table(first, *(Column(head, justify="right") for head in heads))
    for found in shown_classes:
        table.add_row(
            shown(found.label),
            f"{found.n_rows:,}",
            f"{100 * found.recall:.1f} %",
            f"{100 * found.certified:.1f} %",
            "none" if found.median_radius is None else f"{found.median_radius:,}",
        )
    return table


def print_protected(certificates: Certificates) -> None:
    """Print how many predictions, right or wrong, no attack of each size can change."""
    change = "change" if certificates.target is None else "become the target"
    heads = (certificates.threat.plural.capitalize(), f"Predictions that cannot {change}")
    sizes = default_sizes(certificates).tolist()
    shares = protected_share(certificates, sizes).tolist()
    say(shares_table(heads, sizes, shares, len(certificates)), *str(certificates).splitlines())


def print_closing(certificates: Certificates, classifier: Any) -> None:
    """Say in plain words what was proved about these predictions."""
    if certificates.target is None:
        say(*closing_sentences(certificates, n_groups=classifier.n_groups_))


def print_surface(
    certificates: Certificates, classifier: Any, truth: NDArray[Any] | None = None
) -> None:
    """Print what a grid withstands of rows and features at once, for every number of features."""
    if not isinstance(certificates, GridCertificates):
        return
    from poisonproof.evaluation.surface import Surface

    blocks, threat = classifier.partitioner_.blocks, certificates.threat
    surface = Surface.of(certificates, blocks, truth)
    sizes, kept = surface.sizes(), "stay correct" if truth is not None else "stay as they are"
    if certificates.target is not None:
        kept = "do not become the target"
    heads = [f"{blocks.features(2).capitalize()} changed", f"Rows that {kept}"]
    heads += [f"... also with {threat.count(size)}" for size in sizes[1:]]
    table = Table(*(Column(head, justify="right") for head in (*heads, "Median radius")))
    for f, shares in zip(surface.lines(), surface.shares(sizes), strict=True):
        median = surface.medians[f]
        cells = [f"{100 * share:.1f} %" for share in shares]
        table.add_row(f"{f:,}", *cells, "none" if median is None else f"{median:,}")
    say(table)
    if certificates.target is None:
        say(surface.sentence(classifier.n_groups_))
        covered, not_covered = surface.coverage()
        say(f"Covered: {covered}", f"Not covered: {not_covered}")


def radius_at(certificates: Certificates, features: int | None) -> NDArray[np.int64]:
    """Return the radius of every row while `features` features differ; -1 where nothing holds."""
    if features is None:
        return certificates.radius
    if not isinstance(certificates, GridCertificates):
        raise InvalidInputError(
            "--features is for models of --method grid; others certify training rows alone."
        )
    if features >= certificates.rows.shape[1]:
        return np.full(len(certificates), -1, dtype=np.int64)
    return certificates.rows[:, features]


def shares_table(
    heads: tuple[str, str], sizes: Sequence[int], shares: Sequence[float], n_rows: int
) -> Table:
    """Return a table of attack sizes, and how many of `n_rows` withstand each."""
    table = Table(*(Column(head, justify="right") for head in (*heads, "Share")))
    for size, share in zip(sizes, shares, strict=True):
        rows = f"{round(share * n_rows):,} of {n_rows:,}"
        table.add_row(f"{size:,}", rows, f"{100 * share:.1f} %")
    return table


# Files written whole or not at all, and checked before the work begins.

COLUMN_SUFFIXES = (".csv", ".parquet", ".npz")


def check_out(
    path: Path | None, suffixes: Sequence[str] = COLUMN_SUFFIXES, inputs: Sequence[Path | None] = ()
) -> None:
    """Raise now if a file could not be written later, or would replace an input."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        one = "one of " if len(suffixes) > 1 else ""
        listed = ", ".join(suffixes)
        raise InvalidInputError(f"{path} must end in {one}{listed}, which tells its format.")
    if path.is_dir():
        raise InvalidInputError(f"{path} is a directory; name a file.")
    for other in inputs:
        if other is not None and other.exists() and path.exists() and path.samefile(other):
            raise InvalidInputError(f"Writing {path} would replace the input. Choose another name.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"Cannot write {path}: {path.parent} is not a directory.")
    check_writable(path.parent, path)


def check_folder(path: Path) -> None:
    """Raise now if a folder could not be made or written to."""
    if path.exists() and not path.is_dir():
        raise InvalidInputError(f"Cannot write to {path}: it is not a directory.")
    check_writable(path, path)


def column_bytes(path: Path, columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Return columns of equal length as CSV, Parquet or npz, by the suffix of `path`."""
    buffer = io.BytesIO()
    if path.suffix.lower() == ".npz":
        np.savez_compressed(buffer, allow_pickle=False, **columns)
    elif path.suffix.lower() == ".parquet":
        with needing("pyarrow", "data"):
            import pyarrow as pa
            from pyarrow.parquet import write_table
        write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), buffer)
    else:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
        return text.getvalue().encode()
    return buffer.getvalue()


def check_writable(folder: Path, path: Path) -> None:
    """Raise if the folder, or the nearest one above it that exists, cannot be written to."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise InvalidInputError(f"Cannot write {path}: {folder} is not a directory.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInputError(f"Cannot write {path}: no permission to write in {folder}.")
