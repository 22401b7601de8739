"""The columns of a file mean what the user declares."""

from __future__ import annotations

import pytest

from poisonproof.data import Schema
from poisonproof.exceptions import InvalidInputError

HEADER = ["id", "b", "a", "kind", "who", "w"]


def test_features_are_the_columns_that_nothing_else_names() -> None:
    schema = Schema(label="kind", groups="who", weights="w", ignore=("id",))
    columns = schema.locate(HEADER, "f.csv")
    assert (columns.features, columns.label, columns.groups, columns.weights) == ((1, 2), 3, 4, 5)


def test_declared_features_keep_the_declared_order() -> None:
    assert Schema(features=("a", "b")).locate(HEADER, "f.csv").features == (2, 1)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (Schema(label="kynd"), "f.csv has no column 'kynd'. Its columns are 'id', 'b'"),
        (Schema(features=("a", "z")), "no column 'z'"),
        (Schema(ignore=("z",)), "no column 'z'"),
        (Schema(features=("a", "a")), "'a' is declared twice"),
        (Schema(features=("a", "kind"), label="kind"), "'kind' is declared twice"),
        (Schema(features=("a", "b"), others="raise"), "columns 'id', 'kind', 'who', 'w', which"),
        (Schema(features=("a",), n_features=2), "1 features per row, but the model was trained"),
        (Schema(label="kind", groups="kind"), "must be different columns. Got 'kind', 'kind'"),
        (Schema(ignore=tuple(HEADER)), "no feature columns"),
    ],
)
def test_columns_that_do_not_fit_are_named(schema: Schema, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words.replace(".", r"\.")):
        schema.locate(HEADER, "f.csv")


def test_repeated_and_nameless_columns_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="more than one column named 'a'"):
        Schema().locate(["a", "b", "a"], "f.csv")
    with pytest.raises(InvalidInputError, match=r"Column 1 of f\.csv has no name"):
        Schema(label="b").locate(["", "a", "b"], "f.csv")
    assert Schema(features=("a",)).locate(["", "a", "b"], "f.csv").features == (1,)
