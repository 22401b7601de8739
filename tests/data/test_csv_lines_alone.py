"""A line of a CSV file is read the same way whatever lines stand around it."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poisonproof.data import Schema, TextColumn, number_columns, read_table
from poisonproof.data.csv_files import CsvLayout, csv_parts, parse_lines, split_line
from poisonproof.data.rows import RawRows
from poisonproof.data.schema import Layout, Limits

HEADER = ("a", "b", "body", "kind", "who", "w")
COLUMNS = Layout(HEADER, features=(0, 1), texts=(2,), label=3, groups=4, weights=5)
LONG = 131_073
"""One more than the `csv` module takes."""

NUMBERS = ["1", "-2.5e3", "", " 7 ", "nan", "-inf", "1e999", "007", '"3"', '""', '" 4"', ".5"]
TEXTS = ["ham", "", '"a b"', '""', " x ", "a\x00b", "\x0b", "\x1c", "null", "NA", "'", "a\\", "#"]
STRANGE = [
    *("1_000", "nan(1)", "0x1", "-", "1\x00", "x", "1 2", "\x0c5", "\x1c5", "--1", "1'0"),
    *("é", "\ufeff", "\u0661", "\r", "a\rb", '"', 'a"b', '"a""b"', '"a,b"', '"a\tb"', '"\r"'),
]
WHOLE_LINES = ["", " ", "\t", ",,,,,", "\t\t\t\t\t", " \t \t\t\t\t", "\x0c", '""', "\x00", "\ufeff"]


def random_line(rng: random.Random, delimiter: str, strange: float) -> str:
    if rng.random() < strange / 4:
        return rng.choice(WHOLE_LINES)
    cells = [
        rng.choice(STRANGE)
        if rng.random() < strange
        else rng.choice(NUMBERS if column in (0, 1, 5) else TEXTS)
        for column in range(len(HEADER))
    ]
    if rng.random() < strange / 8:
        cells.append("1")
    return delimiter.join(cells)


def as_rows(raw: RawRows) -> list[tuple[Any, ...]]:
    assert raw.labels is not None
    assert raw.groups is not None
    assert raw.weights is not None
    numbers = np.column_stack([raw.X, raw.weights])
    return [
        (int(place), *map(repr, row), raw.texts[0][i], raw.labels[i], raw.groups[i])
        for i, (place, row) in enumerate(zip(raw.places, numbers.tolist(), strict=True))
    ]


def as_columns(raw: RawRows) -> list[Any]:
    assert not raw.problems
    return [raw.X[:, 0].tolist(), raw.texts[0], raw.labels]


def line_by_line(block: bytes, layout: CsvLayout) -> list[tuple[Any, ...]]:
    """Return what the lines become when each of them stands alone."""
    lines = enumerate(block.split(b"\n"), start=2)
    return [row for number, line in lines for row in as_rows(parse_lines(line, number, layout))]


@pytest.mark.parametrize("delimiter", [",", "\t"], ids=["comma", "tab"])
@pytest.mark.parametrize("strange", [0.0, 0.03, 0.3])
def test_every_line_is_read_as_if_it_stood_alone(delimiter: str, strange: float) -> None:
    rng = random.Random(f"{delimiter}{strange}")
    layout = CsvLayout(COLUMNS, delimiter, Limits().cell)
    for _ in range(600):
        lines = [random_line(rng, delimiter, strange) for _ in range(rng.randint(1, 5))]
        end = rng.choice(["\n", "\r\n"])
        block = (end.join(lines) + rng.choice(["", end])).encode()
        alone = line_by_line(block, layout)
        assert as_rows(parse_lines(block, 2, layout)) == alone


@pytest.mark.parametrize(
    "cell",
    ["x" * LONG, '"' + "x" * LONG + '"', '"' + '""' * LONG + '"'],
    ids=["plain", "quoted", "quotes"],
)
@pytest.mark.parametrize("label", ["ham", '"ham"'])
def test_a_long_cell_is_read_whole_beside_any_neighbour(cell: str, label: str) -> None:
    layout = CsvLayout(COLUMNS, ",", Limits().cell)
    line = f"1,2,{cell},{label},me,1\n"
    rows = [
        as_rows(parse_lines(block.encode(), 2, layout))
        for block in (line, line + "1,2,a_b,ham,me,1\n", line + "\n", line + "é\n")
    ]
    whole = cell if cell[0] == "x" else cell[1:-1].replace('""', '"')
    assert [row[0] for row in rows] == [(2, "1.0", "2.0", "1.0", whole, "ham", "me")] * 4


def test_a_row_with_an_underscore_changes_no_other_row_of_a_large_file(tmp_path: Path) -> None:
    columns = (*number_columns("a"), TextColumn(name="body"))
    schema = Schema(columns=columns, label="kind", classes=("ham", "spam"))
    lines = [f'{i},"word {i % 50}",ham\n' for i in range(60_000)]
    lines[30_000] = f'7,"{"x" * LONG}",spam\n'
    path = tmp_path / "mails.csv"
    read = []
    for last in ("", "1,a_b,ham\n", "\n", "1,é,ham\n"):
        path.write_text("a,body,kind\n" + "".join(lines) + last)
        rows = [
            row
            for part, _ in csv_parts(path, schema)
            for row in zip(*as_columns(part), strict=True)
        ]
        read.append(tuple(rows[:60_000]))
    assert set(read) == {read[0]}


def test_a_line_of_tabs_is_a_row_of_empty_cells(tmp_path: Path) -> None:
    schema = Schema(label="kind", classes=("ham", "spam"))
    path = tmp_path / "mails.tsv"
    path.write_text("a\tb\tkind\n1\t2\tham\n\t\t\n \n3\t4\tham\n")
    rows = read_table(path, schema)
    assert rows.places.tolist() == [2, 5]
    assert [(p.place, p.reason) for p in rows.problems] == [
        (3, "the label is missing (column 'kind')")
    ]


@pytest.mark.parametrize(
    "line",
    ['"' + "x" * 10**6, '1,"' + '""' * 10**6 + "1", '"a",' * 10**6 + '"b', 'a"' * 10**6],
    ids=["open", "odd", "many cells", "inner"],
)
def test_a_hostile_line_takes_memory_in_proportion_to_its_length(line: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="quotes do not match"):
            split_line(line.encode(), ",")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 10 * len(line)
