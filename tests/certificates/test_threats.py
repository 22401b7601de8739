"""Threats say what they count, and nothing uncertified gets through."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poisonproof.certificates import (
    OBSERVED_LABELS,
    UNFORGEABLE_GROUPS,
    Threat,
    certify_votes,
    make_threat,
    parse_threat,
    resolve_threat,
)
from poisonproof.exceptions import GuaranteeError, InvalidInputError


class ByRow:
    certifies = {"insert_delete": 1, "label_flip": 1, "replace": 2}  # noqa: RUF012
    unit = "row"
    hint = {}  # noqa: RUF012


class ByGroup:
    certifies = {"insert_delete": 1, "label_flip": 1, "replace": 1}  # noqa: RUF012
    unit = "group"
    hint = {}  # noqa: RUF012


class LabelsOnly:
    certifies = {"label_flip": 1}  # noqa: RUF012
    unit = "sample"
    hint = {"insert_delete": "ByRow", "replace": "Take ByRow instead."}  # noqa: RUF012


@pytest.mark.parametrize(
    ("code", "words", "touches"),
    [
        ("insert_delete", "3 rows inserted or deleted", 1),
        ("label_flip", "3 rows relabelled", 1),
        ("replace", "3 rows changed in any way", 2),
        ("replace/group", "3 contributors changed in any way", 1),
        ("label_flip/sample", "3 samples relabelled", 1),
        ("replace/sample", "3 samples changed in any way", 2),
    ],
)
def test_a_code_becomes_words_and_partitions_touched(code, words, touches):
    threat = parse_threat(code)
    assert threat.count(3) == words
    assert threat.touches == touches
    assert threat.code == code
    assert parse_threat(threat) is threat


def test_one_unit_is_written_in_the_singular_and_thousands_are_grouped():
    threat = parse_threat("insert_delete")
    assert threat.count(1) == "1 row inserted or deleted"
    assert threat.count(0) == "0 rows inserted or deleted"
    assert threat.count(12345) == "12,345 rows inserted or deleted"
    assert threat.clause(1) == "1 row is inserted or deleted"
    assert threat.clause(1000) == "1,000 rows are inserted or deleted"


def test_groups_always_carry_the_assumption_that_identities_cannot_be_forged():
    assert parse_threat("insert_delete/group").assumptions == (UNFORGEABLE_GROUPS,)
    assert UNFORGEABLE_GROUPS in str(parse_threat("insert_delete/group"))
    assert resolve_threat("replace", ByGroup()).assumptions == (UNFORGEABLE_GROUPS,)


def test_a_threat_survives_json():
    threat = parse_threat("replace/group").assuming(OBSERVED_LABELS, OBSERVED_LABELS)
    assert threat.assumptions == (UNFORGEABLE_GROUPS, OBSERVED_LABELS)
    assert Threat.from_dict(json.loads(json.dumps(threat.to_dict()))) == threat


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"name": "replace"},
        {**make_threat("replace").to_dict(), "more": 1},
        {**make_threat("replace").to_dict(), "name": "steal"},
        {**make_threat("replace").to_dict(), "unit": "column"},
        {**make_threat("replace").to_dict(), "touches": 0},
        {**make_threat("replace").to_dict(), "touches": 1.5},
        {**make_threat("replace").to_dict(), "touches": True},
        {**make_threat("replace").to_dict(), "assumptions": "one"},
        {**make_threat("replace").to_dict(), "assumptions": [1]},
        [],
    ],
)
def test_a_damaged_description_of_a_threat_is_refused(values):
    with pytest.raises(InvalidInputError):
        Threat.from_dict(values)


@pytest.mark.parametrize("bad", ["steal", "", "replace/column", "replace/", "/row", None, 3])
def test_an_unknown_threat_is_refused_with_the_allowed_ones(bad):
    with pytest.raises(InvalidInputError, match=r"insert_delete|row, sample, group"):
        parse_threat(bad)


def test_certify_votes_counts_in_the_unit_of_the_threat():
    votes = [[0] * 9]
    radius = {
        threat: int(certify_votes(votes, 2, threat).radius[0])
        for threat in ("insert_delete", "label_flip", "replace", "replace/group")
    }
    assert radius == {"insert_delete": 4, "label_flip": 4, "replace": 2, "replace/group": 4}
    custom = Threat("insert_delete", "row", touches=3)
    assert certify_votes(votes, 2, custom).radius.tolist() == [1]


def test_a_partitioner_resolves_names_in_its_own_unit():
    assert resolve_threat("replace", ByRow()) == Threat("replace", "row", 2)
    assert resolve_threat(None, ByRow()).name == "insert_delete"
    assert resolve_threat(None, LabelsOnly()) == Threat("label_flip", "sample", 1)
    assert resolve_threat("replace/group", ByGroup()).touches == 1
    asked = make_threat("label_flip", assumptions=("a",))
    assert resolve_threat(asked, ByRow(), ["b"]).assumptions == ("a", "b")


@pytest.mark.parametrize(
    ("asked", "partitioner", "message"),
    [
        ("insert_delete", LabelsOnly(), r"LabelsOnly certifies label_flip only.*Use ByRow\.$"),
        ("replace", LabelsOnly(), r"threat='replace' is not proved\. Take ByRow instead\.$"),
        (
            "replace/group",
            ByRow(),
            r"counts its certificates in rows.*contributors changed in any way",
        ),
        (make_threat("replace", "row"), ByGroup(), r"counts its certificates in contributors"),
        ("label_flip/row", LabelsOnly(), r"in samples, but rows relabelled"),
    ],
)
def test_an_uncertified_combination_raises_and_says_what_to_use(asked, partitioner, message):
    with pytest.raises(GuaranteeError, match=message):
        resolve_threat(asked, partitioner)


def test_a_threat_given_as_an_object_cannot_lower_what_the_partitioner_touches():
    weak = Threat("replace", "row", touches=1)
    assert resolve_threat(weak, ByRow()).touches == 2
    assert certify_votes(np.zeros((1, 9), int), 2, resolve_threat(weak, ByRow())).radius[0] == 2


def test_an_assumption_is_said_once() -> None:
    once = resolve_threat("replace", ByGroup(), ["labels are few"])
    assert once.assumptions.count("labels are few") == 1
    assert resolve_threat(once, ByGroup(), ["labels are few"]) == once
