"""What a CSV row becomes depends on that row alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from poisonproof.data import CheckedRows, Schema, read_table
from poisonproof.exceptions import InvalidInputError, InvalidRowsError

SCHEMA = Schema(label="kind", classes=("ham", "spam"))


def read(
    folder: Path,
    text: str | bytes,
    schema: Schema = SCHEMA,
    name: str = "f.csv",
    **options: bool,
) -> CheckedRows:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_table(path, schema, **options)


def test_numbers_labels_and_missing_values(tmp_path: Path) -> None:
    rows = read(tmp_path, "a,b,kind\n1,-2.5e3,ham\n,nan,spam\n 7 ,+.5,ham\n")
    expected = [[1, -2500], [np.nan, np.nan], [7, 0.5]]
    np.testing.assert_array_equal(rows.X, expected)
    assert rows.labels is not None
    assert rows.labels.tolist() == [0, 1, 0]
    assert rows.names == ("a", "b")
    assert rows.X.dtype == np.float64


def test_quotes_line_ends_blank_lines_byte_order_mark_and_tabs(tmp_path: Path) -> None:
    schema = Schema(label="the, kind", classes=('ha"m', "spam"))
    text = b'\xef\xbb\xbf"a","the, kind"\r\n"1","ha""m"\r\n\r\n2,spam'
    rows = read(tmp_path, text, schema)
    assert rows.X.tolist() == [[1.0], [2.0]]
    assert rows.labels is not None
    assert rows.labels.tolist() == [0, 1]
    tabs = read(tmp_path, "a\tkind\n1.5\tham\n", name="f.tsv")
    assert tabs.X.tolist() == [[1.5]]


def test_groups_and_weights_are_read_as_declared(tmp_path: Path) -> None:
    schema = Schema(label="kind", classes=("ham", "spam"), groups="who", weights="w")
    rows = read(tmp_path, "a,kind,who,w\n1,ham,007,0.5\n2,ham,7,2\n", schema)
    assert rows.groups is not None
    assert rows.weights is not None
    assert rows.groups.tolist() == ["007", "7"]
    assert rows.weights.tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x,1,ham,me,1", "column 'a': 'x' is not a number"),
        ("1_000,1,ham,me,1", "column 'a': '1_000' is not a number"),
        ("\u0661,1,ham,me,1", "is not a number"),
        ("1,1e400,ham,me,1", "column 'b' is infinite or too large"),
        ("1,-inf,ham,me,1", "column 'b' is infinite or too large"),
        ("1,1,eggs,me,1", "the label 'eggs' is not one of the declared classes 'ham', 'spam'"),
        ("1,1, ham,me,1", "the label ' ham' is not one of"),
        ("1,1,,me,1", "the label is missing"),
        ("1,1,ham,,1", "the group is missing"),
        ("1,1,ham,me,-1", "the weight -1.0"),
        ("1,1,ham,me,", "the weight nan"),
        ("1,1,ham,me,x", "column 'w': 'x' is not a number"),
        ("1,1,ham,me", "4 cells where the header has 5"),
        ("1,1,ham,me,1,1", "6 cells where the header has 5"),
        ('1,1,"ham,me,1', "quotes do not match within the line"),
    ],
)
def test_a_row_that_does_not_fit_is_rejected_alone(tmp_path: Path, line: str, reason: str) -> None:
    schema = Schema(label="kind", classes=("ham", "spam"), groups="who", weights="w")
    good = ["1,2,ham,me,1", "3,4,spam,you,2", "5,6,ham,me,3"]
    lines = ["a,b,kind,who,w", good[0], line, *good[1:]]
    rows = read(tmp_path, "\n".join(lines) + "\n", schema)
    assert rows.X.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert [problem.place for problem in rows.problems] == [3]
    assert reason in rows.problems[0].reason
    with pytest.raises(InvalidRowsError, match=r"f\.csv, line 3: "):
        rows.refuse_problems()


def test_bytes_that_are_no_text_spoil_their_own_line_only(tmp_path: Path) -> None:
    rows = read(tmp_path, b"a,kind\n1,ham\n2,\xff\n3,spam\n")
    assert rows.X.tolist() == [[1.0], [3.0]]
    assert "not UTF-8" in rows.problems[0].reason


def test_missing_values_are_rejected_where_members_cannot_take_them(tmp_path: Path) -> None:
    rows = read(tmp_path, "a,b,kind\n1,2,ham\n1,,ham\n", allow_missing=False)
    assert rows.X.tolist() == [[1, 2]]
    assert "column 'b' is missing" in rows.problems[0].reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n1,2\n", "is empty"),
        ("a,kind\n", "holds no rows"),
        ("a,kind\nx,ham\n", "no usable row.*line 2: column 'a': 'x' is not a number.*schema"),
    ],
)
def test_a_file_without_rows_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        read(tmp_path, text)


def test_one_strange_cell_changes_no_other_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        f"{a!r},{b},ham" for a, b in zip(rng.normal(size=500).tolist(), range(500), strict=True)
    ]
    before = read(tmp_path, "\n".join(["a,b,kind", *lines]))
    for cell in ("", "abc", "1e999", '"', "9" * 400):
        after = read(tmp_path, "\n".join(["a,b,kind", *lines[:99], f"{cell},1,ham", *lines[99:]]))
        kept = after.X[~np.isnan(after.X).any(axis=1)]
        assert kept.tobytes() == before.X.tobytes()


WORDS = (
    "1 -0.0 1.5e-7 0.1 5e-324 1e400 1e-400 nan -NaN inf Infinity +3 .5 5. 0x1 1e - nan(1) 1_0 1,2 "
    '"4" " "" a"b é NA null 9007199254740993 1d5 007'
)
CELLS = st.sampled_from([*WORDS.split(" "), "", " ", " 2", "2\t", "\r"])
FLOATS = st.floats(allow_nan=False).map(repr)
