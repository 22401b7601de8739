"""A proposal is a draft that one strange row does not turn, and that says what it saw."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poisonproof.data import freeze_schema, read_table
from poisonproof.data.proposing import (
    Proposal,
    ProposalOptions,
    Seen,
    propose_arrays,
    propose_seen,
    propose_table,
)
from poisonproof.exceptions import InvalidInputError


def propose(path: Path, contents: str, **options: object) -> Proposal:
    path.write_text(contents)
    return propose_table(path, ProposalOptions(label="y", **options))


def test_columns_are_drafted_by_what_most_cells_hold(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["id,size,gap,flag,note,token,blank,y"]
    for i in range(100):
        gap = "" if i % 10 == 0 else f"{rng.normal():.3f}"
        token = f"{rng.integers(10**12):x}"
        flag = "yes" if i % 2 else "no"
        note = f"a longer note {token}"
        lines.append(f"{i},{rng.integers(50)},{gap},{flag},{note},{token},,{i % 2}")
    proposal = propose(tmp_path / "t.csv", "\n".join(lines))
    kinds = {column.name: column.type for column in proposal.schema.columns}
    assert kinds == {"size": "number", "gap": "number", "flag": "category", "note": "text"}
    assert proposal.schema.ignore == ("id", "token", "blank")
    missing = {column.name: column.to_json()["missing"] for column in proposal.schema.columns}
    assert missing["size"] == "reject"
    assert isinstance(missing["gap"], float)
    assert "counts the rows" in proposal.notes["id"]
    assert not proposal.schema.frozen


def test_a_tampered_row_number_is_still_no_feature(tmp_path: Path) -> None:
    numbers = [*range(300), 7, 10**9]
    text = "id,a,y\n" + "".join(f"{number},{i % 9},{i % 2}\n" for i, number in enumerate(numbers))
    assert propose(tmp_path / "t.csv", text).schema.ignore == ("id",)


def test_dates_are_proposed_as_dates_in_csv_and_parquet(tmp_path: Path) -> None:
    days = [datetime(2020 + i % 4, 1 + i % 12, 1) for i in range(120)]
    text = "day,y\n" + "".join(f"{day.date()},{i % 2}\n" for i, day in enumerate(days))
    drafts = [propose(tmp_path / "t.csv", text.replace("2020-01-01", "someday", 1))]
    table = pa.table({"day": [None, *days[1:]], "y": [i % 2 for i in range(120)]})
    pq.write_table(table, tmp_path / "t.parquet")
    drafts.append(propose_table(tmp_path / "t.parquet", ProposalOptions(label="y")))
    columns = [draft.schema.columns[0] for draft in drafts]
    assert [column.type for column in columns] == ["date", "date"]
    assert columns[0].to_json()["missing"] == "reject"
    assert columns[1].to_json()["missing"] == columns[1].to_json()["origin"]
    assert drafts[0].notes["day"] == "2020-01-01 to 2023-12-01; 0 missing; 1 cell is not a date"
    assert "1 missing" in drafts[1].notes["day"]


@pytest.mark.parametrize(
    "cell",
    ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "9999-12-31T23:59:59.999999"],
)
def test_a_moment_at_the_end_of_the_calendar_does_not_stop_the_draft(
    tmp_path: Path, cell: str
) -> None:
    text = "day,y\n" + "".join(f"2024-0{i % 9 + 1}-11,{i % 2}\n" for i in range(60))
    clean = propose(tmp_path / "t.csv", text).schema.columns[0]
    drafted = propose(tmp_path / "t.csv", f"{text}{cell},1\n")
    assert drafted.schema.columns[0] == clean
    assert ("0001-01-01" if cell < "1" else "9999-12-31") in drafted.notes["day"]


@pytest.mark.parametrize("cell", ["1e308", "-1.7e308", "1e400", "nan"])
def test_a_number_that_is_hardly_one_does_not_stop_the_draft(tmp_path: Path, cell: str) -> None:
    text = "a,b,y\n" + "".join(f"5,{i % 9},{i % 2}\n" for i in range(60))
    clean = propose(tmp_path / "t.csv", text).schema
    assert propose(tmp_path / "t.csv", f"{text}{cell},4,1\n").schema == clean


def test_the_user_s_word_goes_before_the_rows(tmp_path: Path) -> None:
    text = "a,b,y\n" + "1,2,ham\n2,3,spam\n" * 20
    proposal = propose(
        tmp_path / "t.csv", text, text=("a",), ignore=("b",), classes=("spam", "ham", "eggs")
    )
    assert [column.type for column in proposal.schema.columns] == ["text"]
    assert proposal.schema.ignore == ("b",)
    assert proposal.schema.classes == ("spam", "ham", "eggs")


@pytest.mark.parametrize(("name", "mark"), [("t.csv", ";"), ("t.csv", "\t"), ("t.tsv", "|")])
def test_another_separator_is_proposed_and_told(tmp_path: Path, name: str, mark: str) -> None:
    text = "a;b, c;y\n" + "1;2;ham\n2;3;spam\n" * 20
    proposal = propose(tmp_path / name, text.replace(";", mark))
    assert proposal.schema.delimiter == mark
    assert [column.name for column in proposal.schema.columns] == ["a", "b, c"]
    assert "Cells are separated by" in proposal.warnings[0]
    frozen = freeze_schema(proposal.schema)
    assert len(read_table(tmp_path / name, frozen)) == 40
    with pytest.raises(InvalidInputError, match="has no column"):
        read_table(tmp_path / name, replace(frozen, delimiter=""))


def test_the_usual_separator_goes_before_others(tmp_path: Path) -> None:
    text = "a;b,y\n" + "1;2,ham\n2;3,spam\n" * 20
    schema = propose(tmp_path / "t.csv", text).schema
    assert (schema.delimiter, [column.name for column in schema.columns]) == ("", ["a;b"])


def test_lines_that_are_no_rows_are_counted(tmp_path: Path) -> None:
    text = 'a,y\n1,ham\n2,spam\n"a text\nover lines",ham\n3,4,5\n"one, text",ham\n'
    text += "5,spam\n" * 9
    proposal = propose(tmp_path / "t.csv", text)
    assert (proposal.n_rows, proposal.n_broken) == (12, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,y\n", "no rows to look at"),
        ("a,b\n1,2\n", "no column 'y'"),
        ("a,a,y\n1,2,3\n", "more than one column named 'a'"),
        ("a,y\n1,ham\n2,ham\n", "fewer than two different labels"),
        ("a,y\n" + "".join(f"1,l{i}\n" for i in range(1500)), "it is not a label"),
        ("y\nham\nspam\n", "at least one feature"),
    ],
)
def test_what_cannot_be_drafted_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        propose(tmp_path / "t.csv", text)


def test_arrays_are_drafted_by_shape_and_kind(tmp_path: Path) -> None:
    y = np.arange(20) % 3
    np.savez(tmp_path / "i.npz", X=np.zeros((20, 4, 4), dtype=np.uint8), y=y)
    np.savez(tmp_path / "f.npz", X=np.full((20, 4), np.nan), y=y.astype(float))
    options = ProposalOptions(label="y")
    images = propose_arrays(tmp_path / "i.npz", options, "X").schema
    assert images.columns[0].to_json() == {
        "name": "X", "type": "array", "shape": [4, 4], "values": "uint8", "missing": "reject",
    }  # fmt: skip
    floats = propose_arrays(tmp_path / "f.npz", options, "X").schema
    assert floats.columns[0].to_json()["missing"] == "nan"
    assert images.classes == floats.classes == ("0", "1", "2")
    np.savez(tmp_path / "t.npz", X=np.array([["a"], ["b"]]), y=[0, 1])
    with pytest.raises(InvalidInputError, match="samples are numbers"):
        propose_arrays(tmp_path / "t.npz", options, "X")


def test_rows_from_all_over_a_file_are_looked_at(tmp_path: Path) -> None:
    n = 30_000
    y = ["ham" if i < 20_000 else "spam" for i in range(n)]
    lines = "".join(f"{i // 3},{y[i]}\n" for i in range(n))
    drafts = [propose(tmp_path / "t.csv", "a,y\n" + lines) for _ in range(2)]
    pq.write_table(
        pa.table({"a": [i // 3 for i in range(n)], "y": y}),
        tmp_path / "t.parquet",
        row_group_size=999,
    )
    drafts += [propose_table(tmp_path / "t.parquet", ProposalOptions(label="y"))] * 2
    assert drafts[0] == drafts[1]
    for draft in drafts:
        assert (draft.n_rows, draft.n_total) == (10_000, n)
        assert draft.label_counts["spam"] == pytest.approx(3333, abs=300)
        center = draft.schema.columns[0].to_json()["center"]
        assert center == pytest.approx(5000, rel=0.05)


def test_equal_rows_are_looked_at_each_by_itself(tmp_path: Path) -> None:
    text = "a,b,y\n" + "1,2,ham\n" * 15_000 + "7,8,spam\n" * 15_000
    counts = propose(tmp_path / "t.csv", text).label_counts
    assert counts["spam"] == pytest.approx(5000, abs=300)


def test_a_wide_or_long_line_costs_no_memory(tmp_path: Path) -> None:
    text = "a,y\n" + "1,ham\n2,spam\n" * 9 + '"' + "x" * 2**23 + "\n" + "2,ham\n" * 9
    draft = propose(tmp_path / "t.csv", text)
    assert (draft.n_rows, draft.n_broken) == (27, 1)


@pytest.mark.parametrize(
    ("values", "center", "scale"),
    [
        ([0, 1] * 50, 0, 1),
        ([0] * 90 + [1] * 10, 0, 1),
        ([1, 2] * 50, 1, 1),
        ([2013] * 100, 2013, 1),
        ([0] * 80 + [1] * 10 + [2] * 10, 0, 1.5),
        ([0] * 80 + [3] * 17 + [10**9] * 3, 0, 3),
        ([10.0, 12, 14, 16, 18] * 20 + [10**12, 10**15], 14, 4),
        ([1013.25, 1008, 1017, 1020, 1005] * 20, 1013, 9),
        ([math.exp(i / 20) for i in range(100)], 12, 38),
    ],
    ids=["bool", "few", "two", "one", "zeros", "zeros and giants", "giants", "far", "skewed"],
)
def test_centres_and_scales_suit_the_values(
    tmp_path: Path, values: list[float], center: float, scale: float
) -> None:
    text = "a,y\n" + "".join(f"{value},{i % 2}\n" for i, value in enumerate(values))
    found = propose(tmp_path / "t.csv", text).schema.columns[0].to_json()
    assert found["center"] == pytest.approx(center, rel=0.1)
    assert found["scale"] == pytest.approx(scale, rel=0.1)


def test_what_is_named_goes_before_what_is_seen(tmp_path: Path) -> None:
    text = "zip,when,n,note,y\n" + "".join(
        f"{10000 + i % 7},2020{i % 9 + 1:02}11,{i % 5},word{i},{i % 2}\n" for i in range(99)
    )
    draft = propose(
        tmp_path / "t.csv",
        text,
        category=("zip",),
        date=("when",),
        ignore=("n",),
        text=("note",),
        parts=("month", "weekday"),
    )
    kinds = {column.name: column.type for column in draft.schema.columns}
    assert kinds == {"zip": "category", "when": "date", "note": "text"}
    assert draft.schema.ignore == ("n",)
    assert draft.schema.columns[1].to_json()["parts"] == ["month", "weekday"]
    assert len(draft.schema.columns[0].to_json()["categories"]) == 7
    for options, words in (
        ({"date": ("n",)}, "--date n: none of its cells is a date"),
        ({"date": ("zip",), "text": ("zip",)}, "'zip' is named twice"),
        ({"category": ("zap",)}, "no column 'zap'"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            propose(tmp_path / "t.csv", text, **options)


def test_numbers_and_dates_of_people_are_understood(tmp_path: Path) -> None:
    rows = [
        f'"${1000 + i:,}.50",{i / 7:.1f} %,{i % 12 + 1}/{i % 28 + 1}/2020,"{i},5",{i % 2}'
        for i in range(200)
    ]
    draft = propose(tmp_path / "t.csv", "price,share,day,comma,y\n" + "\n".join(rows))
    price, share, day, comma = (column.to_json() for column in draft.schema.columns)
    assert (price["unit"], price["format"]) == ("$", "1,234.5")
    assert (share["unit"], share.get("format", "")) == ("%", "")
    assert day["format"] == "%m/%d/%Y"
    assert comma["format"] == "1234,5"
    rows = read_table(tmp_path / "t.csv", freeze_schema(draft.schema))
    assert len(rows) == 200


def test_days_and_months_that_could_be_swapped_are_pointed_out(tmp_path: Path) -> None:
    text = "day,y\n" + "".join(f"0{i % 9 + 1}/0{i % 7 + 1}/2020,{i % 2}\n" for i in range(99))
    assert "day first: format %d/%m/%Y" in propose(tmp_path / "t.csv", text).notes["day"]


def test_texts_for_missing_values_are_proposed_where_they_stand_among_numbers(
    tmp_path: Path,
) -> None:
    rows = [f"{'NA' if i % 2 else i},{'NA' if i % 3 else 'EU'},{'ab'[i % 2]}" for i in range(99)]
    draft = propose(tmp_path / "t.csv", "a,b,y\n" + "\n".join(rows) + "\nNA,NA,NA\nNA,EU,NA\n")
    assert draft.schema.missing_texts == ("NA",)
    assert draft.schema.classes == ("NA", "a", "b")
    assert draft.schema.columns[0].to_json()["missing"] == 49.0
    once = propose(
        tmp_path / "t.csv", "a,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(99)) + "?,1\n"
    )
    assert once.schema.missing_texts == ()


@pytest.mark.parametrize(("encoding", "found"), [("latin-1", "cp1252"), ("utf-8", "utf-8")])
def test_another_encoding_is_proposed_and_told(tmp_path: Path, encoding: str, found: str) -> None:
    text = "ort,y\n" + "".join(f"{['Köln', 'München', 'Bonn'][i % 3]},{i % 2}\n" for i in range(99))
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    draft = propose_table(tmp_path / "t.csv", ProposalOptions(label="y"))
    assert draft.schema.encoding == found
    assert draft.schema.columns[0].to_json()["categories"] == ["Bonn", "Köln", "München"]
    told = [line for line in draft.warnings if "66 of 99 lines are not UTF-8" in line]
    assert len(told) == (encoding == "latin-1")
    assert len(read_table(tmp_path / "t.csv", freeze_schema(draft.schema))) == 99


def test_a_header_of_other_bytes_is_read_and_told(tmp_path: Path) -> None:
    text = "größe,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(5000))
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    draft = propose_table(tmp_path / "t.csv", ProposalOptions(label="y"))
    assert (
        "The header is not UTF-8. The schema declares cp1252, by which 'größe'" in draft.warnings[0]
    )
    assert draft.schema.columns[0].name == "größe"


def test_bytes_that_no_encoding_has_stop_no_draft(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,y\n" + b"\x81\x8d,1\n" * 9 + b"b,0\n" * 9)
    draft = propose_table(tmp_path / "t.csv", ProposalOptions(label="y", classes=("0", "1")))
    assert (draft.n_rows, draft.n_broken) == (9, 9)


def test_one_line_of_other_bytes_does_not_turn_the_encoding(tmp_path: Path) -> None:
    text = "ort,y\n" + "".join(f"{['Köln', 'Bonn'][i % 2]},{i % 2}\n" for i in range(99))
    (tmp_path / "t.csv").write_bytes(text.encode() + b"K\xf6ln,1\n" * 3)
    draft = propose_table(tmp_path / "t.csv", ProposalOptions(label="y"))
    assert (draft.schema.encoding, draft.n_broken) == ("utf-8", 3)
    assert "3 of 102 lines are not UTF-8 and would be left out" in draft.warnings[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,y\n" + "1,\n2,ham\n3,spam\n4,\n5,\n6,\n" * 9, "36 of 54 .36 x column 'y' is missing"),
        ("a,y\n" + "1,2,3\n1,ham\n2,4,5\n2,spam\n7,7,7\n" * 9, "27 of 45 .27 x no row"),
    ],
)
def test_a_schema_that_leaves_out_half_of_the_rows_says_so_first(
    tmp_path: Path, text: str, words: str
) -> None:
    assert re.search(f"More than half.*{words}", propose(tmp_path / "t.csv", text).warnings[0])


def test_a_continuous_label_is_pointed_out(tmp_path: Path) -> None:
    text = "a,y\n" + "".join(f"{i % 9},{i * 0.37:.2f}\n" for i in range(400))
    assert (
        "400 different numbers: that is regression" in propose(tmp_path / "t.csv", text).warnings[0]
    )
    grades = "a,y\n" + "".join(f"{i % 9},{i % 10}\n" for i in range(400))
    assert propose(tmp_path / "t.csv", grades).warnings == ()
    text = "a,y\n" + "".join(f"{i % 9},{i * 0.37:.2f}\n" for i in range(1500))
    with pytest.raises(InvalidInputError, match="1,500 different numbers: that is regression"):
        propose(tmp_path / "t.csv", text)


def test_rows_that_were_seen_elsewhere_are_drafted_alike(tmp_path: Path) -> None:
    text = "a,b,y\n" + "1,x,ham\n2,y,spam\n" * 20
    drafted = propose(tmp_path / "t.csv", text)
    seen = Seen({"a": ["1", "2"] * 20, "b": ["x", "y"] * 20, "y": ["ham", "spam"] * 20}, 40)
    assert propose_seen(seen, ProposalOptions(label="y"), "The frame").schema == drafted.schema
