"""Parquet and NumPy files: the stored type decides nothing, the values do."""

from __future__ import annotations

import datetime
import zipfile
from pathlib import Path

import numpy as np
import pytest

from poisonproof.data import Schema, read_table
from poisonproof.exceptions import InvalidInputError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SCHEMA = Schema(label="y", classes=("0", "1"))


def parquet(folder: Path, **columns: object) -> Path:
    path = folder / "f.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([0, 1, 1]),
        pa.array([0.0, 1.0, 1.0]),
        pa.array([0, 1, 1], pa.uint8()),
        pa.array(["0", "1", "1"]),
        pa.array(["0", "1", "1"]).dictionary_encode(),
    ],
)
def test_labels_of_any_type_read_as_the_same_text(tmp_path: Path, labels: object) -> None:
    rows = read_table(parquet(tmp_path, a=[1.0, 2.0, 3.0], y=labels), SCHEMA)
    assert rows.labels is not None
    assert rows.labels.tolist() == [0, 1, 1]


def test_an_empty_label_rejects_its_row_alone(tmp_path: Path) -> None:
    rows = read_table(parquet(tmp_path, a=[1, 2, 3], y=[0, None, 1]), SCHEMA)
    assert rows.labels is not None
    assert rows.labels.tolist() == [0, 1]
    assert (rows.problems[0].place, rows.unit) == (1, "row")


def test_numbers_of_any_type_and_nulls_become_float64(tmp_path: Path) -> None:
    path = parquet(
        tmp_path,
        a=pa.array([1, None], pa.int8()),
        b=pa.array([True, False]),
        c=pa.array([1.5, 2.5], pa.float32()),
        d=pa.array([7, 8]).dictionary_encode(),
        e=pa.nulls(2),
        y=[0, 1],
    )
    rows = read_table(path, SCHEMA)
    nan = np.nan
    np.testing.assert_array_equal(rows.X, [[1, 1, 1.5, 7, nan], [nan, 0, 2.5, 8, nan]])
    assert rows.X.dtype == np.float64
    assert rows.names == ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("values", [["x", "y"], [datetime.date(2020, 1, 1)] * 2, [[1], [2]]])
def test_columns_that_hold_no_numbers_are_refused_by_name(
    tmp_path: Path, values: list[object]
) -> None:
    path = parquet(tmp_path, a=[1, 2], b=values, y=[0, 1])
    with pytest.raises(InvalidInputError, match=r"Column 'b' of .* but features and weights are"):
        read_table(path, SCHEMA)


def test_a_truncated_parquet_file_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, a=list(range(1000)), y=[0, 1] * 500)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match="not a readable Parquet file"):
        read_table(path, SCHEMA)


def test_npz_arrays_are_named_and_images_become_rows(tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    images = np.arange(2 * 28 * 28, dtype=np.uint16).reshape(2, 28, 28)
    np.savez(path, x_train=images, y_train=np.array([1, 0], dtype=np.uint8))
    rows = read_table(path, Schema(label="y_train", classes=("0", "1"), samples="x_train"))
    np.testing.assert_array_equal(rows.X, images.reshape(2, 784))
    assert rows.labels is not None
    assert rows.labels.tolist() == [1, 0]
    assert rows.names is None
    with pytest.raises(InvalidInputError, match=r"no array 'X', 'y'\. It has 'x_train', 'y_train'"):
        read_table(path, SCHEMA)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": np.zeros(3), "y": np.zeros(3)}, "samples have shape"),
        ({"X": np.zeros((3, 2)), "y": np.zeros(4)}, "one value per sample"),
        ({"X": np.array([["a"], ["b"]]), "y": np.zeros(2)}, "numbers are needed"),
        ({"X": np.array([[1], [None]]), "y": np.zeros(2)}, "not a readable npz file"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], words: str
) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(InvalidInputError, match=words):
        read_table(tmp_path / "f.npz", SCHEMA)


def test_a_damaged_npz_or_npy_file_is_refused(tmp_path: Path) -> None:
    for name in ("f.npz", "f.npy"):
        (tmp_path / name).write_bytes(b"not an array")
        with pytest.raises(InvalidInputError, match="not a readable np"):
            read_table(tmp_path / name, Schema())
    np.save(tmp_path / "f.npy", np.ones((3, 2)))
    assert len(read_table(tmp_path / "f.npy", Schema())) == 3


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_damage_anywhere_in_an_archive_is_one_clear_error(method: int, tmp_path: Path) -> None:
    """Every decoder has errors of its own; damage that no checksum covers may be read."""
    np.savez(tmp_path / "whole.npz", x=np.ones((9, 2)), y=np.arange(9) % 2)
    with (
        zipfile.ZipFile(tmp_path / "whole.npz") as whole,
        zipfile.ZipFile(tmp_path / "packed.npz", "w", method) as packed,
    ):
        for name in whole.namelist():
            packed.writestr(name, whole.read(name))
    data = (tmp_path / "packed.npz").read_bytes()
    refused = 0
    for i in range(len(data)):
        (tmp_path / "f.npz").write_bytes(data[:i] + bytes([data[i] ^ 0x55]) + data[i + 1 :])
        try:
            read_table(tmp_path / "f.npz", SCHEMA)
        except InvalidInputError:
            refused += 1
    assert refused > len(data) / 2


def test_a_damaged_header_of_an_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.ones((3, 2)))
    data = (tmp_path / "f.npy").read_bytes()
    assert data.count(b")") == 1
    (tmp_path / "f.npy").write_bytes(data.replace(b")", b"("))
    with pytest.raises(InvalidInputError, match=r"f\.npy is not a readable npy file"):
        read_table(tmp_path / "f.npy", Schema())


def test_infinity_in_a_binary_file_rejects_its_row_alone(tmp_path: Path) -> None:
    X = np.ones((4, 3), dtype=np.float32)
    X[2, 1] = np.inf
    np.savez(tmp_path / "f.npz", X=X, y=np.zeros(4, dtype=int))
    rows = read_table(tmp_path / "f.npz", SCHEMA)
    assert len(rows) == 3
    assert rows.problems[0].reason == "feature 1 is infinite or too large for a float64"


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(float).max, reason="no long doubles")
def test_a_number_beyond_float64_rejects_its_row_alone(tmp_path: Path) -> None:
    X = np.ones((4, 3), dtype=np.longdouble)
    X[2, 1] = np.longdouble("1e4000")
    np.savez(tmp_path / "f.npz", X=X, y=np.zeros(4, dtype=int))
    rows = read_table(tmp_path / "f.npz", SCHEMA)
    assert rows.X.dtype == np.float64
    assert rows.places.tolist() == [0, 1, 3]
    assert rows.problems[0].reason == "feature 1 is infinite or too large for a float64"


@pytest.mark.parametrize("name", ["f.xlsx", "f", "f.txt"])
def test_an_unknown_suffix_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"must end in one of \.csv"):
        read_table(tmp_path / name, Schema())
