"""In a grid a changed row reaches its own cells alone, and a changed feature its own block."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

import poisonproof
from poisonproof import GridClassifier, TorchLearner
from poisonproof.data import (
    CategoryColumn,
    DateColumn,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
)
from poisonproof.data.columns import ArrayColumn, ImageColumn
from poisonproof.data.sources import DataSource, read_table
from poisonproof.estimators import fit_stream
from poisonproof.estimators.loading import _check_agreement, partitioner_from_spec
from poisonproof.exceptions import GuaranteeError, InvalidInputError, StoreError
from poisonproof.members.closed_form import KernelRidgeClassifier, RidgeClassifier
from poisonproof.partition import Blocks, ContentHash, NamedSources
from poisonproof.store.manifest import ModelReader

from .data import data
from .grid_campaign import MODES, GridCampaign, scenarios

pytestmark = [
    pytest.mark.filterwarnings("ignore::poisonproof.exceptions.MemberWarning"),
    pytest.mark.filterwarnings("ignore:X (has|does not have) (valid )?feature names:UserWarning"),
]

Rows = tuple[Any, Any]


@dataclass(frozen=True)
class Case:
    """A grid on a training set; `sees` says which columns (words) belong to each block."""

    name: str
    classifier: Any
    dataset: str

    def make(self, **parameters: Any) -> Any:
        return clone(self.classifier).set_params(classes=list(self.data[3]), **parameters)

    @property
    def data(self) -> tuple[Any, Any, Any, Any]:
        if self.dataset == "texts":
            return _texts()
        found = data(self.dataset)
        return found.X, found.y, found.X_test, found.classes

    def __str__(self) -> str:
        return self.name


@cache
def _texts() -> tuple[Any, Any, Any, Any]:
    rng, y = np.random.default_rng(0), np.arange(420) % 3
    shared, own = [f"w{i}" for i in range(40)], [[f"{c}{i}" for i in range(12)] for c in "abc"]
    texts = [" ".join([*rng.choice(shared, 8), *rng.choice(own[label], 4)]) for label in y]
    return texts[:360], y[:360], texts[360:], [0, 1, 2]


def grid(estimator: Any, k: int, blocks: Any, outer: str = "features", **options: Any) -> Any:
    return GridClassifier(estimator, k, blocks, outer, **options)


_LIGHTGBM = LGBMClassifier(n_estimators=2, min_child_samples=2, verbose=-1, n_jobs=2)
_MLP = TorchLearner("mlp", hidden=(16,), epochs=2, stack_width=4)
_WORDS = make_pipeline(TfidfVectorizer(), MultinomialNB())
_THIRDS = [list(range(9)), list(range(10, 18)), list(range(20, 30))]

CASES = [
    Case("tree-columns", grid(DecisionTreeClassifier(), 6, "columns:8", "rows"), "digits"),
    Case("naive-bayes-lattice", grid(GaussianNB(), 6, "lattice:4"), "integers"),
    Case("default-columns", grid(None, 6, "columns:5"), "cancer"),
    Case("default-rows", grid(None, 6, "columns:5", "rows"), "cancer"),
    Case("kernel-lattice", grid(KernelRidgeClassifier("cosine"), 20, "lattice:16"), "images"),
    Case("ridge-bands", grid(RidgeClassifier(), 8, "bands:7"), "images"),
    Case("mlp-pixels", grid(_MLP, 5, "pixels:4"), "digits"),
    Case("lightgbm-declared", grid(_LIGHTGBM, 5, _THIRDS), "cancer"),
    Case(
        "logistic-regression",
        grid(LogisticRegression(solver="liblinear"), 5, "columns:5"),
        "cancer",
    ),
    Case("words", grid(_WORDS, 5, "words:3"), "texts"),
    Case("words-rows", grid(_WORDS, 5, "words:3", "rows"), "texts"),
    Case("pairs-of-words", grid(_WORDS, 5, "words:3:2"), "texts"),
]
NUMBERS = [case for case in CASES if case.dataset != "texts"]
OUTSIDE = [case for case in NUMBERS if case.classifier.outer == "features"]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_table = pytest.mark.parametrize("case", NUMBERS, ids=str)
every_outer_features = pytest.mark.parametrize("case", OUTSIDE, ids=str)


@cache
def fitted(name: str) -> Any:
    case = next(case for case in CASES if case.name == name)
    return case.make().fit(*case.data[:2])


def by_cell(classifier: Any, X: Any) -> Any:
    """Return the votes of cells in the order of their numbers, shape (n, B * k)."""
    votes = classifier.grid_votes(X)
    return votes.transpose(0, 2, 1).reshape(len(votes), -1)


def changed_cells(before: Any, after: Any, X_test: Any) -> set[int]:
    """Return the cells whose digest or votes differ."""
    digests = np.array(before.ensemble_.digests()) != np.array(after.ensemble_.digests())
    votes = (by_cell(before, X_test) != by_cell(after, X_test)).any(axis=0)
    return set(np.flatnonzero(digests | votes).tolist())


def touched_cells(classifier: Any, X: Any) -> set[int]:
    """Return the cells that rows fall into, found without the classifier's own code."""
    rule = classifier.partitioner_
    k, blocks = rule.k, rule.blocks
    whole = ContentHash(n_partitions=k)
    found = set()
    for block in range(blocks.n_blocks):
        if rule.outer == "rows":
            places = whole.assign(X)
        elif blocks.kind == "words":
            places = whole.assign([blocks.split([text])[block][0] for text in X])
        else:
            chosen = blocks.columns[block]
            part = np.array(X, dtype=float)[:, chosen]
            part[:, chosen < 0] = 0
            places = whole.assign(part)
        found |= {block * k + int(place) for place in places}
    return found


