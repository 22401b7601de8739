"""A label, group or text is written by its value, whatever type a file stores it in."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poisonproof.data import (
    CategoryColumn,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
    label_text,
    number_columns,
    read_table,
)
from poisonproof.data.parquet_files import arrow_texts
from poisonproof.exceptions import InvalidInputError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

MOMENTS = [datetime.datetime(2020, 1, 1), datetime.datetime(1960, 5, 5, 1, 2, 3), None]
HALVES = [0.5, -2.0, 2**-20, None]
FLAGS = [1, 0, 1, None]
WORDS = ["a", "é", "\\xff", None]

FAMILIES: dict[str, tuple[list[str | None], list[Any]]] = {
    "moments": (
        ["2020-01-01", "1960-05-05 01:02:03", None],
        [
            *(pa.array(MOMENTS, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
            pa.array(MOMENTS, pa.timestamp("ms", tz="Asia/Tokyo")),
            pa.array(MOMENTS, pa.timestamp("us", tz="+05:30")),
            pa.array(MOMENTS, pa.timestamp("us")).dictionary_encode(),
        ],
    ),
    "days": (
        ["2020-01-01", None],
        [
            pa.array([datetime.date(2020, 1, 1), None]).cast(kind)
            for kind in (pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns"))
        ],
    ),
    "numbers": (
        ["0.5", "-2", "0.00000095367431640625", None],
        [
            pa.array(HALVES),
            pa.array(HALVES, pa.float32()),
            pa.array(np.array([0.5, -2.0, 2**-20, np.nan], dtype=np.float16)),
            pa.array([None if v is None else Decimal(v) for v in HALVES], pa.decimal128(38, 22)),
            pa.array([None if v is None else Decimal(v) for v in HALVES], pa.decimal256(70, 40)),
            pa.array(["0.5", "-2", "0.00000095367431640625", ""]),
        ],
    ),
    "truth values": (
        ["1", "0", "1", None],
        [
            pa.array([True, False, True, None]),
            *(pa.array(FLAGS, kind) for kind in (pa.int8(), pa.uint64(), pa.float64())),
            pa.array([1.0, -0.0, 1.0, np.nan]),
            pa.array(FLAGS, pa.decimal128(5, 2)),
            pa.array(["1", "0", "1", None]),
        ],
    ),
    "texts": (
        ["a", "é", "\\xff", None],
        [
            *(pa.array(WORDS, kind) for kind in (pa.string(), pa.large_string())),
            pa.array(WORDS, pa.string_view()),
            pa.array(WORDS).dictionary_encode(),
            pa.array([b"a", "é".encode(), b"\xff", None]),
            pa.array([b"a", "é".encode(), b"\xff", None], pa.large_binary()),
            pa.array([b"a", "é".encode(), b"\xff", None], pa.binary_view()),
        ],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_stored_type_gives_the_same_text(tmp_path: Path, family: str) -> None:
    expected, columns = FAMILIES[family]
    schema = Schema(label="y", classes=sorted({*filter(None, expected), "x"}), groups="g")
    for column in columns:
        assert arrow_texts(pa.chunked_array([column])) == (expected, {})
        path = tmp_path / "f.parquet"
        pq.write_table(pa.table({"a": range(len(expected)), "y": column, "g": column}), path)
        rows = read_table(path, schema)
        assert rows.groups is not None
        assert rows.groups.tolist() == expected[:-1]
        assert [problem.place for problem in rows.problems] == [len(expected) - 1]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((3, 3.0, "3", b"3", np.int8(3), np.float32(3), Decimal("3.00")), "3"),
        ((True, np.True_, 1, 1.0), "1"),
        ((0.1, np.float64(0.1), Decimal("0.10")), "0.1"),
        ((1e-7, Decimal("1e-7"), "0.0000001"), "0.0000001"),
        ((1e16, 10**16, Decimal("1e16")), "10000000000000000"),
        ((2**60 + 1, np.int64(2**60 + 1)), str(2**60 + 1)),
        ((np.inf, np.float32(np.inf)), "inf"),
        (tuple(np.datetime64("2020-01-31", unit) for unit in ("D", "s", "us", "ns")), "2020-01-31"),
        ((np.datetime64("2020-01-31T00:00:00.000000001"),), "2020-01-31 00:00:00.000000001"),
        ((datetime.datetime(2020, 1, 31, 1, 0, 0, 500_000),), "2020-01-31 01:00:00.500000"),
        ((None, float("nan"), np.nan, np.datetime64("NaT"), ""), None),
    ],
)
def test_the_text_depends_on_the_value_not_on_its_type(
    values: tuple[Any, ...], text: str | None
) -> None:
    assert [label_text(value) for value in values] == [text] * len(values)


def test_a_text_is_never_taken_for_a_number() -> None:
    texts = ["1.0", "007", "1e3", "True", " 7", "nan"]
    assert [label_text(text) for text in texts] == texts


FAR = {
    "moment beyond 9999": (pa.timestamp("s"), 569_000_000_000),
    "moment before 1": (pa.timestamp("s"), -(10**12)),
    "last moment": (pa.timestamp("us"), 2**62),
    "moment in Tokyo": (pa.timestamp("s", tz="Asia/Tokyo"), 253_402_300_800),
    "moment in New York": (pa.timestamp("s", tz="America/New_York"), -62_135_596_801),
    "day beyond 9999": (pa.date32(), 10**7),
}


def far_column(case: str) -> Any:
    kind, count = FAR[case]
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.Array.from_buffers(kind, 4, pa.array([0, 1, count, 2], width).buffers())


def frozen(role: str, classes: tuple[str, ...]) -> Schema:
    number = NumberColumn(name="k")
    feature = {
        "category": CategoryColumn(name="v", categories=("q",)),
        "text": TextColumn(name="v", size=16),
    }
    return freeze_schema(
        Schema(
            columns=(number, feature[role]) if role in feature else (number,),
            label="v" if role == "label" else "y",
            classes=classes if role == "label" else ("0", "1"),
            groups="v" if role == "group" else None,
            test_share=0.0,
        )
    )


@pytest.mark.parametrize("role", ["category", "text", "group", "label"])
@pytest.mark.parametrize("case", FAR)
def test_a_value_that_no_text_stands_for_rejects_its_row_alone(
    tmp_path: Path, case: str, role: str
) -> None:
    column = far_column(case)
    classes = tuple(text for text in arrow_texts(pa.chunked_array([column]))[0] if text)
    assert len(classes) == 3
    table = {"k": [0.0, 1.0, 2.0, 3.0], "v": column}
    if role != "label":
        table["y"] = ["0", "1", "0", "1"]
    pq.write_table(pa.table(table), tmp_path / "f.parquet")
    rows = read_table(tmp_path / "f.parquet", frozen(role, classes))
    assert rows.X[:, 0].tolist() == [0.0, 1.0, 3.0]
    (problem,) = rows.problems
    assert problem.place == 2
    assert "column 'v': it is a" in problem.reason


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_bytes_that_are_no_text_touch_no_other_row(tmp_path: Path, kind: Any) -> None:
    binary = pa.array([b"x", b"caf\xe9", b"2"], pa.large_binary() if "large" in str(kind) else None)
    broken = pa.Array.from_buffers(kind, 3, binary.buffers())
    pq.write_table(
        pa.table({"a": broken, "g": broken, "y": ["0", "1", "1"]}), tmp_path / "f.parquet"
    )
    schema = freeze_schema(
        Schema(columns=number_columns("a"), label="y", classes=("0", "1"), groups="g")
    )
    rows = read_table(tmp_path / "f.parquet", schema)
    assert rows.groups is not None
    assert rows.groups.tolist() == ["2"]
    assert [problem.place for problem in rows.problems] == [0, 1]


def test_an_empty_text_is_missing_in_every_format(tmp_path: Path) -> None:
    schema = freeze_schema(
        Schema(
            columns=(CategoryColumn(name="v", categories=("q",), missing="reject"),),
            label="y",
            classes=("0", "1"),
            test_share=0.0,
        )
    )
    (tmp_path / "f.csv").write_text("v,y\nq,0\n,1\n")
    pq.write_table(pa.table({"v": ["q", ""], "y": ["0", "1"]}), tmp_path / "f.parquet")
    for name in ("f.csv", "f.parquet"):
        rows = read_table(tmp_path / name, schema)
        assert [problem.reason for problem in rows.problems] == ["column 'v' is missing"]


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["0", "1\ud800", "1"]),
        np.frombuffer(np.array([48, 0x110000, 49], dtype="<u4").tobytes(), dtype="<U1"),
    ],
    ids=["half a pair", "beyond Unicode"],
)
def test_text_that_is_not_unicode_rejects_its_row_of_an_archive_alone(
    tmp_path: Path, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "f.npz", X=np.arange(3.0)[:, None], y=labels, g=labels)
    schema = Schema(label="y", classes=("0", "1"), groups="g")
    rows = read_table(tmp_path / "f.npz", schema)
    assert rows.X.ravel().tolist() == [0.0, 2.0]
    assert [problem.place for problem in rows.problems] == [1]


def test_dates_in_an_archive_are_written_as_in_a_table(tmp_path: Path) -> None:
    for unit in ("D", "s", "ns"):
        days = np.array(["2020-01-01", "NaT", "2020-01-02"], dtype=f"M8[{unit}]")
        np.savez(tmp_path / "f.npz", X=np.arange(3.0)[:, None], y=days)
        rows = read_table(
            tmp_path / "f.npz", Schema(label="y", classes=("2020-01-01", "2020-01-02"))
        )
        assert rows.labels is not None
        assert rows.labels.tolist() == [0, 1]


def test_values_that_are_no_labels_are_refused_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", X=np.zeros((2, 1)), y=np.array([1j, 2j]))
    with pytest.raises(InvalidInputError, match=r"Array 'y' .* labels and groups are text"):
        read_table(tmp_path / "f.npz", Schema(label="y", classes=("0", "1")))
    for values in ([[1]], [datetime.timedelta(1)], [datetime.time(1)]):
        pq.write_table(pa.table({"a": [1.0], "y": values}), tmp_path / "f.parquet")
        with pytest.raises(InvalidInputError, match=r"'y' .* labels, groups and texts are text"):
            read_table(tmp_path / "f.parquet", Schema(label="y", classes=("0", "1")))


def test_a_narrow_dictionary_with_all_its_codes_taken_is_read() -> None:
    words = [f"w{i}" for i in range(128)]
    codes = pa.array([*range(128), None], pa.int8())
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array(words))])
    assert arrow_texts(column) == ([*words, None], {})
