"""Numbers, dates and missing values as people write them, read by what is declared."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poisonproof.data import (
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
    read_table,
    schema_digest,
)
from poisonproof.exceptions import GuaranteeError, InvalidInputError


@pytest.mark.parametrize(
    ("unit", "form", "cell", "number"),
    [
        ("%", "", "12.5 %", 12.5),
        ("%", "", "12.5%", 12.5),
        ("%", "", " -3 ", -3),
        ("%", "1234,5", "12,5\u00a0%", 12.5),
        ("$", "1,234.5", "-$1,250.50", -1250.5),
        ("$", "1,234.5", "$-1,250", -1250),
        ("€", "1.234,5", "1.234.567,8 €", 1234567.8),
        ("", "1.234,5", "1.234", 1234),
        ("", "1 234,5", "1\u202f234,5", 1234.5),
        ("", "1'234.5", "1'234", 1234),
        ("", "1,234.5", "1234.5", 1234.5),
        ("", "1234,5", ",5", 0.5),
        ("%", "", "", math.nan),
    ],
)
def test_numbers_are_read_as_declared(unit: str, form: str, cell: str, number: float) -> None:
    found = NumberColumn(name="a", unit=unit, format=form).number(cell)
    assert found == pytest.approx(number, abs=0, rel=0, nan_ok=True)


@pytest.mark.parametrize(
    ("unit", "form", "cell"),
    [
        ("", "1,234.5", "1,23"),
        ("", "1,234.5", "12,345,6"),
        ("", "1,234.5", ",123"),
        ("", "1234,5", "1.5"),
        ("", "1.234,5", "1.5"),
        ("%", "", "%"),
        ("%", "", "5 %%"),
        ("%", "", "5 $"),
        ("%", "", "--5 %"),
        ("%", "", "\u0661 %"),
        ("%", "", "1e5 %"),
        ("", "", "1,5"),
    ],
)
def test_a_number_written_otherwise_is_none(unit: str, form: str, cell: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        NumberColumn(name="a", unit=unit, format=form).number(cell)


@pytest.mark.parametrize("unit", [" %", "5", "-", 3])
def test_a_unit_that_could_be_part_of_a_number_is_refused(unit: object) -> None:
    with pytest.raises(InvalidInputError, match="unit is a text without digits"):
        NumberColumn(name="a", unit=unit)  # type: ignore[arg-type]


COLUMNS = (
    NumberColumn(name="n", missing="nan"),
    NumberColumn(name="p", unit="%", format="1,234.5", missing=0.0, scale=10.0),
    CategoryColumn(name="c", categories=("NA", "EU")),
    CategoryColumn(name="d", categories=("x", "y")),
    TextColumn(name="t", size=8, missing="reject"),
    DateColumn(name="w", format="%m/%d/%Y", missing="nan", origin="2020-01-01", scale=1.0),
)
DECLARED = freeze_schema(
    Schema(columns=COLUMNS, label="y", classes=("0", "NA"), missing_texts=("NA", "?"))
)
LINES = [
    "n,p,c,d,t,w,y",
    "1,12.5 %,EU,x,hello,01/31/2020,0",
    'NA,?,NA,NA,"a b",?,NA',
    '2,"1,000.5%",US,y,NA,1/1/2020,0',
    "x,5 %,EU,x,a,01/01/2020,0",
    '2,"1,00",EU,x,a,01/01/2020,0',
    "2,5,EU,x,a,2020-01-01,0",
]


def test_missing_texts_are_missing_unless_they_are_a_category_or_a_label(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(LINES) + "\n")
    rows = read_table(tmp_path / "t.csv", DECLARED, keep_cells=True)
    assert rows.X[:, 0].tolist()[:1] == [1.0]
    np.testing.assert_array_equal(rows.X[:, :3], [[1, 1.25, 0], [np.nan, 0, 1]])
    np.testing.assert_array_equal(rows.X[:, 3:9], [[0, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 1]])
    np.testing.assert_array_equal(rows.X[:, -1], [30, np.nan])
    assert rows.labels is not None
    assert rows.labels.tolist() == [0, 1]
    assert [(problem.place, problem.reason) for problem in rows.problems] == [
        (4, "column 't' is missing"),
        (5, "column 'n': 'x' is not a number"),
        (6, "column 'p': '1,00' is not a number"),
        (7, "column 'w': '2020-01-01' is not a date such as 01/31/2020"),
    ]
    assert rows.cells is not None
    np.testing.assert_array_equal(rows.cells["p"], [12.5, np.nan])


def test_parquet_and_csv_agree(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(LINES) + "\n")
    rows = [line.split(",") for line in LINES if '"' not in line]
    columns = {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    (tmp_path / "s.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    one, other = (read_table(tmp_path / name, DECLARED) for name in ("s.csv", "t.parquet"))
    np.testing.assert_array_equal(one.X, other.X)
    assert [p.reason for p in one.problems] == [p.reason for p in other.problems]


def test_every_row_is_read_as_if_it_stood_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(LINES) + "\n")
    together = read_table(path, DECLARED)
    for place, sample in zip(together.places, together.X, strict=True):
        path.write_text(f"{LINES[0]}\n{LINES[place - 1]}\n")
        np.testing.assert_array_equal(read_table(path, DECLARED).X, [sample])


def test_what_is_new_is_in_the_digest_and_what_is_absent_moves_none() -> None:
    plain = Schema(
        columns=(NumberColumn(name="a"), DateColumn(name="b")), label="y", classes=("0", "1")
    )
    text = json.dumps(plain.to_json())
    assert not any(key in text for key in ("unit", "format", "parts", "encoding", "missing_texts"))
    changed = [
        replace(plain, encoding="latin-1"),
        replace(plain, delimiter=";"),
        replace(plain, missing_texts=("NA",)),
        replace(plain, columns=(NumberColumn(name="a", unit="%"), plain.columns[1])),
        replace(plain, columns=(NumberColumn(name="a", format="1234,5"), plain.columns[1])),
        replace(plain, columns=(plain.columns[0], DateColumn(name="b", parts=("hour",)))),
        replace(plain, columns=(plain.columns[0], DateColumn(name="b", format="%d.%m.%Y"))),
    ]
    assert len({schema_digest(schema) for schema in [plain, *changed]}) == 8
    sealed = freeze_schema(plain)
    with pytest.raises(GuaranteeError, match="is a proposal"):
        replace(sealed, encoding="latin-1", frozen="").require_frozen()


DAYS = ["2024-02-29T00:00", "2024-03-03T23:59:59", "1969-12-31T10:00+02:00", "0001-01-01", None]


def test_parts_of_dates_are_features_of_the_row_alone() -> None:
    column = DateColumn(name="w", missing="nan", parts=("hour", "weekday", "month"))
    assert column.n_features == 12
    X = column.encode(DAYS, {})
    hours = [(0, 1.0), (23, math.cos(2 * math.pi * 23 / 24)), (8, math.cos(2 * math.pi * 8 / 24))]
    np.testing.assert_array_equal(X[:3, 1], [cosine for _, cosine in hours])
    assert X[:4, 3:10].argmax(axis=1).tolist() == [
        3,
        6,
        2,
        0,
    ]  # Thursday, Sunday, Wednesday, Monday
    assert (X[:4, 3:10].sum(axis=1) == 1).all()
    months = [2, 3, 12, 1]
    expected = [math.sin(2 * math.pi * (month - 1) / 12) for month in months]
    np.testing.assert_array_equal(X[:4, 11], expected)
    assert np.isnan(X[4]).all()
    for row, cell in enumerate(DAYS):
        np.testing.assert_array_equal(column.encode([cell], {}), X[[row]])


def test_every_hour_of_every_day_is_that_hour() -> None:
    column = DateColumn(name="w", parts=("hour",))
    cells = [
        f"{y:04}-07-{d:02}T{h:02}:00:00"
        for y in (1, 1970, 2024, 9999)
        for d in (1, 31)
        for h in range(24)
    ]
    X = column.encode(cells, {})
    turns = 2 * np.pi * np.array([int(cell[-8:-6]) for cell in cells]) / 24
    np.testing.assert_allclose(
        X[:, 1:], np.column_stack([np.cos(turns), np.sin(turns)]), atol=1e-12
    )


def test_a_filled_date_has_the_parts_of_the_date_that_fills_it() -> None:
    column = DateColumn(name="w", missing="2024-03-03", parts=("weekday",))
    X = column.encode([None, "2024-03-03"], {})
    np.testing.assert_array_equal(X[0, :-1], X[1, :-1])
    assert X[:, -1].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": ("year",)}, "parts is a list of hour, weekday, month"),
        ({"parts": ("hour", "hour")}, "parts is a list"),
        ({"parts": "hour"}, "parts is a list"),
        ({"format": "%d.%m"}, "format has %Y"),
        ({"format": "%Y-%m-%d %p"}, "format has %Y"),
        ({"format": "%Y-%m-%d %m"}, "each once"),
        ({"format": 3}, "format has %Y"),
        ({"format": "%"}, "format has %Y"),
    ],
)
def test_a_date_that_cannot_be_declared_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        DateColumn(name="w", **options)  # type: ignore[arg-type]


TEXT = "ort;wert;y\nMünchen;1;0\nKöln;2;1\n"
CITIES = Schema(
    columns=(CategoryColumn(name="ort", categories=("München", "Köln")), NumberColumn(name="wert")),
    label="y",
    classes=("0", "1"),
    delimiter=";",
)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "iso-8859-15"])
def test_a_file_is_read_in_the_encoding_that_is_declared(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode(encoding))
    rows = read_table(path, freeze_schema(replace(CITIES, encoding=encoding)))
    assert rows.X.tolist() == [[1, 0, 0, 1], [0, 1, 0, 2]]
    if encoding != "utf-8":
        with pytest.raises(InvalidInputError, match="not UTF-8; a schema can declare another"):
            read_table(path, freeze_schema(CITIES))


def test_utf_16_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(TEXT, encoding="utf-16")
    with pytest.raises(InvalidInputError, match=r"is UTF-16\. Save it as UTF-8"):
        read_table(tmp_path / "t.csv", freeze_schema(CITIES))