def forged(case: Case, count: int, seed: int) -> Rows:
    """Return rows to insert: near copies, and some whose cells no training row has."""
    X, _, _, classes = case.data
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, count)
    picked = rng.integers(0, len(X), count)
    if case.dataset == "texts":
        return [f"{X[row]} trigger{seed} w{row % 40}" for row in picked], labels
    rows = np.asarray(X)[picked].astype(float)
    rows[:, rng.integers(0, rows.shape[1], 3)] += rng.integers(1, 9, (count, 3))
    rows[0] = rng.choice([-1e300, 1e15, 0.5, 2.0**60], rows.shape[1])
    return rows, labels


def joined(X: Any, more: Any) -> Any:
    return [*X, *more] if isinstance(X, list) else np.concatenate([X, more])


def without(X: Any, rows: Sequence[int]) -> Any:
    kept = [row for row in range(len(X)) if row not in set(rows)]
    return [X[row] for row in kept] if isinstance(X, list) else np.asarray(X)[kept]


@every_case
@pytest.mark.parametrize("seed", [1, 2])
def test_inserted_and_deleted_rows_change_the_cells_they_fall_into(case: Case, seed: int) -> None:
    (X, y, X_test, _), clean = case.data, fitted(case.name)
    rng = np.random.default_rng(seed)
    new, labels = forged(case, 2, seed)
    gone = rng.choice(len(y), 2, replace=False).tolist()
    removed = [X[row] for row in gone]
    after = case.make().fit(joined(without(X, gone), new), np.append(np.delete(y, gone), labels))
    touched = touched_cells(clean, new) | touched_cells(clean, removed)
    changed = changed_cells(clean, after, X_test)
    assert changed
    assert changed <= touched
    assert len(touched) <= 4 * clean.partitioner_.blocks.n_blocks


def _columns(classifier: Any, block: int) -> Any:
    chosen = classifier.partitioner_.blocks.columns[block]
    return chosen[chosen >= 0]


class Unreadable:
    """A cell of no known type."""


ODD_CELLS: dict[str, Any] = {
    "missing": np.nan,
    "infinite": np.inf,
    "beyond liblinear": 1e16,
    "beyond float32": 1e300,
    "text": "garbage",
    "number as text": "12",
    "integer beyond float64": 10**400,
    "object": Unreadable(),
    "nothing": None,
}


_SLOW = {"kernel-lattice", "ridge-bands", "mlp-pixels"}
_REWRITTEN = [
    pytest.param(case, odd, id=f"{case}-{odd}")
    for case in OUTSIDE
    for odd in (["infinite", "text"] if case.name in _SLOW else ODD_CELLS)
]


