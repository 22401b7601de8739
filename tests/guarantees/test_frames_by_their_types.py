"""Mixed frames without a schema: no row decides what another one becomes, and threats say so."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import poisonproof
from poisonproof import DPAClassifier, NeighborVoteClassifier
from poisonproof.certificates.threats import OBSERVED_LABELS, OBSERVED_TYPES
from poisonproof.data import (
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
)
from poisonproof.data.frames import typed_schema
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError

from .checks import changed_members

JOBS = pd.CategoricalDtype(["cook", "smith"])
N, K = 2000, 20


def people(n: int = N, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    days = rng.integers(0, 900, n) + 300 * y
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "income": rng.normal(size=n) + y,
            "job": pd.Categorical(np.where(rng.random(n) < 0.8, y, 1 - y), categories=[0, 1])
            .rename_categories(["cook", "smith"])
            .astype(JOBS),
            "member": rng.random(n) < 0.5,
            "joined": pd.to_datetime("2020-01-01") + pd.to_timedelta(days, unit="D"),
            "town": pd.Series(rng.choice(["Rome", "Oslo", "Bonn"], n), dtype="string"),
        }
    )
    return table, y


def with_row(table: pd.DataFrame, **cells: object) -> pd.DataFrame:
    """Add a copy of the first row with other cells, as pandas joins frames."""
    row = pd.DataFrame({name: [cells.get(name, table[name].iloc[0])] for name in table})
    kept = {name: table.dtypes[name] for name in table if name not in cells}
    return pd.concat([table, row.astype(kept)], ignore_index=True)


SCHEMA = freeze_schema(
    Schema(
        columns=(
            NumberColumn(name="age", missing="nan"),
            NumberColumn(name="income", missing=0.0),
            CategoryColumn(name="job", categories=("cook", "smith")),
            NumberColumn(name="member", missing="nan"),
            DateColumn(name="joined", missing="nan"),
            TextColumn(name="town", size=32),
        )
    )
)
INSERTED = {
    "a new category": ({"job": "king"}, True),
    "a missing number": ({"age": None}, True),
    "a missing truth value": ({"member": None}, True),
    "a text among numbers": ({"age": "old"}, False),
    "an object among dates": ({"joined": object()}, False),
    "a number among texts": ({"town": 7}, True),
    "a long integer": ({"age": 2**70}, True),
    "infinity": ({"income": np.inf}, False),
}


@pytest.mark.parametrize("change", INSERTED)
@pytest.mark.parametrize("name", ["dpa", "neighbors"])
def test_by_a_schema_a_strange_row_reaches_one_member(change, name):
    table, y = people()
    cells, fits = INSERTED[change]
    poisoned = with_row(table, **cells)
    given = {"schema": SCHEMA, "classes": [0, 1], "invalid_rows": "drop"}
    if name == "neighbors":
        clean = NeighborVoteClassifier(threshold=0.5, **given)
        filled = [
            replace(column, missing="2020-01-01" if column.name == "joined" else 0.0)
            if isinstance(column, (NumberColumn, DateColumn))
            else column
            for column in SCHEMA.columns
        ]
        clean.set_params(schema=freeze_schema(Schema(columns=filled)))
    else:
        clean = DPAClassifier(n_partitions=K, **given)
    after = type(clean)(**clean.get_params()).fit(poisoned, [*y, 1])
    clean.fit(table, y)
    assert after.n_dropped_ == (not fits)
    if name == "neighbors":
        moved = after.counts(table[:200]) - clean.counts(table[:200])
        assert np.abs(moved).sum(axis=1).max() <= fits
        return
    touched = np.flatnonzero(after.partition_sizes_ != clean.partition_sizes_)
    assert len(touched) == fits
    assert changed_members(clean, after, table[:200]) <= set(touched.tolist())
    assert clean.votes(table[:200]).max() == 1


AS_THEY_COME = {
    "a missing number turns integers into floats": ({"age": np.nan}, 1, True),
    "a text turns numbers into objects": ({"age": "old"}, 1, False),
    "a missing truth value turns them into objects": ({"member": None}, 1, True),
    "a category that nobody declared is missing": ({"job": "king"}, 1, True),
    "another label": ({"age": 20}, 7, False),
}


@pytest.mark.parametrize("change", AS_THEY_COME)
def test_without_a_schema_a_strange_row_reaches_one_member(change):
    table, y = people()
    cells, label, fits = AS_THEY_COME[change]
    poisoned = with_row(table, **cells)
    known = poisoned["job"].isin(JOBS.categories)
    poisoned["job"] = poisoned["job"].where(known).astype(JOBS)
    clean, after = (
        DPAClassifier(n_partitions=K, classes=[0, 1], invalid_rows="drop").fit(*rows)
        for rows in ((table, y), (poisoned, [*y, label]))
    )
    assert after.schema_ == clean.schema_
    touched = np.flatnonzero(after.partition_sizes_ != clean.partition_sizes_)
    assert len(touched) == fits == 1 - after.n_dropped_
    assert changed_members(clean, after, table[:200]) <= set(touched.tolist())


def test_types_of_a_frame_are_an_assumption_of_the_threat(tmp_path):
    table, y = people()
    for clf in (DPAClassifier(n_partitions=5), NeighborVoteClassifier(threshold=0.5)):
        clf.fit(table, y)
        assert {OBSERVED_LABELS, OBSERVED_TYPES} <= set(clf.certify(table[:9]).threat.assumptions)
        clf.set_params(classes=[0, 1]).fit(table, y).save(tmp_path / "m", overwrite=True)
        loaded = poisonproof.load(tmp_path / "m")
        assert loaded.certify(table[:9]).threat.assumptions == (OBSERVED_TYPES,)
        with pytest.raises(GuaranteeError, match="Declare them: schema="):
            loaded.certify(table[:9], require_declared=True)
        assert np.array_equal(loaded.predict(table), clf.predict(table))
    assert clf.set_params(schema=SCHEMA, invalid_rows="raise").get_params()["schema"] is SCHEMA


@pytest.mark.parametrize("name", ["dpa", "neighbors"])
def test_that_a_frame_holds_numbers_alone_is_an_assumption_too(name, tmp_path):
    """A text in a column that is empty otherwise changes its type, and with it every member."""
    table, y = people()
    clf = DPAClassifier(n_partitions=K, classes=[0, 1])
    if name == "neighbors":
        clf = NeighborVoteClassifier(threshold=0.5, classes=[0, 1])
    columns = ["age", "income"] if name == "neighbors" else ["age", "income", "notes"]
    written = table.assign(notes=None)[columns].to_csv(index=False)
    numbers = pd.read_csv(StringIO(written))
    clf.fit(numbers, y)
    assert clf.schema_ is None
    assert clf.certify(numbers[:9]).threat.assumptions == (OBSERVED_TYPES,)
    clf.save(tmp_path / "m")
    loaded = poisonproof.load(tmp_path / "m")
    assert loaded.certify(numbers[:9]).threat.assumptions == (OBSERVED_TYPES,)
    with pytest.raises(GuaranteeError, match="to_numpy"):
        loaded.certify(numbers[:9], require_declared=True)
    array = clf.fit(numbers.to_numpy(dtype=float), y)
    assert array.certify(array_of(numbers[:9]), require_declared=True).threat.assumptions == ()
    if name == "dpa":
        poisoned = pd.read_csv(StringIO(written + "33,0.5,hello\n"), dtype={"notes": "string"})
        after = clone(clf).fit(poisoned, [*y, 1])
        assert len(changed_members(clone(clf).fit(numbers, y), after, poisoned[:50])) == K


def array_of(frame: pd.DataFrame) -> np.ndarray:
    return frame.to_numpy(dtype=float)


def test_new_rows_are_read_by_name_and_by_the_types_of_training():
    table, y = people()
    clf = DPAClassifier(n_partitions=5, classes=[0, 1]).fit(table, y)
    assert clf.score(table, y) > 0.85
    new = table[:50]
    expected = clf.votes(new)
    for other in (
        new[list(new)[::-1]],
        new.astype(object),
        new.astype({"job": "string", "age": float, "member": "boolean"}),
        new.astype({"job": pd.CategoricalDtype(["smith", "cook", "king"])}),
        new.to_dict("records"),
    ):
        assert np.array_equal(clf.votes(other), expected)
    unknown = new.assign(job="king")
    assert np.array_equal(clf.votes(unknown), clf.votes(new.assign(job=None)))
    with pytest.raises(InvalidInputError, match="has no column 'town'"):
        clf.predict(new.drop(columns="town"))


def test_columns_of_objects_say_how_to_give_them_a_type():
    table, y = people()
    with pytest.raises(
        InvalidRowsError, match=r"row 0: column 'town'.*is not a number.*astype\('string'\)"
    ):
        DPAClassifier(n_partitions=5).fit(table.astype({"town": object}), y)
    with pytest.raises(InvalidInputError, match="'age' of X has the type timedelta"):
        DPAClassifier(n_partitions=5).fit(
            table.assign(age=pd.to_timedelta(table["age"], unit="D")), y
        )


def test_polars_and_arrow_have_types_of_their_own():
    table, y = people()
    kinds = {"job": pl.Enum(["cook", "smith"])}
    polars = pl.from_pandas(table.astype({"job": str})).cast(kinds)
    assert typed_schema(polars) == typed_schema(table)
    one, other = (
        DPAClassifier(n_partitions=5, classes=[0, 1]).fit(rows, y) for rows in (table, polars)
    )
    assert one.ensemble_.digests() == other.ensemble_.digests()
    arrow = DPAClassifier(n_partitions=5, classes=[0, 1]).fit(polars.to_arrow(), y)
    assert arrow.schema_.columns[2] == TextColumn(name="job", size=256)  # nobody declared it


def test_members_that_take_frames_get_the_frame():
    table, y = people()
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "town"]), ("passthrough", ["age"])
    )
    member = make_pipeline(columns, DecisionTreeClassifier(max_depth=3))
    clf = DPAClassifier(member, n_partitions=5, classes=[0, 1]).fit(table, y)
    assert clf.schema_ is None
    assert clf.score(table, y) > 0.7
