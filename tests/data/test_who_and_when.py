"""Schemas that declare sources, time blocks or entities."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poisonproof.data import freeze_schema, load_schema
from poisonproof.data.schema import dump_schema, parse_schema, schema_digest, schema_values
from poisonproof.data.sources import read_entities, read_table, split_rows
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition import ContentHash, GroupHash, NamedSources, TimeBlocks

from .builders import SCHEMA, mail_rows, write_csv

COLUMNS = tuple(column for column in SCHEMA.columns if column.name not in ("land", "sent"))
OF_SOURCES = replace(
    SCHEMA, columns=COLUMNS, groups="land", partition=NamedSources(["FR", "DE"]),
    ignore=["sent", "user"], frozen="",
)  # fmt: skip
OF_TIMES = replace(
    OF_SOURCES, groups="sent", partition=TimeBlocks("2024-01-01", days=7), ignore=["land", "user"]
)
OF_ENTITIES = replace(
    OF_SOURCES, groups="user", partition=GroupHash(entities={"u1": "u2", "u3": "u2"}),
    ignore=["land", "sent"],
)  # fmt: skip
ALL = {"source": OF_SOURCES, "time": OF_TIMES, "entity": OF_ENTITIES}
SAYS: dict[str, dict[str, Any]] = {
    "source": {"by": "source", "sources": ["DE", "FR"]},
    "time": {"by": "time", "start": "2024-01-01", "days": 7},
    "entity": {"by": "entity", "entities": {"u1": "u2", "u3": "u2"}},
}


def test_a_schema_without_a_partition_keeps_its_digest() -> None:
    assert "partition" not in schema_values(SCHEMA)
    assert SCHEMA.unit == "group"
    assert SCHEMA.frozen == "4d22c3a7ebc642b614ba50f6e63a07d1679a9193fa9f24d0a678975095eaa775"


@pytest.mark.parametrize("by", ALL)
def test_a_partition_is_written_sealed_and_read(by: str, tmp_path: Path) -> None:
    file, schema = tmp_path / "s.json", freeze_schema(ALL[by])
    file.write_bytes(dump_schema(schema))
    values = json.loads(file.read_text())
    assert values["partition"] == SAYS[by]
    assert load_schema(file) == schema
    assert schema.frozen != schema_digest(replace(schema, partition=None))
    values["partition"] = {"by": "source", "sources": ["DE", "IT"]}
    with pytest.raises(GuaranteeError, match="changed after it was frozen"):
        parse_schema(values)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "source",
        {},
        {"by": "source"},
        {"by": "source", "sources": "DE"},
        {"by": "source", "sources": [1, 2]},
        {"by": "source", "sources": ["DE", "DE"]},
        {"by": "source", "sources": ["DE", "FR"], "n_partitions": 2},
        {"by": "source", "sources": ["DE", "FR"], "entities": {"a": "b"}},
        {"by": "group", "entities": {"a": "b"}},
        {"by": ["time"], "start": "2024-01-01", "days": 1},
        {"by": "time", "start": "2024-01-01"},
        {"by": "time", "start": "monday", "days": 1},
        {"by": "time", "start": "2024-01-01", "days": "1"},
        {"by": "time", "start": {}, "days": 1},
        {"by": "entity", "entities": {}},
        {"by": "entity", "entities": {"a": 1}},
        {"by": "entity", "entities": {"a": "b", "b": "c"}},
        {"by": "entity", "entities": None},
    ],
    ids=str,
)
def test_a_partition_that_says_something_else_is_refused(entry: Any) -> None:
    values = schema_values(OF_SOURCES) | {"partition": entry}
    with pytest.raises(InvalidInputError):
        parse_schema(values)


@pytest.mark.parametrize("rule", [ContentHash(), GroupHash(), "source", NamedSources([1, 2])])
def test_a_partition_belongs_to_groups_of_texts(rule: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"partition is NamedSources|are texts"):
        replace(OF_SOURCES, partition=rule)
    with pytest.raises(InvalidInputError, match="groups names the column"):
        replace(OF_SOURCES, groups=None, ignore=["sent", "user", "land"])


def test_rows_of_unknown_sources_and_times_are_rejected_alone(tmp_path: Path) -> None:
    rows = mail_rows(300)
    clean = write_csv(tmp_path / "clean.csv", rows)
    for column, strange, word in ((2, "XX", "'XX', not one of"), (4, "soon", "'soon', not a time")):
        rows[7][column], rows[9][column] = strange, ""
        dirty = write_csv(tmp_path / "dirty.csv", rows)
        schema = freeze_schema(OF_SOURCES if column == 2 else OF_TIMES)
        before, after = read_table(clean, schema), read_table(dirty, schema)
        kept = np.delete(np.arange(300), [7, 9])
        assert np.array_equal(after.X, before.X[kept])
        assert after.groups.tolist() == before.groups[kept].tolist()
        first, second = after.problems
        assert (first.place, second.place) == (9, 11)
        assert word in first.reason
        assert "the group is missing" in second.reason
        rows[7][column], rows[9][column] = mail_rows(300)[7][column], mail_rows(300)[9][column]


def test_days_and_entities_are_held_out_as_a_whole_and_sources_are_not(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "mails.csv", mail_rows(600))
    for by, schema in ALL.items():
        rows = read_table(path, freeze_schema(schema))
        side = split_rows(rows, schema)
        assert 0.1 < side.mean() < 0.4
        split = set(rows.groups[side].tolist()) & set(rows.groups[~side].tolist())
        assert split == ({"DE", "FR"} if by == "source" else set())
        assert {"source": {"DE"}, "time": {"2024-01-01"}, "entity": {"u2"}}[by] <= {*rows.groups}
        assert not {"u1", "u3", "2024-01-02"} & {*rows.groups}


def test_a_file_of_entities(tmp_path: Path) -> None:
    file = tmp_path / "owners.csv"
    file.write_bytes('\ufeffaccount,entity\nu1,u2\n\n"u,3",u2\n'.encode())
    assert read_entities(file) == GroupHash(entities={"u1": "u2", "u,3": "u2"})
    for text in ("", "account,entity\n", "a,e\nu1\n", "a,e\nu1,u2,u3\n", "a,e\nu1,\n",
                 'a,e\n"u1,u2', "a,e\nu1,u2\nu1,u3\n", "a,e\nu1,u2\nu2,u3\n"):  # fmt: skip
        file.write_text(text)
        with pytest.raises(InvalidInputError, match=r"owners\.csv"):
            read_entities(file)
    file.write_bytes(b"a,e\n\xff,u2\n")
    with pytest.raises(InvalidInputError, match=r"owners\.csv"):
        read_entities(file)
