"""A first draft of a schema, made by looking at the rows.

The rows are untrusted, so this is a proposal and nothing else: a human reads it, corrects it and
freezes it, and only what is frozen is ever used to read data.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from poisonproof.data.columns import (
    ArrayColumn,
    CategoryColumn,
    Column,
    DateColumn,
    ImageColumn,
    NumberColumn,
    TextColumn,
    days_of,
)
from poisonproof.data.csv_files import (
    CsvLayout,
    cell_number,
    delimiter_of,
    first_lines,
    parse_lines,
)
from poisonproof.data.frames import NAME, frame_texts
from poisonproof.data.image_files import (
    FORMATS,
    channels_first,
    decode_image,
    find_images,
    read_file,
    refusal,
)
from poisonproof.data.npz_files import array_texts, load_arrays
from poisonproof.data.parquet_files import parquet_texts
from poisonproof.data.rows import problem_kind
from poisonproof.data.schema import MAX_COLUMNS, Layout, Limits, Schema, refuse_repeated
from poisonproof.data.sources import TABLES, check_file, header_of
from poisonproof.exceptions import InvalidInputError

NUMERIC_SHARE = 0.9
"""A column is a number if this share of its filled cells is: one invalid cell changes nothing."""

COUNTING_SHARE = 0.9
"""A column counts the rows if so many of its cells are different integers close together; a
file that was put together from several holds some rows twice."""

MOST_CATEGORIES = 50
MOST_CLASSES = 1000

MOST_ROWS = 10_000
MOST_CELLS = 10_000_000
"""The part of a table that is looked at."""

LARGEST_SCALE = 1e300
"""A spread above this comes from cells that somebody made up."""


@dataclass(frozen=True)
class ProposalOptions:
    """Statements of the user, made before the rows are looked at.

    `text` names columns that are text whatever they look like; `embedding` and `network` say how
    texts and images are encoded, if not as n-grams and edges.
    """

    label: str
    groups: str | None = None
    weights: str | None = None
    ignore: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    test_share: float = 0.2
    embedding: TextColumn | None = None
    network: ImageColumn | None = None


@dataclass(frozen=True)
class Proposal:
    """A draft, and what a human should know before freezing it.

    `notes` say by column what was seen in `n_rows` rows; `n_broken` more lines are not rows. Of a
    folder of images `n_looked_at` were opened, and `refused` says why some would be left out.
    """

    schema: Schema
    n_rows: int
    notes: Mapping[str, str]
    label_counts: Mapping[str, int] = field(default_factory=dict)
    n_broken: int = 0
    n_looked_at: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


class Seen(NamedTuple):
    """Cells by column name (None where one is empty), rows, and lines among them that are none."""

    columns: dict[str, Sequence[str | None]]
    n_rows: int
    n_broken: int


def first_rows(path: Any) -> Seen:
    """Return up to 10,000 rows (fewer of a very wide table) of a CSV or Parquet file or a frame."""
    if not isinstance(path, Path):
        texts = frame_texts(path, MOST_ROWS)
        return Seen({**texts}, len(next(iter(texts.values()), [])), 0)
    check_file(path, TABLES)
    names = header_of(path, Limits())
    refuse_repeated(names, path)
    if path.suffix.lower() == ".parquet":
        texts = parquet_texts(path, MOST_ROWS, Limits())
        return Seen({**texts}, len(next(iter(texts.values()), [])), 0)
    columns = Layout(tuple(names), (), texts=tuple(range(len(names))))
    layout = CsvLayout(columns, delimiter_of(path), Limits().cell)
    most = max(1, min(MOST_ROWS, MOST_CELLS // len(names)))
    rows = parse_lines(first_lines(path, most, Limits().line), 2, layout)
    return Seen(dict(zip(names, rows.texts, strict=True)), len(rows.places), len(rows.problems))


def propose_table(source: Any, options: ProposalOptions) -> Proposal:
    """Draft the schema of a CSV or Parquet file, or of a frame, from some of its rows."""
    seen, path = first_rows(source), source if isinstance(source, Path) else NAME
    if len(seen.columns) > MAX_COLUMNS:
        raise InvalidInputError(
            f"{path} has {len(seen.columns):,} columns; a schema lists at most {MAX_COLUMNS:,}, "
            "since somebody has to read it. Keep wide numeric data in an npz file."
        )
    _check_names(path, seen, options)
    special = {options.label, options.groups, options.weights}
    columns: list[Column] = []
    ignored: list[str] = []
    notes: dict[str, str] = {}
    for name, cells in seen.columns.items():
        if name in special:
            continue
        column, notes[name] = _propose(name, cells, options)
        if column is None:
            ignored.append(name)
        else:
            columns.append(column)
    if not columns:
        raise InvalidInputError(
            f"{path} has no column to propose, but a schema declares at least one feature."
        )
    counts = Counter(cell for cell in seen.columns[options.label] if cell is not None)
    schema = Schema(
        columns=columns,
        ignore=ignored,
        **_declared(f"Column {options.label!r} of {path}", options, counts),
    )
    return Proposal(schema, seen.n_rows, notes, dict(counts.most_common()), seen.n_broken)


def _check_names(path: Path, seen: Seen, options: ProposalOptions) -> None:
    named = [options.label, options.groups, options.weights, *options.ignore, *options.text]
    for name in named:
        if name is not None and name not in seen.columns:
            shown = ", ".join(repr(column[:40]) for column in list(seen.columns)[:12])
            hint = ""
            if len(seen.columns) == 1 and any(mark in shown for mark in (";", "|", "\\t")):
                hint = " Cells are separated by commas (in a .tsv file: tabs); save it that way."
            raise InvalidInputError(
                f"{path} has no column {name!r}. Its columns are {shown}.{hint}"
            )
    if not seen.n_rows:
        raise InvalidInputError(f"{path} holds no rows to look at.")


def _declared(what: str, options: ProposalOptions, counts: Counter[str]) -> dict[str, Any]:
    """Return what a schema declares beside its columns; the classes are those seen, if unknown."""
    if not options.classes and not 2 <= len(counts) <= MOST_CLASSES:
        if len(counts) < 2:
            found = "fewer than two different labels in what was looked at"
        else:
            found = f"{len(counts):,} different values: it is not a label"
        raise InvalidInputError(
            f"{what} holds {found}. Declare the label set with --classes A,B,... (2 to "
            f"{MOST_CLASSES:,})."
        )
    return {
        "label": options.label,
        "classes": options.classes or sorted(counts),
        "groups": options.groups,
        "weights": options.weights,
        "test_share": options.test_share,
    }


def _propose(
    name: str, cells: Sequence[str | None], options: ProposalOptions
) -> tuple[Column | None, str]:
    """Return a column and what was seen, None for a column to be ignored."""
    if name in options.ignore:
        return None, "as requested"
    filled = [cell for cell in cells if cell is not None and cell.strip()]
    if not name or not filled:
        return None, "has no name" if filled else "is empty"
    missing = len(cells) - len(filled)
    if name in options.text:
        return _text(name, options), f"text, as requested; {missing:,} missing"
    numbers = _parsed(filled, cell_number)
    if _counts_rows(numbers, len(cells)):
        return None, "integers, nearly all different, close together: counts the rows?"
    if len(numbers) >= NUMERIC_SHARE * len(filled):
        seen = f"{min(numbers):g} to {max(numbers):g}; {missing:,} missing"
        return _number(name, numbers, missing), seen + _strange(cells, missing, numbers, "number")
    # 20200131 is a date as well, but more often a number.
    dates = _parsed([cell for cell in filled if "-" in cell], days_of)
    if len(dates) >= NUMERIC_SHARE * len(filled):
        seen = f"{_day(min(dates))} to {_day(max(dates))}; {missing:,} missing"
        return _date(name, dates, missing), seen + _strange(cells, missing, dates, "date")
    values = Counter(filled)
    if len(values) <= min(MOST_CATEGORIES, max(2, len(filled) // 5)):
        note = f"{len(values)} values{_seen_once(values)}; {missing:,} missing"
        return CategoryColumn(name=name, categories=tuple(sorted(values))), note
    words = float(np.mean([len(cell.split()) for cell in filled]))
    if words >= 2:
        note = f"{words:.0f} words on average; {missing:,} missing"
        return _text(name, options), note
    if len(dates) >= len(filled) / 2:
        share = f"{100 * len(dates) / len(filled):.0f} %"
        return None, f"{share} are dates such as 2020-01-31: write all of them that way to use them"
    what = f"{len(values):,} different short texts"
    if options.groups is None and 2 * len(values) <= len(filled):
        return None, f"{what}, most of them repeated: contributors? Then --groups {name}"
    return None, f"{what}: an identifier?"


def _seen_once(values: Counter[str]) -> str:
    """Name values that one row has: a typing error, or somebody's idea."""
    once = sorted(value for value, count in values.items() if count == 1)
    if not once:
        return ""
    named = ", ".join(repr(value[:20]) for value in once[:3])
    return f", once: {named}{f' and {len(once) - 3} more' if len(once) > 3 else ''}"


