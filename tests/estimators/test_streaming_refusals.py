"""What cannot be streamed is refused in one sentence, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poisonproof import DPAClassifier
from poisonproof.data import DataSource, Schema
from poisonproof.estimators import fit_stream
from poisonproof.exceptions import GuaranteeError, InvalidInputError, StoreError

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
        fit_stream(classifier(**options), tmp_path / "model", DataSource(tmp_path / "data", SCHEMA))
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_bad_row_is_named_with_its_file_and_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    write(tmp_path / "data" / "b.parquet", kind=["a"] * 99 + ["c"])
    with pytest.raises(InvalidInputError, match=r"b\.parquet, row 99: the label 'c'"):
        fit_stream(classifier(), tmp_path / "model", DataSource(tmp_path / "data", SCHEMA))
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_bad_row_is_dropped_alone(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet", kind=["c"] * 100)
    write(tmp_path / "data" / "b.parquet", seed=1)
    fitted = fit_stream(
        classifier(invalid_rows="drop"),
        tmp_path / "model",
        DataSource(tmp_path / "data", SCHEMA),
    )
    assert fitted.partition_sizes_.sum() == 100
    assert not (tmp_path / "model.shards").exists()


def test_files_whose_columns_differ(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    write(tmp_path / "data" / "b.parquet", w=np.zeros(100))
    with pytest.raises(InvalidInputError, match=r"b\.parquet has the features"):
        fit_stream(classifier(), tmp_path / "model", DataSource(tmp_path / "data", SCHEMA))


def test_folder_that_is_not_data(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InvalidInputError, match="no file that can be streamed"):
        fit_stream(classifier(), tmp_path / "model", DataSource(tmp_path, SCHEMA))
    (tmp_path / "a.parquet").write_text("not Parquet")
    with pytest.raises(InvalidInputError, match="not a readable Parquet file"):
        fit_stream(classifier(), tmp_path / "model", DataSource(tmp_path, SCHEMA))


def strange_entries(folder: Path) -> dict[str, str]:
    """Put entries beside the data that are no data, and return why each is left out."""
    (folder / "linked.parquet").symlink_to(folder / "a.parquet")
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "nowhere.parquet").symlink_to(folder / "gone.parquet")
    os.mkfifo(folder / "pipe.parquet")
    (folder / "notes\x1b[2J.txt").write_text("read me")
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.parquet").write_text("")
    link = "is a symbolic link; links are not followed"
    return {
        "linked.parquet": link,
        "loop": link,
        "nowhere.parquet": link,
        "notes\\x1b[2J.txt": "does not end in .csv or .tsv or .parquet",
        "pipe.parquet": "is a named pipe, not a file",
    }


@pytest.mark.parametrize("n_parts", [1, 2])
def test_every_entry_of_a_folder_is_read_or_counted_with_its_reason(
    tmp_path: Path, n_parts: int
) -> None:
    write(tmp_path / "data" / "a.parquet")
    write(tmp_path / "data" / "b.parquet", seed=1)
    expected = strange_entries(tmp_path / "data")
    parts = DataSource(tmp_path / "data", SCHEMA).split(n_parts)
    pieces = [rows for part in parts for rows, _ in part.pieces(2**20)]
    assert {
        problem.place: problem.reason for rows in pieces for problem in rows.problems
    } == expected
    assert sum(map(len, pieces)) == 200
    model = classifier(invalid_rows="drop")
    fit_stream(model, tmp_path / "model", DataSource(tmp_path / "data", SCHEMA))
    assert (model.partition_sizes_.sum(), model.rejected_.count) == (200, len(expected))
    with pytest.raises(InvalidInputError, match=r"linked\.parquet: is a symbolic link"):
        fit_stream(classifier(), tmp_path / "m", DataSource(tmp_path / "data", SCHEMA))


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data" / "a.parquet")
    (tmp_path / "data" / "closed").mkdir()
    scandir = os.scandir

    def refusing(path: Any = ".") -> Any:
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(InvalidInputError, match="closed cannot be read: Permission denied"):
        list(DataSource(tmp_path / "data", SCHEMA).pieces(2**20))


def test_scratch_folder_with_foreign_files_is_not_touched(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    source = DataSource(tmp_path / "data", SCHEMA)
    with pytest.raises(StoreError, match="holds other files"):
        fit_stream(classifier(), tmp_path / "model", source, scratch=mine)
    assert (mine / "letter.txt").read_text() == "dear"


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet")
    left = tmp_path / "model.shards"
    left.mkdir()
    (left / "run-0.keys").write_bytes(b"half")
    fit_stream(classifier(), tmp_path / "model", DataSource(tmp_path / "data", SCHEMA))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "model"]


def test_worker_processes_give_the_same_model(tmp_path: Path) -> None:
    for part in range(4):
        write(tmp_path / "data" / f"{part}.parquet", seed=part)
    source = DataSource(tmp_path / "data", SCHEMA)
    alone = fit_stream(classifier(), tmp_path / "alone", source)
    together = fit_stream(classifier(n_jobs=2), tmp_path / "together", source)
    assert together.partition_digests_ == alone.partition_digests_
    assert together.ensemble_.digests() == alone.ensemble_.digests()
