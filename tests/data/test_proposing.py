"""A proposal is a draft that one strange row does not turn, and that says what it saw."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poisonproof.data import freeze_schema, read_table
from poisonproof.data.proposing import Proposal, ProposalOptions, propose_arrays, propose_table
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
