"""A schema is used only as a human confirmed it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poisonproof.data import (
    ArrayColumn,
    DateColumn,
    ImageColumn,
    Schema,
    TextColumn,
    freeze_schema,
    load_schema,
    parse_schema,
    read_table,
)
from poisonproof.data.schema import dump_schema, schema_values
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from tests.data.builders import SCHEMA, mail_rows, write_csv

ARRAYS = Schema(
    kind="arrays", columns=(ArrayColumn(name="X", shape=(8, 8)),), label="y", classes=("0", "1")
)
IMAGES = Schema(
    kind="images",
    columns=(ImageColumn(name="i", height=8, width=6),),
    label="f",
    classes=("a", "b"),
)


@pytest.mark.parametrize("schema", [SCHEMA, ARRAYS, IMAGES], ids=["table", "arrays", "images"])
def test_a_schema_survives_its_file(tmp_path: Path, schema: Schema) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(dump_schema(schema))
    assert load_schema(path, require_frozen=False) == schema
    assert parse_schema(json.loads(json.dumps(schema_values(schema)))) == schema


def test_a_proposal_reads_nothing(tmp_path: Path) -> None:
    proposal = replace(SCHEMA, frozen="")
    (tmp_path / "s.json").write_bytes(dump_schema(proposal))
    with pytest.raises(GuaranteeError, match="is a proposal"):
        load_schema(tmp_path / "s.json")
    with pytest.raises(GuaranteeError, match="is a proposal"):
        read_table(write_csv(tmp_path / "m.csv", mail_rows(5)), proposal)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", ["ham", "spam", "eggs"]),
        ("classes", ["ham", "spam"]),
        ("test_share", 0.5),
        ("groups", None),
        ("invalid_rows", "raise"),
    ],
)
def test_a_frozen_schema_that_was_changed_is_refused(
    tmp_path: Path, key: str, value: object
) -> None:
    values = schema_values(SCHEMA)
    values[key] = value
    if key == "groups":
        values["ignore"] = ["user"]
    (tmp_path / "s.json").write_text(json.dumps(values))
    with pytest.raises(GuaranteeError, match="changed after it was frozen"):
        load_schema(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "else"}, "not a schema"),
        ({"version": 2}, "version"),
        ({"extra": 1}, "extra"),
        ({"classes": ["ham"]}, "at least two"),
        ({"classes": "ham,spam"}, "classes is a list"),
        ({"label": ""}, "label is the name"),
        ({"label": "body"}, "names the column 'body' twice"),
        ({"kind": "cube"}, "kind is one of"),
        ({"test_share": 1.5}, "test_share"),
        ({"columns": []}, "at least one feature"),
        ({"columns": [{"name": "a", "type": "number", "scale": 0}]}, "scale must be above 0"),
        ({"columns": [{"name": "a", "type": "number", "missing": "zero"}]}, "missing is one of"),
        (
            {"columns": [{"name": "a", "type": "number", "center": float("inf")}]},
            "Infinity is not JSON",
        ),
        ({"columns": [{"name": "a", "type": "number", "center": True}]}, "finite number"),
        ({"columns": [{"name": "a", "type": "number", "code": "x"}]}, "key 'code' of column 'a'"),
        ({"columns": [{"name": "a", "type": "category", "categories": []}]}, "categories"),
        ({"columns": [{"name": "a", "type": "category"}]}, "categories"),
        ({"columns": [{"name": "a", "type": "text", "size": 10**9}]}, "size is an integer"),
        ({"columns": [{"name": "a", "type": "text", "encoder": "sentences"}]}, "model and digest"),
        ({"columns": [{"name": "a", "type": "date", "origin": "now"}]}, "origin is a date"),
        ({"columns": [{"name": "a", "type": "date", "missing": 3}]}, "reject or nan"),
        ({"columns": [{"name": "a", "type": "date", "scale": 0}]}, "number of days"),
        ({"columns": [{"name": "a", "type": "array", "shape": [0]}]}, "shape"),
        ({"columns": [{"name": "a", "type": "soup"}]}, "type is one of"),
        ({"columns": ["a"]}, "needs a name"),
    ],
)
def test_a_file_that_is_no_schema_is_refused_in_words(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    values = schema_values(replace(SCHEMA, frozen="")) | change
    (tmp_path / "s.json").write_text(json.dumps(values))
    with pytest.raises(InvalidInputError, match=words):
        load_schema(tmp_path / "s.json", require_frozen=False)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"[1, 2]", b"null"])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"s\.json"):
        load_schema(tmp_path / "s.json")


def test_arrays_are_read_row_by_row(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(30, 8, 8))
    X[3, 0, 0], X[4, 1, 1] = np.nan, np.inf
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(30) % 2)
    rows = read_table(tmp_path / "d.npz", freeze_schema(ARRAYS))
    assert [problem.place for problem in rows.problems] == [3, 4]
    assert rows.X.shape == (28, 64)
    pixels = replace(ARRAYS, columns=(ArrayColumn(name="X", shape=(8, 8), values="uint8"),))
    whole = np.arange(30 * 64, dtype=np.float64).reshape(30, 8, 8) % 256
    whole[7, 0, 0] = 0.5
    np.savez(tmp_path / "p.npz", X=whole, y=np.arange(30) % 2)
    rows = read_table(tmp_path / "p.npz", freeze_schema(pixels))
    assert [problem.place for problem in rows.problems] == [7]
    assert rows.X.dtype == np.uint8
    np.savez(tmp_path / "other.npz", X=whole[:, :4], y=np.arange(30) % 2)
    with pytest.raises(InvalidInputError, match="declares"):
        read_table(tmp_path / "other.npz", freeze_schema(pixels))


def test_dates_count_days_whatever_file_they_come_from(tmp_path: Path) -> None:
    schema = freeze_schema(
        Schema(
            columns=(DateColumn(name="day", origin="2020-01-01", scale=2.0, missing="2020-01-03"),),
            label="kind",
            classes=("ham", "spam"),
        )
    )
    (tmp_path / "d.csv").write_text(
        "day,kind\n2020-01-05,ham\n,ham\n2020-01-01T12:00:00,spam\n1/2/2020,ham\n"
    )
    days = [datetime(2020, 1, 5), None, datetime(2020, 1, 1, 12)]
    pq.write_table(pa.table({"day": days, "kind": ["ham", "ham", "spam"]}), tmp_path / "d.parquet")
    expected = [[2.0, 0.0], [1.0, 1.0], [0.25, 0.0]]
    for name in ("d.csv", "d.parquet"):
        assert read_table(tmp_path / name, schema).X.tolist() == expected
    (problem,) = read_table(tmp_path / "d.csv", schema).problems
    assert problem.reason == "column 'day': '1/2/2020' is not a date such as 2020-01-31"


def test_the_type_of_the_features_is_the_schema_s_choice(tmp_path: Path) -> None:
    texts = freeze_schema(
        Schema(
            columns=(TextColumn(name="body", size=32),),
            label="kind",
            classes=("ham", "spam"),
            ignore=("length", "links", "land", "sent", "user"),
        )
    )
    path = write_csv(tmp_path / "m.csv", mail_rows(20))
    assert read_table(path, texts).X.dtype == np.float32
    assert read_table(path, SCHEMA).X.dtype == np.float64
    assert read_table(path, SCHEMA).X.shape == (20, SCHEMA.n_features)