@pytest.mark.parametrize(("case", "odd"), _REWRITTEN)
def test_a_block_rewritten_in_all_rows_changes_its_members_alone(case: Case, odd: str) -> None:
    (X, y, X_test, _), clean = case.data, fitted(case.name)
    block = len(odd) % clean.partitioner_.blocks.n_blocks
    cell = ODD_CELLS[odd]
    rewritten = np.asarray(X).astype(float if isinstance(cell, float) else object)
    rewritten[:, _columns(clean, block)] = cell
    after = case.make(invalid_rows="drop").fit(rewritten, y)
    k = clean.partitioner_.k
    assert after.n_dropped_ == 0
    assert {number // k for number in changed_cells(clean, after, X_test)} == {block}


@every_outer_features
def test_some_features_rewritten_in_all_rows_change_their_blocks_alone(case: Case) -> None:
    (X, y, X_test, _), clean = case.data, fitted(case.name)
    rng = np.random.default_rng(3)
    columns = rng.choice(_columns(clean, 0), 2)
    rewritten = np.array(X, dtype=float)
    rewritten[:, columns] = rng.integers(0, 99, (len(y), 2)) * 1.5
    after = case.make().fit(rewritten, y)
    k = clean.partitioner_.k
    assert {number // k for number in changed_cells(clean, after, X_test)} == {0}


def test_words_rewritten_in_all_texts_change_their_block_alone() -> None:
    case = next(case for case in CASES if case.name == "words")
    (X, y, X_test, _), clean = case.data, fitted(case.name)
    blocks = clean.partitioner_.blocks
    word = "a3"
    block = next(j for j, seen in enumerate(blocks.split([word])) if seen[0])
    inside = [w for w in map("trigger{}".format, range(99)) if blocks.split([w])[block][0]]
    rewritten = [f"{inside[i % 9]} {text.replace(word, '')}" for i, text in enumerate(X)]
    after = case.make().fit(rewritten, y)
    k = clean.partitioner_.k
    assert {number // k for number in changed_cells(clean, after, X_test)} == {block}


@every_table
@pytest.mark.parametrize("odd", ODD_CELLS)
def test_a_cell_of_a_test_row_costs_the_votes_of_its_block(case: Case, odd: str) -> None:
    (_, _, X_test, _), clean = case.data, fitted(case.name)
    grids, column = clean.partitioner_.blocks, int(_columns(clean, 1)[0])
    asked = np.asarray(X_test[:20]).astype(object)
    asked[3, column] = ODD_CELLS[odd]
    before, after = clean.grid_votes(X_test[:20]), clean.grid_votes(asked)
    others = np.delete(np.arange(grids.n_blocks), 1)
    assert np.array_equal(before[:, :, others], after[:, :, others])
    assert np.array_equal(np.delete(before, 3, axis=0), np.delete(after, 3, axis=0))
    alone = clean.grid_votes(asked[3:4].tolist())
    assert np.array_equal(alone[0], after[3])


@pytest.mark.parametrize("case", [c for c in CASES if c.dataset == "texts"], ids=str)
def test_a_replaced_word_costs_the_votes_of_two_blocks(case: Case) -> None:
    (_, _, X_test, _), clean = case.data, fitted(case.name)
    n, before = clean.partitioner_.blocks.ngram, clean.grid_votes(X_test[:20])
    for row, text in enumerate(X_test[:20]):
        words = text.split()
        after = clean.grid_votes([" ".join(["trigger", *words[1:]])])[0]
        assert (before[row] != after).any(axis=0).sum() <= 2
        after = clean.grid_votes([" ".join([words[0], "trigger", *words[1:]])])[0]
        assert (before[row] != after).any(axis=0).sum() <= 2 * n - 1


def test_what_is_no_text_has_no_words() -> None:
    case = next(case for case in CASES if case.name == "words")
    (X, y, X_test, _), clean = case.data, fitted(case.name)
    empty = clean.grid_votes([X_test[0], ""])
    for cell in (None, np.nan, 3, b"a3", Unreadable()):
        assert np.array_equal(clean.grid_votes([X_test[0], cell]), empty)
        after = case.make().fit([*X, cell], np.append(y, 1))
        assert changed_cells(clean, after, X_test) <= touched_cells(clean, [""])


# Row order, containers and workers.


def _containers(X: Any) -> dict[str, Any]:
    names = [f"c{j}" for j in range(X.shape[1])]
    return {
        "float64": X.astype(float),
        "objects": X.astype(object),
        "list": X.tolist(),
        "rows": list(X),
        "frame": pd.DataFrame(X, columns=names),
        "mixed frame": pd.DataFrame(X, columns=names).astype({"c0": object, "c1": "Float64"}),
    }


@every_table
def test_containers_row_order_and_workers_change_nothing(case: Case) -> None:
    (X, y, X_test, _), clean = case.data, fitted(case.name)
    containers = list(_containers(X))
    order = np.random.default_rng(0).permutation(len(y))
    name = containers[len(case.name) % len(containers)]
    shuffled = case.make(n_jobs=2).fit(_containers(np.asarray(X)[order])[name], y[order])
    assert clean.ensemble_.digests() == shuffled.ensemble_.digests()
    expected = clean.grid_votes(X_test)
    for asked in _containers(X_test).values():
        assert np.array_equal(clean.grid_votes(asked), expected)


@every_outer_features
def test_frames_give_their_cells_one_by_one(case: Case) -> None:
    (X, y, X_test, _), clean = case.data, fitted(case.name)
    frame = pd.DataFrame(X).astype(object)
    column = int(_columns(clean, 0)[0])
    frame[column] = pd.Series([f"{cell:g}" for cell in frame[column]], dtype=object)
    before = case.make().fit(frame, y)
    more = pd.concat([frame, pd.DataFrame(X[:1]).astype(object)], ignore_index=True)
    after = case.make().fit(more, np.append(y, y[0]))
    assert changed_cells(before, after, X_test) <= touched_cells(clean, X[:1])
    k = clean.partitioner_.k
    assert {number // k for number in changed_cells(clean, before, X_test)} <= {0}


def test_sparse_rows_keep_to_their_blocks() -> None:
    case = CASES[8]
    X, y, X_test, _ = case.data

    def make() -> Any:
        return case.make(invalid_rows="drop")

    clean = make().fit(sparse.csr_matrix(X), y)
    for cell in (np.nan, np.inf, 1e16, 3.0):
        rewritten = np.array(X, dtype=float)
        rewritten[:, _columns(clean, 2)] = cell
        after = make().fit(sparse.csc_matrix(rewritten), y)
        changed = changed_cells(clean, after, sparse.csr_matrix(X_test))
        assert {number // 5 for number in changed} == {2}
    asked = np.array(X_test[:9], dtype=float)
    asked[4, _columns(clean, 2)[0]] = np.inf
    votes = clean.grid_votes(sparse.csr_matrix(asked))
    assert (votes[4, :, 2] == -1).all()
    votes[4, :, 2] = clean.grid_votes(sparse.csr_matrix(X_test[4:5]))[0, :, 2]
    assert np.array_equal(votes, clean.grid_votes(sparse.csr_matrix(X_test[:9])))


@pytest.mark.parametrize("outer", ["rows", "features"])
@pytest.mark.parametrize("odd", ["a shorter row", "a text", "an integer beyond float64"])
def test_one_odd_row_does_not_change_how_others_are_read(outer: str, odd: str) -> None:
    X, y, X_test, _ = CASES[1].data
    X = np.asarray(X, dtype=object)
    X[:, 0] = [2**53 + 1 + 2 * int(cell) for cell in X[:, 0]]  # float64 rounds them
    X[5, 3], X[6, 9] = "garbage", np.nan
    row = X[:1].tolist()[0]
    row[7] = {"a text": "garbage", "an integer beyond float64": 10**400}.get(odd, 0)
    row = row[:5] if odd == "a shorter row" else row

    def make() -> Any:
        return grid(GaussianNB(), 6, "lattice:4", outer, classes=range(10), invalid_rows="drop")

    clean = make().fit(X, y)
    after = make().fit([*X.tolist(), row], np.append(y, y[0]))
    assert after.n_dropped_ == (odd == "a shorter row")
    assert len(changed_cells(clean, after, X_test)) <= (0 if after.n_dropped_ else 4)
    integers = np.array(X[10:].tolist())
    assert integers.dtype == np.int64
    plain, listed = make().fit(integers, y[10:]), make().fit(X[10:], y[10:])
    assert plain.ensemble_.digests() == listed.ensemble_.digests()


def test_a_grid_that_was_fitted_on_a_frame_is_updated_by_name() -> None:
    X, y, X_test, _ = CASES[2].data
    names = [f"c{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    clf = grid(GaussianNB(), 5, [names[:9], names[9:]], classes=[0, 1]).fit(frame[:300], y[:300])
    clf.update(add=(frame[300:], y[300:]), remove=(frame[:20], y[:20]))
    again = grid(GaussianNB(), 5, [names[:9], names[9:]], classes=[0, 1]).fit(frame[20:], y[20:])
    assert not changed_cells(again, clf, X_test)
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[names[::-1]])


# Schemas and files.


@cache
def _table() -> tuple[Any, Any]:
    X, y, _, _ = CASES[2].data
    names = [f"c{j}" for j in range(6)]
    frame = pd.DataFrame(X[:, :6], columns=names)
    frame["day"] = [f"2020-01-{1 + i % 28:02}" for i in range(len(y))]
    frame["site"] = np.where(X[:, 3] > 500, "north", "south")
    frame["note"] = np.where(X[:, 7] > 0.05, "large and odd", "small")
    frame["kind"] = np.where(y, "benign", "malignant")
    columns = (
        *(NumberColumn(name=name) for name in names),
        DateColumn(name="day"),
        CategoryColumn(
            name="site", categories=("north", "south"), unknown="reject", missing="reject"
        ),
        TextColumn(name="note", missing="reject", size=32),
    )
    schema = Schema(columns=columns, label="kind", classes=("benign", "malignant"))
    return frame, freeze_schema(schema)


@pytest.mark.parametrize("source", ["frame", "csv", "parquet"])
@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("c3", "garbage"),
        ("c3", ""),
        ("c3", "inf"),
        ("c3", "9" * 2**21),
        ("day", "some day"),
        ("site", "west"),
        ("note", None),
        ("note", "long " * 2**19),
    ],
    ids=lambda value: str(value)[:9],
)
def test_a_column_of_a_file_that_does_not_fit_costs_its_block(
    tmp_path: Path, source: str, name: str, cell: Any
) -> None:
    frame, schema = _table()
    rewritten = frame[:60].astype(object)
    rewritten[name] = cell if source == "frame" or len(str(cell)) < 99 else [cell] + [""] * 59
    declared = [[c.name] for c in schema.columns]

    def make() -> Any:
        return grid(GaussianNB(), 3, declared, schema=schema)

    clean = make().fit(frame[:60])
    rows: Any = rewritten
    if source == "csv":
        rewritten.to_csv(tmp_path / "rows.csv", index=False)
        rows = read_table(tmp_path / "rows.csv", schema, allow_missing="cells")
    elif source == "parquet":
        rewritten.astype({name: "string"}).to_parquet(tmp_path / "rows.parquet")
        rows = read_table(tmp_path / "rows.parquet", schema, allow_missing="cells")
    after = make().fit(rows)
    changed = changed_cells(clean, after, frame[60:])
    assert after.n_dropped_ == 0
    assert {declared[number // 3][0] for number in changed} == {name}


def test_a_test_row_that_does_not_fit_loses_one_block() -> None:
    frame, schema = _table()
    clean = grid(GaussianNB(), 3, "columns:3", schema=schema).fit(frame[:200])
    asked = frame[200:230].astype(object)
    before = clean.grid_votes(asked)
    asked.loc[asked.index[4], "c3"] = "garbage"
    changed = (clean.grid_votes(asked) != before).any(axis=1)
    assert changed.sum() == changed[4].sum() == 1


def test_rows_held_out_by_their_content_are_refused_where_features_are_rewritten() -> None:
    frame, schema = _table()
    held_out = freeze_schema(replace(schema, test_share=0.2))
    grid(GaussianNB(), 3, "columns:3", "rows", schema=held_out).fit(frame)
    with pytest.raises(GuaranteeError, match="holds out rows"):
        grid(GaussianNB(), 3, "columns:3", schema=held_out).fit(frame)


def test_maps_across_blocks_and_streams_are_refused(tmp_path: Path) -> None:
    column = ImageColumn(name="image", height=8, width=8, gray=True, encoder="orientations")
    schema = freeze_schema(Schema(kind="images", columns=(column,), classes=("0", "1")))
    with pytest.raises(GuaranteeError, match="several blocks"):
        grid(GaussianNB(), 3, "lattice:4", schema=schema).fit(np.zeros((4, 8, 8), np.uint8), "0101")
    frame, schema = _table()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(InvalidInputError, match="fit_stream trains"):
        fit_stream(
            grid(GaussianNB(), 3, "columns:3", schema=schema),
            tmp_path / "model",
            DataSource(tmp_path / "rows.csv", schema),
        )


@pytest.mark.parametrize("first", [False, True], ids=["channels last", "channels first"])
def test_all_channels_of_a_pixel_are_in_one_block(first: bool) -> None:
    images = np.random.default_rng(0).integers(0, 255, (60, 6, 8, 3))
    X = np.moveaxis(images, 3, 1) if first else images
    clean = grid(GaussianNB(), 3, "lattice:4", classes=[0, 1]).fit(X, np.arange(60) % 2)
    blocks = clean.partitioner_.blocks
    for row, column in [(0, 0), (3, 5), (5, 7)]:
        other = images[:1].copy()
        other[0, row, column] = 255 - other[0, row, column]
        other = np.moveaxis(other, 3, 1) if first else other
        pairs = zip(blocks.split(X[:1]), blocks.split(other), strict=True)
        assert sum(not np.array_equal(a, b) for a, b in pairs) == 1
    assert blocks == Blocks(n_blocks=4, kind="lattice", image_shape=(6, 8, 3), channels_first=first)
    assert blocks.touched_by_patch(1) == 1
    shape = (3, 6, 8) if first else (6, 8, 3)
    schema = Schema(columns=[ArrayColumn(name="X", shape=shape)], classes=("0", "1"), kind="arrays")
    read = grid(GaussianNB(), 3, "lattice:4", schema=freeze_schema(schema))
    assert read.fit(X, np.array(["0", "1"] * 30)).partitioner_.blocks == blocks


# Stored models and updates.


@pytest.mark.parametrize("rule", ["content", "group", "source"])
@pytest.mark.parametrize("outer", ["rows", "features"])
@pytest.mark.parametrize("estimator", [GaussianNB(), None], ids=["naive-bayes", "default"])
def test_saving_loading_and_updating_equal_a_fit(
    tmp_path: Path, estimator: Any, outer: str, rule: str
) -> None:
    X, y, X_test, classes = CASES[2].data
    X, y = X[:200].copy(), y[:200]
    X[3, 4], X[7], X[9, ::2] = np.nan, np.nan, np.nan
    X, y = np.concatenate([X, X[:10], X[:1]]), np.concatenate([y, y[:10], y[:1]])
    weight = 1 + np.arange(len(y)) % 3.0 if rule == "content" else None
    sources = [f"source {i}" for i in range(7)]
    groups = None if rule == "content" else np.array(sources, dtype=object)[np.arange(len(y)) % 7]
    partitioner: Any = NamedSources(sources) if rule == "source" else rule
    k = None if rule == "source" else 6

    def make() -> Any:
        return grid(estimator, k, "columns:5", outer, classes=classes, partitioner=partitioner)

    def some(rows: Any) -> tuple[Any, ...]:
        return (
            X[rows],
            y[rows],
            None if groups is None else groups[rows],
            None if weight is None else weight[rows],
        )

    everything = np.arange(len(y))
    gone = np.array([3, 7, 9, 11, 200, 210])  # missing cells, and copies of rows that stay
    clean = make().fit(*some(everything))
    clean.save(tmp_path / "model", keep_data=True)
    loaded = poisonproof.load(tmp_path / "model")
    assert not changed_cells(clean, loaded, X_test)
    loaded.update(remove=some(gone))
    smaller = make().fit(*some(np.delete(everything, gone)))
    assert not changed_cells(smaller, loaded, X_test)
    assert smaller.partition_digests_ == loaded.partition_digests_
    if outer == "rows" or groups is not None:
        k = clean.partitioner_.k
        places = clean.partitioner_.assign(X[gone], None if groups is None else groups[gone])
        again = {retrained.member % k for retrained in loaded.receipt_.retrained}
        assert again <= set(places.tolist())
    loaded.update(add=some(gone))
    assert not changed_cells(clean, loaded, X_test)
    assert clean.partition_digests_ == loaded.partition_digests_


@pytest.mark.slow
@pytest.mark.mnist
@pytest.mark.parametrize("outer", ["rows", "features"])
def test_a_grid_of_realistic_shape_keeps_to_its_cells(outer: str) -> None:
    if "POISONPROOF_DATA" not in os.environ:
        pytest.skip("POISONPROOF_DATA names no folder with mnist.npz")
    with np.load(Path(os.environ["POISONPROOF_DATA"]) / "mnist.npz") as file:
        X, y, asked = file["x_train"][:12_000], file["y_train"][:12_000], file["x_test"][:200]

    def make() -> Any:
        return grid(KernelRidgeClassifier("cosine"), 20, "lattice:16", outer, classes=range(10))

    clean, rng = make().fit(X, y), np.random.default_rng(0)
    largest = int(np.argmax(clean.partition_sizes_))
    home = clean.partitioner_.assign(X)
    crowd = X[home == largest % 20][:40] if outer == "rows" else X[:40]
    crowd = np.where(rng.random(crowd.shape) < 0.02, 255 - crowd, crowd)
    after = make().fit(np.concatenate([crowd, X]), np.append(rng.integers(0, 10, len(crowd)), y))
    touched = touched_cells(clean, crowd.reshape(len(crowd), -1))
    assert changed_cells(clean, after, asked) <= touched
    one = np.concatenate([X, crowd[:1]])
    after = make().fit(one, np.append(y, 3))
    assert len(changed_cells(clean, after, asked)) == 16
    if outer == "features":
        rewritten = X.reshape(len(X), -1).copy()
        rewritten[:, _columns(clean, 5)] = 7
        after = make().fit(rewritten.reshape(X.shape), y)
        assert {cell // 20 for cell in changed_cells(clean, after, asked)} == {5}


# Attacks on rows and features at once: `make attacks` runs 2,000.


def test_attacks_on_the_staircase_turn_nothing_and_one_step_more_succeeds() -> None:
    quick = [scenario for scenario in scenarios() if scenario.member != "network"]
    trials = list(GridCampaign(quick, seed=20240501).run(2 * len(quick)))
    assert not [trial.number for trial in trials if trial.broken]
    assert not [trial.number for trial in trials if trial.turned and "beyond" not in trial.step]
    assert not [trial.number for trial in trials if trial.leaked]
    assert {trial.mode for trial in trials} == set(MODES)
    assert sum(min(trial.size) > 0 for trial in trials) > len(trials) / 3
    assert sum(trial.certified for trial in trials) > 10 * len(trials)
    assert sum(trial.turned for trial in trials) >= 3


def test_the_committed_campaign_broke_nothing() -> None:
    root = Path(__file__).parents[2]
    found = json.loads((root / "benchmarks/results/grid_attacks.json").read_text())
    assert found["attacks"] >= 2000
    assert found["broken_trials"] == found["leaked_trials"] == []
    for step in ("one row beyond", "one block beyond"):
        assert 0 < found["by_step"][step]["turned"] < found["by_step"][step]["attacks"]


@pytest.mark.parametrize(
    "changed",
    [{"image_shape": [10**6, 10**6]}, {"kind": "columns", "widths": [2**40]}],
    ids=["a large image", "a wide column"],
)
def test_a_stored_grid_of_other_rows_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    X, y, *_ = CASES[1].data
    grid(GaussianNB(), 3, "lattice:4", classes=range(10)).fit(X, y).save(tmp_path / "model")
    model, reader = poisonproof.load(tmp_path / "model"), ModelReader.open(tmp_path / "model")
    _check_agreement(reader, model)
    spec = json.loads(json.dumps(model.partitioner_.spec()))
    assert partitioner_from_spec(spec) == model.partitioner_
    model.partitioner_ = partitioner_from_spec({**spec, "blocks": {**spec["blocks"], **changed}})
    with pytest.raises(StoreError, match="the blocks are of"):
        _check_agreement(reader, model)


@pytest.mark.parametrize(
    "changed",
    [
        {"image_shape": None},
        {"image_shape": (8, -8)},
        {"kind": "columns"},
        {"kind": "columns", "widths": (1,) * 64, "declared": ((0,), (1,), (2,), (99,))},
        {"kind": "columns", "widths": (1,) * 64, "declared": ((0,), (1,), (2,), (2,))},
    ],
)
def test_blocks_that_are_none_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Blocks(**{"n_blocks": 4, "kind": "lattice", "image_shape": (8, 8), **changed})
