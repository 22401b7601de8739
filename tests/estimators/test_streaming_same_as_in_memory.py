"""Streamed training gives the model of in-memory training, digest by digest."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.tree import DecisionTreeClassifier

import poisonproof
from poisonproof import DPAClassifier
from poisonproof.data import (
    CategoryColumn,
    DataSource,
    DateColumn,
    ImageColumn,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
    number_columns,
    read_table,
    split_rows,
)
from poisonproof.estimators import fit_stream, partition_stream, streaming
from poisonproof.estimators.training_set import TrainingSet

N_ROWS = 3000
K = 17


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Numbers, text and missing values; labels and contributors; some rows twice."""
    rng = np.random.default_rng(0)
    price = rng.normal(size=N_ROWS)
    price[rng.random(N_ROWS) < 0.1] = np.nan
    count = rng.integers(-5, 2**40, N_ROWS).astype(object)
    count[rng.random(N_ROWS) < 0.1] = None
    count[:5] = [2**53 + 1, 2**53, 0, 1, None]
    land = rng.choice(np.array(["DE", "FR", "ÖS", ""], dtype=object), N_ROWS)
    land[rng.random(N_ROWS) < 0.1] = None
    table = pa.table(
        {
            "price": pa.array(price, from_pandas=True),
            "count": pa.array(count.tolist(), type=pa.int64()),
            "flag": pa.array(rng.random(N_ROWS) < 0.5),
            "land": pa.array(land.tolist(), type=pa.string()),
            "who": pa.array([f"user{i}" for i in rng.integers(0, 300, N_ROWS)]),
            "weight": pa.array(rng.choice([0.5, 1.0, 2.0], N_ROWS)),
            "kind": pa.array(rng.choice(["ham", "spam"], N_ROWS).tolist()),
        }
    )
    return pa.concat_tables([table, table.slice(0, 100)])


