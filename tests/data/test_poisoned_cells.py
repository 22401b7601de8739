"""A poisoned cell of any kind reaches its own row, and no other."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from poisonproof import DPAClassifier, GridClassifier, load
from poisonproof.cli._app import run
from poisonproof.data import (
    CheckedRows,
    Limits,
    freeze_schema,
    held_out_rows,
    read_table,
    split_rows,
)
from poisonproof.data.schema import dump_schema
from poisonproof.exceptions import GuaranteeError, MemberWarning
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


# A grid: a column that is rewritten in all rows reaches its own block, and no other.

GARBAGE = {
    "texts": "=1+1",
    "infinities": "-inf",
    "too large": "1e400",
    "empty": "",
    "long": "9" * (Limits().cell + 1),
    "mixed": None,
}
BLOCK_OF = {"length": 0, "links": 1, "land": 1, "body": 2, "sent": 2}
BLOCKS = [[0], ["links", 2], ["body", "sent"]]
ALONE = replace(SCHEMA, groups=None, test_share=0.0, ignore=("user",))
READ = freeze_schema(
    replace(
        ALONE,
        columns=[
            replace(c, unknown="reject") if c.type == "category" else c for c in ALONE.columns
        ],
    )
)


def rewritten(rows: list[list[str]], column: str, garbage: str) -> list[list[str]]:
    cell, changed = GARBAGE[garbage], [list(row) for row in rows]
    for number, row in enumerate(changed):
        mixed = list(filter(None, GARBAGE.values()))[number % 4]
        row[HEADER.index(column)] = mixed if cell is None else cell
    return changed


def changed_blocks(before: GridClassifier, after: GridClassifier) -> set[int]:
    pairs = zip(before.ensemble_.digests(), after.ensemble_.digests(), strict=True)
    k = before.partitioner_.k
    return {index // k for index, (old, new) in enumerate(pairs) if old != new}


def in_memory(rows: list[list[str]], door: str, folder: Path) -> Any:
    table = {name: list(cells) for name, cells in zip(HEADER, zip(*rows, strict=True), strict=True)}
    if door == "frame":
        return pd.DataFrame({name: pd.Series(c, dtype=object) for name, c in table.items()})
    if door == "dicts":
        return pd.DataFrame(table).to_dict("records")
    write = {"csv": write_csv, "parquet": write_parquet}[door]
    return read_table(write(folder / f"rows.{door}", rows), READ, allow_missing="cells")


@pytest.mark.parametrize("door", ["csv", "parquet", "frame", "dicts"])
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("column", ["links", "land", "sent", "body"])
def test_a_rewritten_column_reaches_its_block_alone(
    tmp_path: Path, clean_rows: list[list[str]], column: str, garbage: str, door: str
) -> None:
    few, fitted = clean_rows[:150], []
    for rows in (few, rewritten(few, column, garbage)):
        found = in_memory(rows, door, tmp_path)
        model = GridClassifier(GaussianNB(), 4, BLOCKS, "features", schema=READ)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MemberWarning)
            fitted.append(model.fit(found))
    assert changed_blocks(*fitted) == {BLOCK_OF[column]}
    assert fitted[1].n_dropped_ == 0
    sizes = fitted[1].partition_sizes_.reshape(3, 4).sum(axis=1).tolist()
    del sizes[BLOCK_OF[column]]
    assert sizes == [150, 150]
    votes = fitted[0].grid_votes(in_memory(clean_rows[150:200], door, tmp_path))
    bad = rewritten(clean_rows[150:200], column, garbage)
    shown = fitted[0].grid_votes(in_memory(bad, door, tmp_path))
    others = [block for block in range(3) if block != BLOCK_OF[column]]
    assert np.array_equal(votes[:, :, others], shown[:, :, others])


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("schema", [True, False])
def test_from_the_command_line_too(
    tmp_path: Path, clean_rows: list[list[str]], garbage: str, schema: bool
) -> None:
    few, fitted = clean_rows[:150], []
    options = ["--schema", tmp_path / "s.json"]
    (tmp_path / "s.json").write_bytes(dump_schema(READ))
    header, keep = HEADER, range(len(HEADER))
    if not schema:
        options = ["--label", "kind", "--classes", "spam,ham"]
        keep = [0, 1, 6]
        header = [HEADER[place] for place in keep]
    for name, rows in {"clean": few, "dirty": rewritten(few, "links", garbage)}.items():
        cells = [[row[place] for place in keep] for row in rows]
        data = write_csv(tmp_path / f"{name}.csv", cells, header)
        words = ["train", data, *options, "--method", "grid", "--blocks", 5 if schema else 2]
        words += ["--outer", "features", "-k", 4, "--model", "naive-bayes", "--no-self-check"]
        assert run([str(word) for word in (*words, "--out", tmp_path / name)]) == 0
        fitted.append(load(tmp_path / name))
    columns = [c.name for c in READ.columns] if schema else ["length", "links"]
    width = [c.n_features for c in READ.columns] if schema else [1, 1]
    place = sum(width[: columns.index("links")])
    (block,) = np.flatnonzero((fitted[0].partitioner_.blocks.columns == place).any(axis=1))
    assert changed_blocks(*fitted) == {block}
    for command in ("certify", "predict", "audit"):
        data = [] if command == "audit" else [tmp_path / "dirty.csv", "--label", "kind"]
        assert run([str(word) for word in (command, tmp_path / "clean", *data)]) == 0


@pytest.mark.parametrize("cell", [np.inf, np.nan, None, "text", 10**400, object()])
def test_arrays_and_sparse_rows_lose_a_block_alone(cell: object) -> None:
    X = np.random.default_rng(0).integers(0, 9, (120, 6)).astype(float)
    y = (X.sum(axis=1) > 24).astype(int)
    dirty = X.astype(object)
    dirty[:, 2] = cell
    containers = [dirty, dirty.tolist(), pd.DataFrame(dirty)]
    if isinstance(cell, float):
        containers += [dirty.astype(float), sparse.csr_array(dirty.astype(float))]
    for found in containers:
        clean = sparse.csr_array(X) if sparse.issparse(found) else X
        member = LinearSVC() if sparse.issparse(found) else GaussianNB()
        model = GridClassifier(member, 3, [[0, 1], [2], [3, 4, 5]], "features", classes=[0, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MemberWarning)
            before, after = clone(model).fit(clean, y), clone(model).fit(found, y)
        assert changed_blocks(before, after) == {1}
        votes, shown = before.grid_votes(clean), before.grid_votes(found)
        assert np.array_equal(votes[:, :, [0, 2]], shown[:, :, [0, 2]])
        assert (shown[:, :, 1] == -1).all()


def test_a_number_that_would_keep_training_from_ending_costs_its_block() -> None:
    X = np.random.default_rng(0).normal(size=(90, 4))
    y = (X.sum(axis=1) > 0).astype(int)
    dirty = X.copy()
    dirty[:, 3] = 1e300
    model = GridClassifier(LinearSVC(), 3, [[0, 1], [2, 3]], "features", classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemberWarning)
        assert changed_blocks(clone(model).fit(X, y), clone(model).fit(dirty, y)) == {1}


def test_rows_held_out_by_their_content_are_refused_where_columns_may_change() -> None:
    schema = freeze_schema(replace(ALONE, test_share=0.2))
    model = GridClassifier(GaussianNB(), 4, BLOCKS, "features", schema=schema)
    with pytest.raises(GuaranteeError, match="test_share=0"):
        model.fit(pd.DataFrame(mail_rows(50), columns=HEADER))


def test_what_concerns_a_whole_row_still_costs_the_row(tmp_path: Path) -> None:
    rows = mail_rows(60)
    rows[7][HEADER.index("kind")] = "eggs"
    rows[9][HEADER.index("links")] = "many"
    rows.insert(20, ["1", "2"])
    found = read_table(write_csv(tmp_path / "m.csv", rows), READ, allow_missing="cells")
    assert [problem.place for problem in found.problems] == [9, 22]
    assert len(found) == 59
    widths = np.cumsum([column.n_features for column in READ.columns])
    assert np.flatnonzero(np.isnan(found.X[8])).tolist() == list(range(widths[0], widths[1]))
