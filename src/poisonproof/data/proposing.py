"""A first draft of a schema, made by looking at the rows.

The rows are untrusted, so this is a proposal and nothing else: a human reads it, corrects it and
freezes it, and only what is frozen is ever used to read data.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from poisonproof.data.columns import (
    NUMBER_FORMATS,
    ArrayColumn,
    CategoryColumn,
    Column,
    DateColumn,
    ImageColumn,
    NumberColumn,
    Reasons,
    TextColumn,
    days_of,
)
from poisonproof.data.csv_files import (
    MOST_ROWS,
    CsvLayout,
    delimiter_of,
    format_of,
    is_utf8,
    parse_lines,
    read_header,
    sample_lines,
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
from poisonproof.data.parquet_files import column_names, parquet_texts
from poisonproof.data.parquet_files import count_rows as parquet_rows
from poisonproof.data.rows import list_kinds, present_texts, problem_kind, without_texts
from poisonproof.data.schema import (
    DELIMITERS,
    MAX_COLUMNS,
    Layout,
    Limits,
    Schema,
    other_delimiter,
    refuse_repeated,
)
from poisonproof.data.sources import TABLES, check_file
from poisonproof.exceptions import InvalidInputError
from poisonproof.partition.contributors import GroupPartitioner, NamedSources

NUMERIC_SHARE = 0.9
"""A column is a number if this share of its filled cells is: one invalid cell changes nothing."""

COUNTING_SHARE = 0.9
"""A column counts the rows if so many of its cells are different integers close together; a
file that was put together from several holds some rows twice."""

MOST_CATEGORIES = 50
MOST_CLASSES = 1000

MOST_CELLS = 10_000_000
MOST_BYTES = 2**28
"""The part of a table that is looked at."""

MISSING_TEXTS = {"NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None", "NaN", "nan", "-", "?"}
"""What other programs write for a missing number or date."""

UNITS = ("%", "$", "€", "£")
DATE_FORMATS = tuple(
    f"{day}{time}"
    for day in ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y/%m/%d", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y")
    for time in ("", " %H:%M", " %H:%M:%S")
)
TRIED = 300
"""About how many cells a notation is found by."""

LARGEST_SCALE = 1e300
"""A spread above this comes from cells that somebody made up."""


@dataclass(frozen=True)
class ProposalOptions:
    """Statements of the user, made before the rows are looked at.

    `ignore`, `text`, `category` and `date` name columns whose type is known; dates get the `parts`.
    `embedding` and `network` say how texts and images are encoded, if not as n-grams and edges, and
    `encoding` how the file is, if that is known. `groups` holds sources if
    `sources` is true, or else what `partition` reads.
    """

    label: str
    groups: str | None = None
    sources: bool = False
    partition: GroupPartitioner | None = None
    weights: str | None = None
    ignore: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    date: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    test_share: float = 0.2
    encoding: str | None = None
    embedding: TextColumn | None = None
    network: ImageColumn | None = None

    @property
    def typed(self) -> tuple[str, ...]:
        """The columns whose type is known."""
        return (*self.ignore, *self.text, *self.category, *self.date)


@dataclass(frozen=True)
class Proposal:
    """A draft, and what a human should know before freezing it.

    `notes` say by column what was seen in `n_rows` rows of `n_total`; `n_broken` more lines are not
    rows. `warnings` come first. Of a folder of images `n_looked_at` were opened, and `refused` says
    why some would be left out.
    """

    schema: Schema
    n_rows: int
    notes: Mapping[str, str]
    label_counts: Mapping[str, int] = field(default_factory=dict)
    n_broken: int = 0
    n_total: int = 0
    warnings: tuple[str, ...] = ()
    n_looked_at: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


class Seen(NamedTuple):
    """Cells by column name (None where one is empty), and how many rows these are.

    `n_broken` lines among them are no rows; there are `n_total` rows and such lines altogether.
    """

    columns: dict[str, Sequence[str | None]]
    n_rows: int
    n_broken: int = 0
    n_total: int = 0
    encoding: str = "utf-8"
    delimiter: str = ""
    warnings: tuple[str, ...] = ()


def sample_rows(path: Any, options: ProposalOptions) -> Seen:
    """Return up to 10,000 rows (fewer of a very wide table) from all over a CSV or Parquet file."""
    if not isinstance(path, Path):
        texts = frame_texts(path, MOST_ROWS)
        return Seen({**texts}, len(next(iter(texts.values()), [])))
    check_file(path, TABLES)
    if format_of(path) == ".parquet":
        names = column_names(path)
        refuse_repeated(names, path)
        most = max(1, min(MOST_ROWS, MOST_CELLS // max(1, len(names))))
        texts = parquet_texts(path, most, Limits())
        return Seen({**texts}, len(next(iter(texts.values()), [])), 0, parquet_rows(path))
    sample = sample_lines(path, MOST_CELLS, Limits().line, MOST_BYTES)
    encoding, warnings = options.encoding or "utf-8", []
    header_fits = is_utf8(sample.header)
    if options.encoding is None and (sample.n_foreign or not header_fits):
        told = f"{sample.n_foreign:,} of {sample.n_lines:,} lines are not UTF-8"
        told = told if header_fits else "The header is not UTF-8"
        if not header_fits or sample.n_foreign > max(sample.n_wide, sample.n_lines // 1000):
            encoding = "cp1252"  # Latin-1, and what Windows adds to it
            lines = b"".join([sample.header, *sample.lines]).decode(encoding, "replace")
            word = next(filter(lambda word: not word.isascii(), re.findall(r"\w+", lines)), "")
            warnings.append(
                f"{told}. The schema declares {encoding}, by which {word[:40]!r} is a word. If "
                "that is wrong, name the encoding: --encoding."
            )
        else:
            warnings.append(f"{told} and would be left out.")
    delimiter, names = _header(path, sample.header, encoding, options.label)
    usual = delimiter_of(path)
    if delimiter != usual:
        warnings.append(f"Cells are separated by {delimiter!r}, which the schema declares.")
    refuse_repeated(names, path)
    columns = Layout(tuple(names), (), texts=tuple(range(len(names))))
    layout = CsvLayout(columns, delimiter, Limits().cell, encoding)
    rows = parse_lines(b"".join(sample.lines), 2, layout)
    return Seen(
        dict(zip(names, rows.texts, strict=True)),
        len(rows.places),
        len(rows.problems),
        sample.n_lines,
        encoding,
        "" if delimiter == usual else delimiter,
        tuple(warnings),
    )


def _header(path: Path, line: bytes, encoding: str, label: str) -> tuple[str, list[str]]:
    """Return the usual delimiter, or another one by which the label is a column, and the names."""
    found: dict[str, list[str]] = {}
    for mark in (usual := delimiter_of(path), *DELIMITERS):
        with suppress(InvalidInputError):
            schema = Schema(encoding=encoding, delimiter=mark)
            found[mark] = read_header(path, io.BytesIO(line), schema)
    fits = [mark for mark in found if label in found[mark]]
    if fits and usual not in fits:
        best = max(fits, key=lambda mark: len(found[mark]))
        return best, found[best]
    return usual, read_header(path, io.BytesIO(line), Schema(encoding=encoding))


def propose_table(source: Any, options: ProposalOptions) -> Proposal:
    """Draft the schema of a CSV or Parquet file, or of a frame, from rows all over it."""
    name = source if isinstance(source, Path) else NAME
    return propose_seen(sample_rows(source, options), options, name)


def propose_seen(seen: Seen, options: ProposalOptions, source: object) -> Proposal:
    """Draft the schema of a table from rows that were seen; `source` is what errors call it."""
    if len(seen.columns) > MAX_COLUMNS:
        raise InvalidInputError(
            f"{source} has {len(seen.columns):,} columns; a schema lists at most {MAX_COLUMNS:,}, "
            "since somebody has to read it. Keep wide numeric data in an npz file."
        )
    _check_names(source, seen, options)
    options = _with_sources(options, seen.columns.get(options.groups or "", ()))
    special = {options.label, options.groups, options.weights}
    features = {name: cells for name, cells in seen.columns.items() if name not in special}
    missing = _missing_texts(features.values())
    columns: list[Column] = []
    ignored: list[str] = []
    notes: dict[str, str] = {}
    for name, cells in features.items():
        column, notes[name] = _propose(name, without_texts(cells, missing), options)
        if column is None:
            ignored.append(name)
        else:
            columns.append(column)
    if not columns:
        raise InvalidInputError(
            f"{source} has no column to propose, but a schema declares at least one feature."
        )
    counts = Counter(cell for cell in seen.columns[options.label] if cell is not None)
    schema = Schema(
        columns=columns,
        ignore=ignored,
        encoding=seen.encoding,
        delimiter=seen.delimiter,
        missing_texts=sorted(missing),
        **_declared(f"Column {options.label!r} of {source}", options, counts),
    )
    warnings = [*_half_left_out(seen, schema), *seen.warnings]
    if not options.classes and _is_continuous(counts):
        warnings.append(
            f"The label has {len(counts):,} different numbers: that is regression. Certificates "
            "are for classes, such as ranges of it, written into a column of their own."
        )
    return Proposal(
        schema,
        seen.n_rows,
        notes,
        dict(counts.most_common()),
        seen.n_broken,
        seen.n_total or seen.n_rows,
        tuple(warnings),
    )


def _is_continuous(counts: Counter[str]) -> bool:
    """Say whether labels look like measured numbers."""
    numbers = _parsed(list(counts), NumberColumn(name="label").number)
    fractions = sum(not number.is_integer() for number in numbers)
    return len(numbers) >= NUMERIC_SHARE * len(counts) and len(counts) > (10 if fractions else 100)


def _half_left_out(seen: Seen, schema: Schema) -> list[str]:
    """Say so if the schema leaves out more than half of the rows that were seen."""
    found = Reasons()
    for column in schema.columns:
        if not isinstance(column, TextColumn):
            cells: Any = present_texts(seen.columns[column.name], column, schema)
            if isinstance(column, NumberColumn):
                cells = column.parse(cells, found)
            column.encode(cells, found)
    reasons = found.by_row()
    for name, classes in ((schema.label, schema.classes), (schema.groups, None)):
        for row, cell in enumerate(seen.columns[name] if name is not None else ()):
            if cell is None or (classes is not None and cell not in classes):
                what = "is missing" if cell is None else "is not one of the classes"
                reasons.setdefault(row, f"column {name!r} {what}")
    n_lost, n_all = len(reasons) + seen.n_broken, seen.n_rows + seen.n_broken
    if 2 * n_lost <= n_all:
        return []
    kinds = Counter({"no row": seen.n_broken} if seen.n_broken else {})
    kinds.update(map(problem_kind, reasons.values()))
    return [
        f"More than half of the rows would be left out: {n_lost:,} of {n_all:,} "
        f"({list_kinds(dict(kinds.most_common()))})."
    ]


def _check_names(source: object, seen: Seen, options: ProposalOptions) -> None:
    for name in (options.label, options.groups, options.weights, *options.typed):
        if name is not None and name not in seen.columns:
            shown = ", ".join(repr(column[:40]) for column in list(seen.columns)[:12])
            raise InvalidInputError(
                f"{source} has no column {name!r}. Its columns are {shown}."
                f"{other_delimiter(list(seen.columns))}"
            )
    if twice := [name for name, count in Counter(options.typed).items() if count > 1]:
        raise InvalidInputError(
            f"Column {twice[0]!r} is named twice; --ignore, --text, --category and --date exclude "
            "each other."
        )
    if not seen.n_rows:
        broken = f" {seen.n_broken:,} lines are no rows." if seen.n_broken else ""
        raise InvalidInputError(f"{source} holds no rows to look at.{broken}")


def _with_sources(options: ProposalOptions, cells: Sequence[str | None]) -> ProposalOptions:
    """Return the options with the sources that were seen, if there are to be any."""
    if not options.sources:
        return options
    return replace(options, partition=NamedSources(sorted({cell for cell in cells if cell})))


def _declared(what: str, options: ProposalOptions, counts: Counter[str]) -> dict[str, Any]:
    """Return what a schema declares beside its columns; the classes are those seen, if unknown."""
    if not options.classes and not 2 <= len(counts) <= MOST_CLASSES:
        if len(counts) < 2:
            found = "fewer than two different labels in what was looked at"
        elif _is_continuous(counts):
            found = f"{len(counts):,} different numbers: that is regression, not a class label"
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
        "partition": options.partition,
        "weights": options.weights,
        "test_share": options.test_share,
    }


def _filled(cells: Sequence[str | None]) -> list[str]:
    return [cell for cell in cells if cell is not None and cell.strip()]


def _missing_texts(columns: Iterable[Sequence[str | None]]) -> set[str]:
    """Return the texts that stand for missing values in columns of numbers or dates."""
    found: Counter[str] = Counter()
    for cells in columns:
        texts = [text for cell in cells if (text := (cell or "").strip()) in MISSING_TEXTS]
        if texts:
            rest = _filled(without_texts(cells, set(texts)))
            read = max(len(_as_numbers("", rest)[1]), len(_as_dates("", rest)[1]))
            found.update(texts if rest and read >= NUMERIC_SHARE * len(rest) else ())
    return {text for text, count in found.items() if count > 1}  # one is an accident


def _propose(
    name: str, cells: Sequence[str | None], options: ProposalOptions
) -> tuple[Column | None, str]:
    """Return a column and what was seen, None for a column to be ignored."""
    if name in options.ignore:
        return None, "as requested"
    filled = _filled(cells)
    if not name or not filled:
        return None, "has no name" if filled else "is empty"
    missing = len(cells) - len(filled)
    values = Counter(filled)
    if name in options.text:
        return _text(name, options), f"text, as requested; {missing:,} missing"
    if name in options.category:
        return _category(name, values, missing)
    written, numbers = _as_numbers(name, filled)
    if name not in options.date and len(numbers) >= NUMERIC_SHARE * len(filled):
        if _counts_rows(numbers, len(cells)):
            return None, "integers, nearly all different, close together: counts the rows?"
        seen = _numbers_seen(numbers, missing) + _strange(cells, missing, numbers, "number")
        return _number(written, numbers, missing), seen
    dated, dates = _as_dates(name, filled, every=name in options.date)
    if name in options.date and not dates:
        raise InvalidInputError(
            f"--date {name}: none of its cells is a date that is understood, such as 2020-01-31 or "
            f"01/31/2020 13:30. The first is {filled[0][:40]!r}."
        )
    if name in options.date or len(dates) >= NUMERIC_SHARE * len(filled):
        seen = _dates_seen(dated, dates, filled, missing)
        seen += _strange(cells, missing, dates, "date")
        return _date(dated, dates, missing, options), seen
    if len(values) <= min(MOST_CATEGORIES, max(2, len(filled) // 5)):
        return _category(name, values, missing)
    words = float(np.mean([len(cell.split()) for cell in filled]))
    what = f"{len(values):,} different {'' if words >= 2 else 'short '}texts"
    repeated = 2 * len(values) <= len(filled)
    listed = f", or --category {name}" if repeated and len(values) <= MOST_CLASSES else ""
    if words >= 2:
        note = f"{words:.0f} words on average; {missing:,} missing"
        return _text(name, options), note + (f"; {what}{listed}" if listed else "")
    if len(dates) >= len(filled) / 2:
        share = f"{100 * len(dates) / len(filled):.0f} %"
        return None, f"{share} are dates such as 2020-01-31: write all of them that way to use them"
    if options.groups is None and repeated:
        return None, f"{what}, most of them repeated: contributors? Then --groups {name}{listed}"
    return None, f"{what}, most of them repeated{listed}" if repeated else f"{what}: an identifier?"


def _dates_seen(written: DateColumn, dates: list[float], cells: list[str], missing: int) -> str:
    """Return what a human should know about dates."""
    seen = f"{_day(min(dates))} to {_day(max(dates))}"
    other = replace(written, format=written.format.replace("%m/%d", "%d/%m"))
    if other != written and len(_parsed(cells, other.number)) >= len(dates):
        seen += f", or with the day first: format {other.format}"
    return f"{seen}; {missing:,} missing"


def _category(name: str, values: Counter[str], missing: int) -> tuple[CategoryColumn, str]:
    """Return a column of the commonest values and what was seen."""
    most = sorted(value for value, _ in values.most_common(MOST_CLASSES))
    note = f"{len(values):,} values{_seen_once(values)}; {missing:,} missing"
    return CategoryColumn(name=name, categories=tuple(most)), note


def _as_numbers(name: str, cells: list[str]) -> tuple[NumberColumn, list[float]]:
    """Return how the numbers in cells are written, and those that there are."""
    column = NumberColumn(name=name)
    numbers = _parsed(cells, column.number)
    some = _some(cells)
    if len(numbers) >= NUMERIC_SHARE * len(cells) or not any(map(_has_digit, some)):
        return column, numbers
    units = ["", *(unit for unit in UNITS if any(unit in cell for cell in some))]
    forms = product(units, ("", *NUMBER_FORMATS))
    tried = [NumberColumn(name=name, unit=unit, format=form) for unit, form in forms]
    column = max(tried, key=lambda tried: len(_parsed(some, tried.number)))
    return column, _parsed(cells, column.number)


def _as_dates(name: str, cells: list[str], every: bool = False) -> tuple[DateColumn, list[float]]:
    """Return how the dates in cells are written, and those that there are."""
    # 20200131 is a date as well, but more often a number.
    dates = _parsed([cell for cell in cells if every or "-" in cell], days_of)
    some = _some(cells)
    if 2 * len(dates) >= len(cells) or not any(map(_has_digit, some)):
        return DateColumn(name=name), dates
    tried = [DateColumn(name=name, format=form) for form in DATE_FORMATS]
    best = max(tried, key=lambda tried: len(_parsed(some, tried.number)))
    if not _parsed(some, best.number):
        return DateColumn(name=name), dates
    return best, _parsed(cells, best.number)


def _some(cells: list[str]) -> list[str]:
    """Return the cells by which a notation is found."""
    return cells[:: max(1, len(cells) // TRIED)]


def _has_digit(cell: str) -> bool:
    return any(map(str.isdigit, cell))


def _numbers_seen(numbers: list[float], missing: int) -> str:
    """Return what a human should know about numbers."""
    values = Counter(numbers)
    whole = all(number.is_integer() for number in values)
    if len(values) == 1:
        return f"always {numbers[0]:g}, of no use; {missing:,} missing"
    seen = f"{min(numbers):g} to {max(numbers):g}"
    if values[0.0] >= len(numbers) / 2 and len(values) > 2:
        seen += f", {100 * values[0.0] / len(numbers):.0f} % are 0"
    if 2 < len(values) <= 12 and whole:
        seen += f", {len(values)} integers"
    elif whole and len(values) >= 0.99 * len(numbers) > 100:
        seen += ", nearly all different: --ignore?"
    return f"{seen}; {missing:,} missing"


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


def _number(written: NumberColumn, numbers: list[float], missing: int) -> NumberColumn:
    values = sorted(set(numbers))
    center, scale = float(np.quantile(numbers, 0.5)), _spread(numbers)  # no sum may overflow
    if len(values) == 2 and values[1] - values[0] < LARGEST_SCALE:
        center, scale = values[0], values[1] - values[0]
    center, scale = _rounded(center, scale), _rounded(scale) or 1.0
    return replace(written, missing=center if missing else "reject", center=center, scale=scale)


def _spread(numbers: list[float]) -> float:
    """Return how far the middle half reaches, or a third of the middle nine tenths if that is more.

    Where half of the numbers are one, the usual distance of the others from it.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        lowest, low, middle, high, highest = np.quantile(numbers, [0.05, 0.25, 0.5, 0.75, 0.95])
        apart = np.abs(np.asarray(numbers) - middle)
        spread = (
            max(high - low, (highest - lowest) / 3)
            if high > low
            else np.median(apart[apart > 0] if apart.any() else [1.0])
        )
    return float(spread) if 0 < spread < LARGEST_SCALE else 1.0


