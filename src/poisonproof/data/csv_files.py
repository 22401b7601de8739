"""Rows of CSV files, line by line: each line is read by itself, and says what is wrong with it.

One line is one row. A quoted cell may hold the delimiter and doubled quotes but no line break, so
that an unclosed quote spoils its own line and cannot swallow the rows behind it. Lines are split
here and not by the `csv` module, whose largest cell is a setting of the whole process.
"""

from __future__ import annotations

import gzip
import heapq
import io
import re
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from itertools import islice
from math import nan
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from poisonproof.data.columns import Reasons, cell_number
from poisonproof.data.rows import RawRows, RowProblem
from poisonproof.data.schema import Layout, Schema
from poisonproof.data.value_text import too_long
from poisonproof.exceptions import InvalidInputError, needing

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

MOST_ROWS = 10_000
"""Rows that are looked at for a proposal."""

_BLOCK_BYTES = 1 << 24
_SKIPPED_BYTES = 1 << 16


class CsvLayout(NamedTuple):
    """The columns of a CSV file, how it is written, the largest cell, and texts of missing ones."""

    columns: Layout
    delimiter: str
    largest_cell: int
    encoding: str = "utf-8"
    missing: frozenset[str] = frozenset()


def csv_parts(
    path: Path, schema: Schema, block_bytes: int = _BLOCK_BYTES
) -> Iterator[tuple[RawRows, int]]:
    """Read a file with a header line by the megabyte, with the bytes read; at least one part."""
    with open_lines(path) as (file, packed):
        limits, delimiter = schema.limits, schema.delimiter or delimiter_of(path)
        columns = schema.locate(read_header(path, file, schema), path)
        missing = frozenset(schema.missing_texts)
        layout = CsvLayout(columns, delimiter, limits.cell, schema.encoding, missing)
        before, first_line, n_parts = 0, 2, 0
        for block, cut in _blocks(file, limits.line, block_bytes):
            rows = parse_lines(block, first_line, layout)
            first_line += block.count(b"\n")
            if cut:
                reason = too_long("it", limits.line)
                rows.problems.append(RowProblem(first_line, reason, label=True))
                first_line += 1
            yield rows, packed.tell() - before
            before, n_parts = packed.tell(), n_parts + 1
        if not n_parts:
            yield parse_lines(b"", 2, layout), packed.tell() - before


COMPRESSED = (".gz", ".zst")

LARGEST_UNPACKED, LARGEST_RATIO = 2**28, 200
"""A file that becomes larger than both, in bytes and in multiples of its size, is refused."""


def format_of(path: Path) -> str:
    """Return the suffix that tells the format: of ``a.csv.gz`` that is ``.csv``."""
    inner = Path(path.stem).suffix.lower()
    packed = path.suffix.lower() in COMPRESSED and inner in (".csv", ".tsv")
    return inner if packed else path.suffix.lower()


