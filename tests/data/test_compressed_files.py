"""A compressed table is read line by line; damage is an error, and a bomb fills no memory."""

from __future__ import annotations

import gzip
import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from poisonproof.data import DataSource, NumberColumn, Schema, csv_files, freeze_schema, read_table
from poisonproof.data.csv_files import csv_parts, sample_lines
from poisonproof.exceptions import InvalidInputError

SCHEMA = freeze_schema(
    Schema(columns=(NumberColumn(name="a"),), label="y", classes=("0", "1"), test_share=0.0)
)


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstd}
TEXT = b"a,y\n" + b"".join(b"%d,%d\n" % (i, i % 2) for i in range(5000))


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_compressed_file_holds_the_same_rows(tmp_path: Path, kind: str, suffix: str) -> None:
    text = TEXT.replace(b",", b"\t") if suffix == "tsv" else TEXT
    (tmp_path / f"t.{suffix}").write_bytes(text)
    packed = tmp_path / f"t.{suffix}.{kind}"
    packed.write_bytes(PACKERS[kind](text))
    one, other = read_table(tmp_path / f"t.{suffix}", SCHEMA), read_table(packed, SCHEMA)
    np.testing.assert_array_equal(one.X, other.X)
    assert one.places.tolist() == other.places.tolist()


@pytest.mark.parametrize("kind", PACKERS)
def test_an_odd_line_is_rejected_alone(tmp_path: Path, kind: str) -> None:
    lines = TEXT.splitlines(keepends=True)
    lines[1000:1000] = [b'"\n', b"\xff,1\n", b"1,2,3\n", b"x,0\n"]
    path = tmp_path / f"t.csv.{kind}"
    path.write_bytes(PACKERS[kind](b"".join(lines)))
    rows = read_table(path, SCHEMA)
    assert rows.X[:, 0].tolist() == list(range(5000))
    assert [problem.place for problem in rows.problems] == [1001, 1002, 1003, 1004]


@pytest.mark.parametrize("kind", PACKERS)
def test_damage_is_an_error_and_no_row_is_kept(tmp_path: Path, kind: str) -> None:
    path, whole = tmp_path / f"t.csv.{kind}", PACKERS[kind](TEXT)
    damaged = [
        whole[: len(whole) // 2],
        whole[:-3] if kind == "gz" else whole[:-1],
        whole + b"and more",
        b"not compressed\n" * 9,
    ]
    if kind == "gz":  # zst files may hold no checksum
        damaged.append(whole[:99] + b"\x00\xff\x13" + whole[102:])
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(InvalidInputError, match="is damaged or cut off"):
            read_table(path, SCHEMA)


@pytest.mark.parametrize("kind", PACKERS)
def test_an_empty_file_that_is_compressed_is_empty(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.csv.{kind}"
    path.write_bytes(PACKERS[kind](b""))
    with pytest.raises(InvalidInputError, match="is empty; a header line"):
        read_table(path, SCHEMA)


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize(
    ("line", "largest"), [(b"0" * 2**26, 2**25), (b"1,1\n" * 2**16, 2**17)], ids=["line", "lines"]
)
@pytest.mark.parametrize("reader", ["rows", "sample"])
def test_a_bomb_is_refused_and_fills_no_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    line: bytes,
    largest: int,
    reader: str,
) -> None:
    monkeypatch.setattr(csv_files, "LARGEST_UNPACKED", largest)
    monkeypatch.setattr(csv_files, "LARGEST_RATIO", 2)
    path = tmp_path / f"t.csv.{kind}"
    path.write_bytes(PACKERS[kind](b"a,y\n" + line))

    def read() -> None:
        if reader == "rows":
            deque(csv_parts(path, SCHEMA, 1 << 14), maxlen=0)
        else:
            sample_lines(path, 10_000, 2**22, 2**22)

    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="times as large when it is unpacked"):
            read()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 24 * 2**20


def test_a_folder_of_compressed_files_is_streamed(tmp_path: Path) -> None:
    lines = TEXT.splitlines(keepends=True)
    (tmp_path / "1.csv").write_bytes(b"".join(lines[:1001]))
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(lines[0] + b"".join(lines[1001:3001])))
    (tmp_path / "3.csv.zst").write_bytes(zstd(lines[0] + b"".join(lines[3001:])))
    (tmp_path / "4.parquet.gz").write_bytes(b"x")
    source = DataSource(tmp_path, SCHEMA)
    pieces = [(rows.X[:, 0], step, rows.problems) for rows, step in source.pieces(1 << 16)]
    assert np.concatenate([X for X, _, _ in pieces]).tolist() == list(range(5000))
    assert sum(step for _, step, _ in pieces) == source.total
    assert [p.place for _, _, problems in pieces for p in problems] == ["4.parquet.gz"]