def _date(
    written: DateColumn, dates: list[float], missing: int, options: ProposalOptions
) -> DateColumn:
    low, middle, high = np.quantile(dates, [0.25, 0.5, 0.75])
    origin = _day(float(middle))
    return replace(
        written,
        missing=origin if missing else "reject",
        origin=origin,
        scale=_rounded(float(high - low)) or 1.0,
        parts=options.parts,
    )


def _day(days: float) -> str:
    """Return the day; a zone can move a moment out of the years that there are."""
    ordinal = date(1970, 1, 1).toordinal() + int(days // 1)
    return str(date.fromordinal(min(max(ordinal, 1), date.max.toordinal())))


def _rounded(value: float, scale: float = math.inf) -> float:
    """Return two digits, a constant that a human can read; more if `scale` says that they count."""
    digits = (float(f"{value:.{n}g}") for n in range(2, 18))
    return next((found for found in digits if abs(found - value) <= scale / 2), value)


def _text(name: str, options: ProposalOptions) -> TextColumn:
    return replace(options.embedding or TextColumn(name=name), name=name)


LOOKED_AT = 50
LARGEST_PROPOSED = 64


def propose_arrays(path: Path, options: ProposalOptions, samples: str) -> Proposal:
    """Draft the schema of an npz file from the shape of its samples and its labels."""
    check_file(path, [".npz"])
    if options.typed:
        raise InvalidInputError(f"{path} has arrays, not columns of types of their own.")
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
    if (column := options.groups) is not None:
        options = _with_sources(options, array_texts(arrays[column], column, path)[0])
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
