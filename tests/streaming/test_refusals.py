"""What cannot be streamed is refused in one sentence, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poisonproof import DPAClassifier
from poisonproof.datasets import Schema
from poisonproof.exceptions import GuaranteeError, InvalidInputError, StoreError
from poisonproof.streaming import DeclaredRows, FrameRows, fit_stream

SCHEMA = Schema(label="kind", classes=("a", "b"))


def write(path: Path, seed: int = 0, **columns: Any) -> None:
    """Write a hundred rows."""
    rng = np.random.default_rng(seed)
    table = {"u": rng.normal(size=100), "v": rng.normal(size=100), "kind": ["a", "b"] * 50}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({**table, **columns}), path)


def classifier(**options: Any) -> DPAClassifier:
    return DPAClassifier(**{"n_partitions": 5, "classes": ["a", "b"], **options})


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"classes": None}, GuaranteeError, "declared label set"),
        ({"partitioner": "group"}, InvalidInputError, "groups"),
    ],
)
def test_unsuitable_classifiers(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    write(tmp_path / "data" / "a.parquet")
    with pytest.raises(error, match=words):
        fit_stream(
            classifier(**options), tmp_path / "model", DeclaredRows(tmp_path / "data", SCHEMA)
        )
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_bad_row_is_named_with_its_file_and_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    write(tmp_path / "data" / "b.parquet", kind=["a"] * 99 + ["c"])
    with pytest.raises(InvalidInputError, match=r"b\.parquet, row 99: the label 'c'"):
        fit_stream(classifier(), tmp_path / "model", DeclaredRows(tmp_path / "data", SCHEMA))
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_bad_row_is_dropped_alone(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet", kind=["c"] * 100)
    write(tmp_path / "data" / "b.parquet", seed=1)
    fitted = fit_stream(
        classifier(invalid_rows="drop"),
        tmp_path / "model",
        DeclaredRows(tmp_path / "data", SCHEMA),
    )
    assert fitted.partition_sizes_.sum() == 100
    assert not (tmp_path / "model.shards").exists()


def test_files_whose_columns_differ(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    write(tmp_path / "data" / "b.parquet", w=np.zeros(100))
    with pytest.raises(InvalidInputError, match=r"b\.parquet has the features"):
        fit_stream(classifier(), tmp_path / "model", DeclaredRows(tmp_path / "data", SCHEMA))
    write(tmp_path / "data" / "b.parquet", u=np.zeros(100, dtype=int))
    types = FrameRows.types_of(tmp_path / "data" / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"b\.parquet holds int64, but double is declared"):
        fit_stream(classifier(), tmp_path / "model", FrameRows(tmp_path / "data", types, "kind"))


def test_types_that_are_none(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    for types, words in (
        ({"u": "double"}, "must declare every column that is read, but 'kind'"),
        ({"u": "number", "kind": "string"}, "'u' is declared as 'number', which is no Arrow type"),
        ({"u": pa.list_(pa.int8()), "kind": "string"}, "a cell must be one value"),
        ({"t": "double", "kind": "string"}, r"a\.parquet must have one column 't'"),
    ):
        source = FrameRows(tmp_path / "data", types, "kind")
        with pytest.raises(InvalidInputError, match=words):
            fit_stream(classifier(), tmp_path / "model", source)


def test_folder_that_is_not_data(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InvalidInputError, match="no file that can be streamed"):
        fit_stream(classifier(), tmp_path / "model", DeclaredRows(tmp_path, SCHEMA))
    (tmp_path / "a.parquet").write_text("not Parquet")
    with pytest.raises(InvalidInputError, match="not a readable Parquet file"):
        fit_stream(classifier(), tmp_path / "model", DeclaredRows(tmp_path, SCHEMA))


def test_scratch_folder_with_foreign_files_is_not_touched(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    source = DeclaredRows(tmp_path / "data", SCHEMA)
    with pytest.raises(StoreError, match="holds other files"):
        fit_stream(classifier(), tmp_path / "model", source, scratch=mine)
    assert (mine / "letter.txt").read_text() == "dear"


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    left = tmp_path / "model.shards"
    left.mkdir()
    (left / "run-0.keys").write_bytes(b"half")
    fit_stream(classifier(), tmp_path / "model", DeclaredRows(tmp_path / "data", SCHEMA))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "model"]


def test_worker_processes_give_the_same_model(tmp_path: Path) -> None:
    for part in range(4):
        write(tmp_path / "data" / f"{part}.parquet", seed=part)
    source = DeclaredRows(tmp_path / "data", SCHEMA)
    alone = fit_stream(classifier(), tmp_path / "alone", source)
    together = fit_stream(classifier(n_jobs=2), tmp_path / "together", source)
    assert together.partition_digests_ == alone.partition_digests_
    assert together.ensemble_.digests() == alone.ensemble_.digests()
