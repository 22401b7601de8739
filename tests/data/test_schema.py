"""The columns of a file mean what the user declares."""

from __future__ import annotations

from typing import Any

import pytest

from poisonproof.data import Schema, number_columns
from poisonproof.exceptions import InvalidInputError

HEADER = ["id", "b", "a", "kind", "who", "w"]


def test_features_are_the_columns_that_nothing_else_names() -> None:
    schema = Schema(label="kind", classes="ab", groups="who", weights="w", ignore=("id",))
    columns = schema.locate(HEADER, "f.csv")
    assert (columns.features, columns.label, columns.groups, columns.weights) == ((1, 2), 3, 4, 5)


def test_declared_features_keep_the_declared_order() -> None:
    schema = Schema(columns=number_columns(["a", "b"]), others="ignore")
    assert schema.locate(HEADER, "f.csv").features == (2, 1)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            Schema(label="kynd", classes="ab"),
            "no column 'kynd'. Its columns are 'id', 'b'",
        ),
        (Schema(columns=number_columns(["a", "z"])), "no column 'z'"),
        (Schema(ignore=("z",)), "no column 'z'"),
        (Schema(columns=number_columns("ab")), "columns 'id', 'kind', 'who', 'w', which the model"),
    ],
)
def test_columns_that_do_not_fit_are_named(schema: Schema, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words.replace(".", r"\.")):
        schema.locate(HEADER, "f.csv")


def test_repeated_and_nameless_columns_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="more than one column named 'a'"):
        Schema().locate(["a", "b", "a"], "f.csv")
    with pytest.raises(InvalidInputError, match=r"Column 1 of f\.csv has no name"):
        Schema(groups="b").locate(["", "a", "b"], "f.csv")
    schema = Schema(columns=number_columns("a"), others="ignore")
    assert schema.locate(["", "a", "b"], "f.csv").features == (1,)


@pytest.mark.parametrize(
    "roles",
    [
        {"columns": number_columns("aa")},
        {"columns": number_columns("a"), "groups": "a"},
        {"groups": "kind", "weights": "kind"},
        {"groups": "kind", "ignore": ("kind",)},
    ],
)
def test_a_column_has_one_role(roles: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"names the column '\w+' twice"):
        Schema(**roles)