def _parsed(cells: Sequence[str], parse: Callable[[str], float]) -> list[float]:
    found = []
    for cell in cells:
        with suppress(ValueError):
            found.append(parse(cell))
    return [value for value in found if np.isfinite(value)]


def _strange(cells: Sequence[str | None], missing: int, found: list[float], what: str) -> str:
    """Return how many of the filled cells are none of what the others are."""
    count = len(cells) - missing - len(found)
    if not count:
        return ""
    return f"; 1 cell is not a {what}" if count == 1 else f"; {count:,} cells are not {what}s"


def _counts_rows(numbers: list[float], n_rows: int) -> bool:
    """Say whether a column looks like the numbers of the rows, even if a few were tampered with."""
    distinct = {number for number in numbers if number.is_integer()}
    if n_rows <= 20 or len(distinct) < COUNTING_SHARE * n_rows:
        return False
    low, high = np.quantile(sorted(distinct), [0.01, 0.99])
    return bool(high - low < 2 * n_rows)


def _number(name: str, numbers: list[float], missing: int) -> NumberColumn:
    center = _rounded(float(np.quantile(numbers, 0.5)))  # no sum that could overflow
    return NumberColumn(
        name=name,
        missing=center if missing else "reject",
        center=center,
        scale=_rounded(_spread(numbers)) or 1.0,
    )


