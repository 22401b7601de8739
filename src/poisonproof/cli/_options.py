"""Options that several commands share, and how their text is read."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from poisonproof.exceptions import GuaranteeError, InvalidInputError

__all__ = [
    "ClassesFileOption",
    "ClassesOption",
    "ExpectedRowsOption",
    "FeaturesOption",
    "IgnoreOption",
    "JobsOption",
    "LabelOption",
    "SamplesOption",
    "WantedRadiusOption",
    "choose",
    "declared_classes",
    "parse_list",
    "parse_shape",
    "parse_size",
]

LabelOption = Annotated[
    str | None,
    typer.Option(
        "--label", "--y-key", metavar="COLUMN", help="Column (npz: array) with the labels."
    ),
]
SamplesOption = Annotated[
    str, typer.Option("--x-key", metavar="ARRAY", help="npz only: the array with the samples.")
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="The label set, declared. Compared as text; 7 and 7.0 in a binary file read '7'.",
    ),
]
ClassesFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The label set from a text file, one label per line."),
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="The feature columns. By default all that no other option names.",
    ),
]
ExpectedRowsOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="How many training rows you expect, known beforehand."),
]
WantedRadiusOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="R", help="The attack size that half of the rows should withstand."
    ),
]
IgnoreOption = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Columns that are no features.")
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", help="Worker processes, -1 for all cores. Changes no result, only time."
    ),
]


def parse_list(text: str | None, option: str) -> tuple[str, ...]:
    """Split a comma-separated list; quotes protect commas.

    >>> parse_list('ham, "spam, bulk"', "--classes")
    ('ham', 'spam, bulk')
    """
    if text is None:
        return ()
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise InvalidInputError(f"{option} is not a comma-separated list: {error}.") from error
    names = tuple(cell.strip() for cell in cells)
    if not names or "" in names:
        raise InvalidInputError(f"{option} must list names separated by commas. Got {text!r}.")
    return names


def declared_classes(classes: str | None, file: Path | None) -> tuple[str, ...]:
    """Return the declared label set; without one nothing could be certified.

    >>> declared_classes("ham,spam", None)
    ('ham', 'spam')
    """
    if classes is not None and file is not None:
        raise InvalidInputError("Give --classes or --classes-file, not both.")
    if file is not None:
        names = _read_classes(file)
    elif classes is not None:
        names = parse_list(classes, "--classes")
    else:
        raise GuaranteeError(
            "The label set must be declared, for example --classes ham,spam. Read from the data it "
            "would let one poisoned label change every member, and no certificate would hold."
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInputError(f"The classes list {', '.join(map(repr, repeated))} twice.")
    broken = [name for name in names if any("\ud800" <= letter <= "\udfff" for letter in name)]
    if broken:  # how Python shows bytes of the command line that are no text
        raise InvalidInputError(f"The class {broken[0]!r} is not UTF-8 text.")
    if len(names) < 2:
        raise InvalidInputError(f"At least two classes are needed. Got {', '.join(names)!r}.")
    return names


def parse_shape(text: str | None) -> tuple[int, int, int] | None:
    """Read the shape of an image.

    >>> parse_shape("3x32x32")
    (3, 32, 32)
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) != 3 or not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise InvalidInputError(
            f"--image-shape is CHANNELSxHEIGHTxWIDTH, as 1x28x28. Got {text!r}."
        )
    channels, height, width = map(int, sides)
    return channels, height, width


def parse_size(text: str | None) -> tuple[int, int] | None:
    """Read the size of images.

    >>> parse_size("32x48")
    (32, 48)
    """
    if text is None:
        return None
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise InvalidInputError(f"--size is HEIGHTxWIDTH, as 32x32. Got {text!r}.")
    return int(sides[0]), int(sides[1])


def choose(option: str, value: str, allowed: Sequence[str]) -> str:
    """Return `value` if it is allowed, else raise."""
    if value not in allowed:
        raise InvalidInputError(f"{option} is one of {', '.join(allowed)}. Got {value!r}.")
    return value


def _read_classes(file: Path) -> tuple[str, ...]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not UTF-8 text.") from error
    except OSError as error:
        raise InvalidInputError(f"Cannot read {file}: {error.strerror or error}.") from error
    return tuple(line for line in lines if line)