@pytest.fixture(autouse=True)
def many_small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make chunks and runs of a few hundred rows, and train a few members at a time."""
    monkeypatch.setattr(streaming, "CHUNK_SHARE", 2**16)
    monkeypatch.setattr(streaming, "RUN_SHARE", 2**16)
    monkeypatch.setattr(streaming, "TRAINING_SHARE", 2**15)


def layouts(table: pa.Table, folder: Path) -> list[Path]:
    """Write the same rows as one file, with tiny row groups, and as shuffled files."""
    rng = np.random.default_rng(1)
    for name in ("one", "groups", "files"):
        (folder / name).mkdir()
    pq.write_table(table, folder / "one" / "a.parquet")
    pq.write_table(table, folder / "groups" / "a.parquet", row_group_size=37)
    shuffled = table.take(pa.array(rng.permutation(len(table))))
    for part in range(5):
        piece = shuffled.slice(part * 700, 700)
        pq.write_table(piece, folder / "files" / f"{4 - part}.parquet", compression="zstd")
    (folder / "files" / "_SUCCESS").write_text("")
    return [folder / name for name in ("one", "groups", "files")]


def trees(partitioner: str, **options: Any) -> DPAClassifier:
    tree = DecisionTreeClassifier(max_depth=4)
    return DPAClassifier(
        tree, K, partitioner=partitioner, classes=np.array(["ham", "spam"]), **options
    )


def same_model(streamed: Any, held: Any) -> None:
    """Compare everything that a fingerprint covers, and what it is made of."""
    assert streamed.partition_digests_ == held.partition_digests_
    assert streamed.partition_sizes_.tolist() == held.partition_sizes_.tolist()
    assert streamed.ensemble_.digests() == held.ensemble_.digests()


@pytest.mark.parametrize("partitioner", ["content", "group"])
@pytest.mark.parametrize("weights", [None, "weight"])
def test_plain_columns_of_any_layout(
    table: pa.Table, tmp_path: Path, partitioner: str, weights: str | None
) -> None:
    numbers = table.drop_columns(["land"])
    schema = freeze_schema(
        Schema(
            columns=number_columns(["price", "count", "flag"]),
            label="kind",
            classes=("spam", "ham"),
            groups="who" if partitioner == "group" else None,
            weights=weights,
            others="ignore",
        )
    )
    paths = layouts(numbers, tmp_path)
    rows = read_table(paths[0] / "a.parquet", schema)
    held = trees(partitioner)
    labels = np.array(schema.classes)[rows.labels]
    held.fit_into(tmp_path / "held", rows.X, labels, rows.groups, rows.weights)
    for path in paths:
        streamed = trees(partitioner)
        fit_stream(streamed, tmp_path / f"{path.name}.model", DataSource(path, schema))
        same_model(streamed, held)
        manifests = [
            poisonproof.load(tmp_path / name).ensemble_.reader.manifest
            for name in ("held", f"{path.name}.model")
        ]
        assert manifests[0].fingerprint == manifests[1].fingerprint


def test_order_within_partitions(table: pa.Table, tmp_path: Path) -> None:
    path = layouts(table.select(["price", "count", "kind"]), tmp_path)[2]
    schema = Schema(classes=("ham", "spam"), label="kind")
    whole = read_table(tmp_path / "one" / "a.parquet", schema)
    held = trees("content").fit(whole.X, np.array(schema.classes)[whole.labels])
    assert isinstance(held.rows_, TrainingSet)
    (tmp_path / "runs").mkdir()
    streamed = partition_stream(trees("content"), DataSource(path, schema), tmp_path / "runs")
    assert len(streamed.offsets) > 3  # else nothing was joined
    for index in range(K):
        ours, theirs = streamed.shard(index), held.rows_.source.shard(index)
        assert np.array_equal(ours.X, theirs.X, equal_nan=True)
        assert np.array_equal(ours.y, theirs.y)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_frozen_schema_with_text_and_split(table: pa.Table, tmp_path: Path, suffix: str) -> None:
    table = table.drop_columns(["flag", "weight"])
    schema = freeze_schema(
        Schema(
            columns=(
                NumberColumn(name="price", missing=0.0),
                CategoryColumn(name="land", categories=("DE", "FR"), missing="reject"),
                TextColumn(name="who", size=16),
                NumberColumn(name="count", missing="nan"),
            ),
            label="kind",
            classes=("ham", "spam"),
            test_share=0.3,
        )
    )
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get).to_csv(path, index=False)
    else:
        pq.write_table(table, path, row_group_size=500)
    rows = read_table(path, schema)
    train = ~split_rows(rows, schema)
    held = trees("content", invalid_rows="drop")
    held.fit_into(tmp_path / "held", rows.X[train], np.array(schema.classes)[rows.labels][train])
    streamed = trees("content", invalid_rows="drop")
    fit_stream(streamed, tmp_path / "streamed", DataSource(path, schema))
    same_model(streamed, held)
    assert streamed.rejected_.count == len(rows.problems) > 0


def test_closed_form_members_in_slabs(table: pa.Table, tmp_path: Path) -> None:
    path = layouts(table.select(["weight", "kind", "count"]).drop_null(), tmp_path)[1]
    schema = Schema(classes=("ham", "spam"), label="kind")
    whole = read_table(path / "a.parquet", schema)
    held = DPAClassifier(n_partitions=K, classes=["ham", "spam"])
    held.fit(whole.X, np.array(schema.classes)[whole.labels])
    streamed = DPAClassifier(n_partitions=K, classes=["ham", "spam"])
    fit_stream(streamed, tmp_path / "model", DataSource(path, schema), keep_data=True)
    same_model(streamed, held)
    again = poisonproof.load(tmp_path / "model")
    again.update(remove=(whole.X[:1], np.array(schema.classes)[whole.labels][:1]))
    assert again.partition_sizes_.sum() == len(whole) - 1


def test_a_file_that_comes_first_decides_nothing_for_other_rows(tmp_path: Path) -> None:
    """Its columns stand in another order, are dictionaries or large texts, or hold nulls alone."""
    rng = np.random.default_rng(1)
    schema = freeze_schema(
        Schema(
            columns=(
                NumberColumn(name="number"),
                DateColumn(name="day", missing="nan"),
                NumberColumn(name="cost", missing="nan"),
                CategoryColumn(name="land", categories=("DE", "FR", "IT")),
            ),
            label="kind",
            classes=("ham", "spam"),
            ignore=("more",),
        )
    )

    def table(n: int) -> pa.Table:
        return pa.table(
            {
                "number": rng.normal(size=n),
                "day": pa.array(rng.integers(0, 9999, n).astype("int32")).cast("date32"),
                "cost": pa.array([Decimal(int(c)) / 100 for c in rng.integers(0, 999, n)],
                                 pa.decimal128(10, 2)),
                "land": rng.choice(["DE", "FR", "IT"], n),
                "kind": rng.choice(["ham", "spam"], n),
            }
        )  # fmt: skip

    def fitted(name: str) -> DPAClassifier:
        model = DPAClassifier(DecisionTreeClassifier(max_depth=4), K, classes=["ham", "spam"])
        source = DataSource(tmp_path / name, schema)
        return fit_stream(model, tmp_path / f"{name}.model", source, keep_data=True)

    many, one = table(400), table(1)
    one = one.set_column(1, "day", pa.nulls(1, pa.date32()))
    one = one.set_column(2, "cost", pa.nulls(1, pa.decimal128(10, 2)))
    one = one.set_column(3, "land", one["land"].cast(pa.large_string()).dictionary_encode())
    one = one.select(["kind", "land", "number", "day", "cost"]).append_column("more", [[1]])
    for name in ("clean", "poisoned"):
        (tmp_path / name).mkdir()
        pq.write_table(many, tmp_path / name / "rows.parquet")
    pq.write_table(one, tmp_path / "poisoned" / "0.parquet")
    clean, poisoned = fitted("clean"), fitted("poisoned")
    pairs = zip(clean.ensemble_.digests(), poisoned.ensemble_.digests(), strict=True)
    assert sum(before != after for before, after in pairs) <= 1
    pairs = zip(clean.partition_digests_, poisoned.partition_digests_, strict=True)
    assert sum(before != after for before, after in pairs) == 1


def test_folder_of_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for index in range(300):
        folder = tmp_path / "photos" / ("cat" if index % 3 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        shape = (int(rng.integers(5, 12)), 8, 3)
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(folder / f"{index}.png")
    (tmp_path / "photos" / "cat" / "torn.png").write_bytes(b"no image")
    column = ImageColumn(name="image", height=8, width=8)
    schema = freeze_schema(
        Schema(
            columns=(column,), label="folder", classes=("cat", "dog"), kind="images", test_share=0.2
        )
    )
    rows = read_table(tmp_path / "photos", schema)
    train = ~split_rows(rows, schema)
    held = DPAClassifier(n_partitions=K, classes=["cat", "dog"], invalid_rows="drop")
    held.fit_into(tmp_path / "held", rows.X[train], np.array(schema.classes)[rows.labels][train])
    for jobs in (None, 2):
        streamed = DPAClassifier(
            n_partitions=K, classes=["cat", "dog"], invalid_rows="drop", n_jobs=jobs
        )
        fit_stream(streamed, tmp_path / "streamed", DataSource(tmp_path / "photos", schema))
        same_model(streamed, held)
        assert streamed.rejected_.count == 1
        assert poisonproof.load(tmp_path / "streamed").votes(rows.X[:9]).shape == (9, K)