@contextmanager
def open_lines(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file of lines, as they are read and as it lies on the disk, compressed or not."""
    with path.open("rb") as packed:
        if path.suffix.lower() in COMPRESSED:
            yield io.BufferedReader(_Unpacked(path, packed), 1 << 16), packed
        else:
            yield packed, packed


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, of which no more is held than is read at a time."""

    def __init__(self, path: Path, packed: IO[bytes]) -> None:
        self._path = path
        self._left = max(LARGEST_UNPACKED, LARGEST_RATIO * path.stat().st_size)
        self._source: Any = None
        if path.suffix.lower() == ".gz":
            self._source = gzip.GzipFile(fileobj=packed)
        else:
            with needing("pyarrow", "data"):
                import pyarrow as pa
            self._source = pa.input_stream(packed, compression="zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._source.read(len(buffer))
        except (EOFError, OSError, ValueError, zlib.error) as error:
            raise InvalidInputError(
                f"{self._path} is damaged or cut off ({str(error)[:80]}). Copy it again."
            ) from error
        self._left -= len(data)
        if self._left < 0:
            raise InvalidInputError(
                f"{self._path} becomes more than {LARGEST_RATIO} times as large when it is "
                "unpacked, as no honest table does. If you trust it, unpack it yourself."
            )
        buffer[: len(data)] = data
        return len(data)


def delimiter_of(path: Path) -> str:
    """Return what separates the cells of a file unless its schema says otherwise."""
    return "\t" if format_of(path) == ".tsv" else ","


def read_header(path: Path, file: IO[bytes], schema: Schema) -> list[str]:
    """Return the column names in the first line of an open file."""
    longest = schema.limits.line
    first = file.readline(longest + 2)
    if _is_longer(first, longest):
        raise InvalidInputError(
            f"{path}: line 1 holds more than {longest:,} bytes, the largest line that is read. It "
            "must be a header with the names of the columns; wide numeric data belongs in an npz "
            "file."
        )
    first = first.removeprefix(BYTE_ORDER_MARK)
    if not first.strip():
        raise InvalidInputError(f"{path} is empty; a header line with column names is needed.")
    if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InvalidInputError(f"{path} is UTF-16. Save it as UTF-8, or as CSV UTF-8.")
    delimiter = schema.delimiter or delimiter_of(path)
    try:
        return split_line(first, delimiter, encoding=schema.encoding)
    except ValueError as error:
        raise InvalidInputError(f"{path}, line 1: {error}.") from error


class LineSample(NamedTuple):
    """Lines from all over a file, in its order; counts of all lines that are not blank.

    `n_foreign` lines are not UTF-8, and `n_wide` are UTF-8 beyond ASCII.
    """

    header: bytes
    lines: list[bytes]
    n_lines: int
    n_foreign: int
    n_wide: int


def sample_lines(path: Path, cells: int, longest: int, most_bytes: int) -> LineSample:
    """Read a file once and keep the lines whose hashes are smallest, about `cells` cells of them.

    A line is hashed with its number: equal ones are kept or not each by itself. A line that is too
    long becomes one that has no cells.
    """
    kept: list[tuple[int, int, bytes]] = []
    size = n_lines = n_foreign = n_wide = 0
    with open_lines(path) as (file, _):
        header = file.readline(longest + 2)
        marks = max(map(header.count, (b",", b";", b"\t", b"|")))
        most = max(1, min(MOST_ROWS, cells // (marks + 1)))
        while line := file.readline(longest + 2):
            if not line.strip(b" \r\n"):
                continue
            if _is_longer(line, longest):
                _skip_line(file, line)
                line = b'"\n'
            n_lines += 1
            if not line.isascii():
                foreign = not is_utf8(line)
                n_foreign, n_wide = n_foreign + foreign, n_wide + (not foreign)
            hashed = blake2b(line, digest_size=8, salt=n_lines.to_bytes(16)).digest()
            key = -int.from_bytes(hashed)
            if len(kept) >= most and key < kept[0][0]:
                continue
            heapq.heappush(kept, (key, n_lines, line))
            size += len(line)
            while len(kept) > most or (size > most_bytes and len(kept) > 1):
                size -= len(heapq.heappop(kept)[2])
    lines = [line for _, _, line in sorted(kept, key=itemgetter(1))]
    return LineSample(header, lines, n_lines, n_foreign, n_wide)


def is_utf8(line: bytes) -> bool:
    """Say whether a line is UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _blocks(file: IO[bytes], longest: int, size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield whole lines by the megabyte, and whether a line behind them was passed over."""
    while block := file.read(min(size, longest)):
        start = block.rfind(b"\n") + 1
        block += b"" if start == len(block) else file.readline(longest + 2 - len(block) + start)
        cut = len(block) - start > longest and _is_longer(block[start:], longest)
        if cut:
            _skip_line(file, block)
        yield block[:start] if cut else block, cut


def _is_longer(line: bytes, longest: int) -> bool:
    return len(line) - line.endswith(b"\n") > longest


def _skip_line(file: IO[bytes], part: bytes) -> None:
    """Read on to the end of a line of which `part` has been read, holding nothing."""
    while part and not part.endswith(b"\n"):
        part = file.readline(_SKIPPED_BYTES)


def parse_lines(block: bytes, first_line: int, layout: CsvLayout) -> RawRows:
    """Read whole lines, of which the first has the number `first_line`."""
    columns = layout.columns
    found = (columns.label, columns.groups, *columns.texts)
    texts: list[list[str | None]] = [[] for _ in found]
    reasons = Reasons()
    values, places, weights = array("d"), array("q"), array("d")
    problems: list[RowProblem] = []
    pick = _picker(columns.features)
    for number, line in enumerate(block.split(b"\n"), start=first_line):
        if is_blank(line, layout.delimiter):
            continue
        try:
            cells = split_line(line, layout.delimiter, len(columns.header), layout.encoding)
            # As UTF-8, a character takes up to three bytes.
            long = 3 * len(line) > layout.largest_cell
            lost = _leave_out_long(cells, layout) if long else {}
            numbers = _line_numbers(line, cells, layout, pick, lost)
            if long:
                try:
                    _check_sizes(cells, layout, [columns.label])
                except ValueError as error:
                    if lost:
                        raise ValueError(next(iter(lost.values()))) from None
                    raise _BrokenLineError(str(error)) from None
            if columns.weights is not None:
                weights.append(_cell_number(cells, layout, columns.weights))
        except ValueError as error:
            whole = isinstance(error, _BrokenLineError)
            problems.append(RowProblem(number, str(error), label=whole))
            continue
        for place, why in lost.items():
            reasons.cells[len(places), columns.header[place]] = why
        values.extend(numbers)
        places.append(number)
        for column, index in zip(texts, found, strict=True):
            if index is not None:
                column.append(cells[index] or None)
    shape = len(places), len(columns.features)
    return RawRows(
        X=np.array(values, dtype=np.float64).reshape(shape),
        labels=None if columns.label is None else texts[0],
        groups=None if columns.groups is None else texts[1],
        weights=None if columns.weights is None else np.array(weights, dtype=np.float64),
        names=columns.feature_names,
        places=np.array(places, dtype=np.int64),
        unit="line",
        problems=problems,
        texts=tuple(texts[2:]),
        reasons=reasons,
    )


def _leave_out_long(cells: list[str], layout: CsvLayout) -> dict[int, str]:
    """Empty the features that are too large, and return why; another large cell raises."""
    columns, lost = layout.columns, {}
    _check_sizes(cells, layout, [columns.groups, columns.weights])
    for index in (*columns.features, *columns.texts):
        try:
            _check_sizes(cells, layout, [index])
        except ValueError as error:
            lost[index], cells[index] = str(error), ""
    return lost


def _check_sizes(cells: list[str], layout: CsvLayout, indices: Sequence[int | None]) -> None:
    for index in indices:
        if index is not None and len(cells[index].encode()) > layout.largest_cell:
            reason = too_long("it", layout.largest_cell)
            raise ValueError(f"column {layout.columns.header[index]!r}: {reason}")


def _line_numbers(
    line: bytes,
    cells: list[str],
    layout: CsvLayout,
    pick: Callable[[list[str]], Sequence[str]],
    lost: dict[int, str],
) -> list[float]:
    """Return the features of a line, NaN for those that are empty or none; `lost` says why."""
    if b"_" not in line and line.isascii():
        try:  # the whole row at once: the same numbers as `cell_number`, several times as fast
            return list(map(float, pick(cells)))
        except ValueError:
            pass  # an empty cell, or one to complain about
    numbers = []
    for index in layout.columns.features:
        try:
            numbers.append(_cell_number(cells, layout, index))
        except ValueError as error:
            lost.setdefault(index, str(error))
            numbers.append(nan)
    return numbers


def _cell_number(cells: list[str], layout: CsvLayout, index: int) -> float:
    try:
        return cell_number(cells[index])
    except ValueError as error:
        if cells[index].strip() in layout.missing:
            return nan
        raise ValueError(f"column {layout.columns.header[index]!r}: {error}") from None


def _picker(positions: tuple[int, ...]) -> Callable[[list[str]], Sequence[str]]:
    if not positions:
        return lambda _: ()
    if positions == tuple(range(positions[0], positions[-1] + 1)):
        return itemgetter(slice(positions[0], positions[-1] + 1))
    return itemgetter(*positions)


class _BrokenLineError(ValueError):
    """A line that does not fall into cells; any of them may be to blame, the label too."""


def is_blank(line: bytes, delimiter: str) -> bool:
    """Say whether a line holds nothing, not even empty cells."""
    return not line.strip() and delimiter.encode() not in line


def split_line(
    line: bytes, delimiter: str, width: int | None = None, encoding: str = "utf-8"
) -> list[str]:
    """Return the cells of one line; with `width`, a line of another number of cells is refused."""
    try:
        text = line.decode(encoding).removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} of the line is not {encoding.upper()}"
        hint = "; a schema can declare another encoding" if encoding == "utf-8" else ""
        raise _BrokenLineError(what + hint) from error
    if '"' not in text:
        _check_width(text.count(delimiter) + 1, width)
        return text.split(delimiter)
    line_of_cells, cell = _quoting(delimiter)
    if not line_of_cells.fullmatch(text):
        # A quote inside a cell that does not begin with one is the end of a cell that began lines
        # above: taken as it stands, half a text would become a row.
        raise _BrokenLineError("its quotes do not match within the line; a cell cannot span lines")
    found = cell.finditer(delimiter + text)
    # No more of them are held than a row has: a line of commas would be a million cells.
    cells = [match.groups() for match in islice(found, None if width is None else width + 1)]
    _check_width(len(cells) + sum(1 for _ in found), width)
    return [quoted[1:-1].replace('""', '"') if quoted else plain for quoted, plain in cells]


def _check_width(n_cells: int, width: int | None) -> None:
    if width not in (None, n_cells):
        raise _BrokenLineError(f"{n_cells} cells where the header has {width}")


@cache
def _quoting(delimiter: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return lines in which every quote surrounds a whole cell or is doubled inside one, and cells.

    A cell is found together with the delimiter in front of it. Nothing is ever matched twice
    (``*+``), so time and memory grow with the length of the line.
    """
    mark = re.escape(delimiter)
    quoted, plain = '"[^"]*+(?:""[^"]*+)*+"', rf'[^"{mark}]*+'
    line = rf"(?:{quoted}|{plain})(?:{mark}(?:{quoted}|{plain}))*+"
    return re.compile(line), re.compile(rf"{mark}(?:({quoted})|({plain}))")