def _spread(numbers: list[float]) -> float:
    """Return how far the middle half reaches, else the deviation; 1 where neither is a number."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.quantile(numbers, [0.25, 0.75])
        spreads = (float(high - low), float(np.std(numbers)), 1.0)
    return next(spread for spread in spreads if 0 < spread < LARGEST_SCALE)


def _date(name: str, dates: list[float], missing: int) -> DateColumn:
    low, middle, high = np.quantile(dates, [0.25, 0.5, 0.75])
    origin = _day(float(middle))
    return DateColumn(
        name=name,
        missing=origin if missing else "reject",
        origin=origin,
        scale=_rounded(float(high - low)) or 1.0,
    )


def _day(days: float) -> str:
    """Return the day; a zone can move a moment out of the years that there are."""
    ordinal = date(1970, 1, 1).toordinal() + int(days // 1)
    return str(date.fromordinal(min(max(ordinal, 1), date.max.toordinal())))


def _rounded(value: float) -> float:
    """Return two digits: a constant that a human can read and agree to."""
    return float(f"{value:.2g}")


def _text(name: str, options: ProposalOptions) -> TextColumn:
    model = options.embedding
    if model is None:
        return TextColumn(name=name)
    return TextColumn(
        name=name, encoder="sentences", size=model.size, model=model.model, digest=model.digest
    )


LOOKED_AT = 50
LARGEST_PROPOSED = 64


def propose_arrays(path: Path, options: ProposalOptions, samples: str) -> Proposal:
    """Draft the schema of an npz file from the shape of its samples and its labels."""
    check_file(path, [".npz"])
    if options.ignore or options.text:
        raise InvalidInputError(f"{path} has arrays, not columns to ignore or to read as text.")
    named = [samples, options.label, options.groups, options.weights]
    arrays = load_arrays(path, [name for name in named if name is not None])
    X = arrays[samples]
    if X.ndim < 2 or not len(X) or X.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"Array {samples!r} of {path} has shape {X.shape} and dtype {X.dtype}; samples are "
            "numbers of shape (n, d) or more."
        )
    pixels = X.dtype == np.uint8
    texts, _ = array_texts(arrays[options.label], options.label, path)
    counts = Counter(text for text in texts if text is not None)
    schema = Schema(
        kind="arrays",
        columns=(
            ArrayColumn(
                name=samples,
                shape=X.shape[1:],
                values="uint8" if pixels else "float64",
                missing="nan" if not pixels and np.isnan(X).any() else "reject",
            ),
        ),
        **_declared(str(path), options, counts),
    )
    note = f"{X.dtype}, {X.min():g} to {X.max():g}"
    return Proposal(schema, len(X), {samples: note}, dict(counts.most_common()))


def propose_images(
    path: Path, options: ProposalOptions, size: tuple[int, int] | None, encoder: str
) -> Proposal:
    """Draft the schema of a folder of images from the names of its folders and a few images."""
    paths = [file for file in find_images(path)[0] if "/" in file]
    counts = Counter(file.partition("/")[0] for file in paths)
    if not paths:
        raise InvalidInputError(f"{path} holds no images: they belong in CLASS/ below it.")
    shapes: Counter[tuple[int, ...]] = Counter()
    refused: Counter[str] = Counter()
    opened = paths[:: max(1, len(paths) // LOOKED_AT)][:LOOKED_AT]
    for file in opened:
        try:
            shapes[_shape(read_file(path / file, Limits().file), str(path / file))] += 1
        except InvalidInputError as error:
            refused[problem_kind(refusal(error, path / file))] += 1
    if not shapes:
        why, _ = refused.most_common(1)[0]
        raise InvalidInputError(
            f"None of the {len(opened)} files looked at in {path} can be read; mostly: {why}."
        )
    height, width = size or _side(shapes)
    column = options.network or ImageColumn(
        name="image",
        height=height,
        width=width,
        gray=all(len(shape) == 2 for shape in shapes),
        encoder=encoder,
    )
    schema = Schema(
        kind="images",
        columns=(column,),
        **_declared(str(path), replace(options, groups=None, weights=None), counts),
    )
    seen = ", ".join(f"{_described(shape)} ({n} files)" for shape, n in shapes.most_common(4))
    return Proposal(
        schema,
        len(paths),
        {"image": seen},
        dict(counts.most_common()),
        n_looked_at=len(opened),
        refused=dict(refused.most_common()),
    )


def _described(shape: tuple[int, ...]) -> str:
    *channels, height, width = shape
    return f"{height} x {width} {'colour' if channels else 'gray'}"


def _shape(data: bytes, where: str) -> tuple[int, ...]:
    from PIL import Image

    decoded = decode_image(data, where)
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        gray = image.mode in ("1", "L", "LA")
    return channels_first(decoded).shape[1 if gray else 0 :]


def _side(shapes: Counter[tuple[int, ...]]) -> tuple[int, int]:
    """Return the commonest size, or half, a quarter, ... of it if that is large."""
    *_, height, width = shapes.most_common(1)[0][0]
    while max(height, width) > LARGEST_PROPOSED:
        height, width = max(1, height // 2), max(1, width // 2)
    return height, width
