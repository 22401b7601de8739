"""A poisoned cell of any kind reaches its own row, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

from poisonproof import DPAClassifier
from poisonproof.data import CheckedRows, held_out_rows, read_table, split_rows
from poisonproof.partition import ContentHash
from tests.data.builders import HEADER, SCHEMA, mail_rows, write_csv, write_parquet

ROW = 123
K = 20

POISONS = {
    "text in a number": ("links", "many", "rejected"),
    "formula in a number": ("links", "=1+1", "rejected"),
    "empty number that is rejected": ("links", "", "rejected"),
    "empty number that is filled": ("length", "", "kept"),
    "number too large": ("length", "1e400", "rejected"),
    "minus infinity": ("length", "-inf", "rejected"),
    "new category": ("land", "XX", "kept"),
    "empty category": ("land", "", "rejected"),
    "script in a text": ("body", "<script>alert(1)</script>", "kept"),
    "empty text": ("body", "", "rejected"),
    "no date": ("sent", "yesterday", "rejected"),
    "impossible date": ("sent", "2024-02-31", "rejected"),
    "date of another zone": ("sent", "2024-02-28T23:00:00+14:00", "kept"),
    "empty date": ("sent", "", "kept"),
    "new label": ("kind", "eggs", "rejected"),
    "empty label": ("kind", "", "rejected"),
    "no contributor": ("user", "", "rejected"),
}


def fitted(rows: CheckedRows) -> DPAClassifier:
    names = np.array(SCHEMA.classes)
    clf = DPAClassifier(GaussianNB(), n_partitions=K, classes=names)
    return clf.fit(rows.X, names[rows.labels])


@pytest.fixture(scope="module")
def clean_rows() -> list[list[str]]:
    return mail_rows(400)


@pytest.mark.parametrize("writer", [write_csv, write_parquet], ids=["csv", "parquet"])
@pytest.mark.parametrize("poison", list(POISONS))
def test_a_poisoned_cell_touches_its_own_row_alone(
    tmp_path: Path,
    clean_rows: list[list[str]],
    writer: Callable[[Path, list[list[str]]], Path],
    poison: str,
) -> None:
    column, cell, fate = POISONS[poison]
    poisoned = [list(row) for row in clean_rows]
    poisoned[ROW][HEADER.index(column)] = cell
    suffix = "csv" if writer is write_csv else "parquet"
    clean = read_table(writer(tmp_path / f"clean.{suffix}", clean_rows), SCHEMA)
    dirty = read_table(writer(tmp_path / f"dirty.{suffix}", poisoned), SCHEMA)

    others = np.arange(len(clean_rows)) != ROW
    kept = others if fate == "rejected" else np.ones(len(clean_rows), dtype=bool)
    assert len(clean) == len(clean_rows)
    assert dirty.places.tolist() == clean.places[kept].tolist()
    assert np.array_equal(dirty.X[others[kept]], clean.X[others])
    assert np.array_equal(dirty.labels[others[kept]], clean.labels[others])
    assert [problem.place for problem in dirty.problems] == clean.places[~kept].tolist()

    before, after = fitted(clean), fitted(dirty)
    assign = ContentHash(n_partitions=K).assign
    touched = {int(assign(clean.X[ROW : ROW + 1])[0])}
    if fate == "kept":
        touched.add(int(assign(dirty.X[ROW : ROW + 1])[0]))
    pairs = zip(before.ensemble_.digests(), after.ensemble_.digests(), strict=True)
    changed = {index for index, (old, new) in enumerate(pairs) if old != new}
    assert changed <= touched


def test_a_line_that_is_not_utf_8_or_of_another_length_is_rejected_alone(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "m.csv", mail_rows(50))
    clean = read_table(path, SCHEMA)
    lines = path.read_bytes().splitlines(keepends=True)
    lines.insert(10, b"1,2,DE,caf\xe9,,u1,ham\n")
    lines.insert(20, b"1,2\n")
    lines.insert(30, b'1,2,DE,"never closed,,u1,ham\n')
    path.write_bytes(b"".join(lines))
    dirty = read_table(path, SCHEMA)
    assert [problem.place for problem in dirty.problems] == [11, 21, 31]
    assert np.array_equal(dirty.X, clean.X)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cells=st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=8), max_size=8),
    place=st.integers(1, 30),
)
def test_any_line_inserted_anywhere_leaves_all_other_rows_as_they_were(
    tmp_path: Path, cells: list[str], place: int
) -> None:
    path = write_csv(tmp_path / "m.csv", mail_rows(30))
    clean = read_table(path, SCHEMA)
    lines = path.read_bytes().split(b"\n")
    lines.insert(place, ",".join(cells).encode("utf-8", "surrogatepass"))
    path.write_bytes(b"\n".join(lines))
    dirty = read_table(path, SCHEMA)
    others = dirty.places != place + 1
    assert np.array_equal(dirty.X[others], clean.X)
    assert np.array_equal(dirty.labels[others], clean.labels)
    assert dirty.groups[others].tolist() == clean.groups.tolist()
    assert np.array_equal(split_rows(dirty, SCHEMA)[others], split_rows(clean, SCHEMA))


def test_an_appended_row_moves_no_other_row_across_the_split() -> None:
    X = np.random.default_rng(0).normal(size=(1000, 5))
    before = held_out_rows(X, 0.2)
    after = held_out_rows(np.vstack([X[:500], np.full((1, 5), 7.0), X[500:]]), 0.2)
    assert np.array_equal(np.delete(after, 500), before)
    assert 0.15 < before.mean() < 0.25


def test_all_rows_of_a_contributor_fall_on_one_side(tmp_path: Path) -> None:
    rows = read_table(write_csv(tmp_path / "m.csv", mail_rows(500)), SCHEMA)
    side = split_rows(rows, SCHEMA)
    assert side.any()
    assert not side.all()
    assert not set(rows.groups[side]) & set(rows.groups[~side])


def test_the_side_of_a_row_says_nothing_about_its_partition() -> None:
    X = np.arange(20_000.0).reshape(10_000, 2)
    parts = ContentHash(n_partitions=2).assign(X)
    side = held_out_rows(X, 0.5)
    assert abs(np.corrcoef(parts, side)[0, 1]) < 0.05
