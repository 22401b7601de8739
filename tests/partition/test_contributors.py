"""Sources, time blocks and entities: who shares a partition, and what is refused."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pandas as pd
import polars as pl
import pytest

from poisonproof.estimators.loading import partitioner_from_spec
from poisonproof.exceptions import InvalidInputError
from poisonproof.partition import GroupHash, NamedSources, TimeBlocks
from poisonproof.partition.contributors import make_partitioner

SOURCES = NamedSources(["west", "north", 7])
WEEKS = TimeBlocks("2020-01-01", days=7, n_partitions=10)
OWNERS = GroupHash(n_partitions=10**6, entities={"bo": "ada", "bo2": "ada", 5: "cy"})
ALL = [SOURCES, WEEKS, OWNERS]


def places(rule, groups):
    return rule.assign(np.zeros((len(groups), 1)), groups).tolist()


def test_every_source_has_a_partition_of_its_own_in_any_order_of_the_list():
    assert NamedSources(("north", 7, "west")) == SOURCES
    assert SOURCES.n_partitions == 3
    assert sorted(places(SOURCES, ["north", "west", 7.0])) == [0, 1, 2]
    for groups in (pd.Series(["west", "north"], dtype="category"), pl.Series(["west", "north"])):
        assert places(SOURCES, groups) == places(SOURCES, ["west", "north"])


@pytest.mark.parametrize("row", ["east", "7", 7.5, ("west", "north"), b"west"], ids=repr)
def test_a_row_of_an_undeclared_source_has_no_partition(row):
    with pytest.raises(InvalidInputError, match=r"Row 1 has the group .* sources 7, 'north'"):
        places(SOURCES, ["north", row])
    assert SOURCES.placeable([0, 0, 0], ["north", row, "west"]).tolist() == [True, False, True]
    assert SOURCES.units(["north", row]) == ["north", None]


def test_a_day_is_one_partition_whatever_writes_its_times():
    days = TimeBlocks("2020-01-01", n_partitions=5)
    noon = datetime(2020, 1, 9, 12)
    ahead = noon.replace(tzinfo=timezone(timedelta(hours=10)))
    for groups in (
        ["2020-01-09", "2020-01-09T23:59:59.9", " 2020-01-10T01:00+02:00 "],
        [date(2020, 1, 9), noon, ahead],
        np.array(["2020-01-09", "2020-01-09T05:00"], dtype="M8[ns]"),
        pd.Series(pd.date_range("2020-01-09", periods=3, freq="3h")),
        pl.Series([date(2020, 1, 9)]),
    ):
        assert set(places(days, groups)) == {8 % 5}
        assert set(days.units(groups)) == {"2020-01-09"}


def test_blocks_wrap_round_after_and_before_the_start():
    starts = [date(2020, 1, 1) + timedelta(days=7 * j) for j in range(-12, 13)]
    assert places(WEEKS, starts) == [j % 10 for j in range(-12, 13)]
    assert places(WEEKS, [d + timedelta(days=6) for d in starts]) == places(WEEKS, starts)


def test_a_block_may_begin_at_midnight_of_another_zone():
    days = TimeBlocks("2020-01-01T00:00-05:00", n_partitions=9)
    assert days.start == "2020-01-01 05:00:00"
    assert places(days, ["2020-01-02T04:59:59Z", "2020-01-02T05:00Z"]) == [0, 1]


@pytest.mark.parametrize("time", ["yesterday", "", 20200101, 1.5e9, "0001-01-01T00:00+09:00"])
def test_what_is_no_time_has_no_partition(time):
    assert WEEKS.placeable([0, 0], ["2020-01-01", time]).tolist() == [True, False]


def test_the_accounts_of_an_entity_share_a_partition_and_others_stand_alone():
    plain = GroupHash(n_partitions=10**6)
    names = ["ada", "bo", "bo2", "dee", (1, "a")]
    ada, bo, bo2, *others = places(OWNERS, names)
    assert ada == bo == bo2
    assert others == places(plain, names[3:])
    assert places(OWNERS, [5, 5.0, np.int64(5)]) == [places(plain, ["cy"])[0]] * 3
    assert places(OWNERS, np.array([5, 6])) == [places(plain, ["cy"])[0], places(plain, [6])[0]]
    assert OWNERS.units(["bo", "x"]) == ["ada", "x"]


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
def test_a_unit_given_as_a_group_goes_where_its_groups_go(rule):
    groups = {
        "source": ["north", 7, "west"],
        "time": [f"20{year}-03-{day}T10:00" for year in (19, 20, 31) for day in range(10, 31)],
        "group": ["bo", "ada", "x", "bo2", 5],
    }[rule.name]
    units = rule.units(groups)
    assert places(rule, units) == places(rule, groups)
    assert rule.units(units) == units


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
@pytest.mark.parametrize("missing", [None, float("nan"), pd.NaT], ids=str)
def test_a_row_without_a_group_is_named(rule, missing):
    with pytest.raises(InvalidInputError, match="Row 0 has no group"):
        places(rule, [missing])


def test_units_and_threats():
    days = TimeBlocks("2020-01-01", n_partitions=2)
    units = [rule.unit for rule in (SOURCES, days, WEEKS, OWNERS, GroupHash(n_partitions=2))]
    assert units == ["source", "day", "block", "entity", "group"]
    for rule in (*ALL, days):
        assert dict(rule.certifies) == {"replace": 1, "insert_delete": 1, "label_flip": 1}


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
def test_saved_specs_come_back(rule):
    saved = json.loads(json.dumps(rule.spec()))
    found = partitioner_from_spec(saved)
    assert found == rule
    assert found.unit == rule.unit


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (SOURCES, {"sources": ["west", "north", 7]}),  # not as it is written
        (SOURCES, {"sources": ["a", "b"]}),  # not three
        (SOURCES, {"sources": "abc"}),
        (SOURCES, {"sources": {"a": 1, "b": 2, "c": 3}}),
        (SOURCES, {"n_partitions": 2}),
        (SOURCES, {"entities": [["a", "b"]]}),
        (WEEKS, {"start": "2020-01-01T00:00"}),
        (WEEKS, {"start": None}),
        (WEEKS, {"start": ["2020-01-01"]}),
        (WEEKS, {"days": True}),
        (WEEKS, {"days": 0}),
        (WEEKS, {"days": 10**9}),
        (WEEKS, {"days": 1.0}),
        (OWNERS, {"entities": {"bo": "ada"}}),
        (OWNERS, {"entities": [["bo", "ada", "cy"]]}),
        (OWNERS, {"entities": [["bo", "ada"], ["ada", "cy"]]}),
        (OWNERS, {"entities": []}),
        (OWNERS, {"sources": ["a", "b"]}),
    ],
    ids=str,
)
def test_specs_that_no_partitioner_wrote_are_refused(rule, change):
    with pytest.raises(InvalidInputError, match="A saved partitioner is one of"):
        partitioner_from_spec(json.loads(json.dumps(rule.spec())) | change)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (NamedSources, "takes the names of 2 to"),
        (lambda: NamedSources("ab"), "takes the names of 2 to"),
        (lambda: NamedSources(["a", "a"]), "each of them once"),
        (lambda: NamedSources([1, True]), "each of them once"),
        (lambda: NamedSources(["a", ""]), "Names are texts or integers"),
        (lambda: NamedSources(["a", 0.5]), "Names are texts or integers"),
        (lambda: NamedSources(3), "Names are texts or integers"),
        (lambda: NamedSources(["a", "b"], n_partitions=3), "there are 2 sources"),
        (lambda: make_partitioner(NamedSources(["a", "b"]), 50), "makes 2 partitions. Leave"),
        (TimeBlocks, "needs the time at which a block begins"),
        (lambda: TimeBlocks("monday"), "needs the time at which a block begins"),
        (lambda: TimeBlocks(2020), "needs the time at which a block begins"),
        (lambda: TimeBlocks("2020-01-01", days=0.5), "days is an integer from 1"),
        (lambda: GroupHash(entities={}), "maps 1 to"),
        (lambda: GroupHash(entities="ab"), "maps 1 to"),
        (lambda: GroupHash(entities=7), "maps 1 to"),
        (lambda: GroupHash(entities={"a": None}), "all of them texts or integers"),
        (lambda: GroupHash(entities=[("a", "b"), ("a", "c")]), "'a' to 'b', but 'a' to 'c'"),
        (lambda: GroupHash(entities={"a": "b", "b": "c"}), "'a' to 'b', but 'b' to 'c'"),
    ],
)
def test_what_cannot_be_declared_is_refused_in_words(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()
