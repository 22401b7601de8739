"""Declared limits bound what one row can cost, and reject that row alone."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path
from struct import pack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from poisonproof.data import (
    CheckedRows,
    DataSource,
    Limits,
    NumberColumn,
    Schema,
    TextColumn,
    freeze_schema,
    parse_schema,
    read_table,
    schema_digest,
)
from poisonproof.data import image_files as pixels
from poisonproof.data.image_files import decode_image
from poisonproof.data.parquet_files import LARGEST_PAGE
from poisonproof.data.schema import dump_schema, schema_values
from poisonproof.exceptions import GuaranteeError, InvalidInputError

ROWS = 40
MEGABYTE = 2**20

_READ = """
import json, resource, sys
from pathlib import Path
from poisonproof.data import read_table
from poisonproof.features import HashedNGrams
from poisonproof.data import load_schema
from poisonproof.data import DataSource
import pyarrow.csv, pyarrow.parquet

schema = load_schema(sys.argv[1])
HashedNGrams().transform(["warm"])
found = []
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in map(Path, sys.argv[2:]):
    rows = read_table(path, schema)
    found.append([len(rows), [problem.place for problem in rows.problems]])
    del rows
    pieces = [rows for rows, _ in DataSource(path, schema).pieces(2**19)]
    problems = [problem.place for rows in pieces for problem in rows.problems]
    found.append([sum(map(len, pieces)), problems])
    del pieces
    found.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
print(json.dumps(found))
"""


def text_schema(**options: Any) -> Schema:
    columns = (TextColumn(name="t", size=64),)
    return freeze_schema(
        Schema(columns=columns, label="y", classes=("a", "b"), test_share=0.0, **options)
    )


def texts(large: str) -> dict[str, list[str]]:
    """Return rows of which the eighth holds a large text."""
    cells = [f"mail {row}" for row in range(ROWS)]
    cells[7] = large
    return {"t": cells, "y": ["a", "b"] * (ROWS // 2)}


def streamed(path: Path, schema: Any) -> tuple[int, list[Any]]:
    """Return how many rows a stream keeps, and which it rejects."""
    pieces = [rows for rows, _ in DataSource(path, schema).pieces(2**19)]
    return sum(map(len, pieces)), [problem for rows in pieces for problem in rows.problems]


def same_rejections(rows: CheckedRows, path: Path, schema: Any) -> None:
    assert streamed(path, schema) == (len(rows), list(rows.problems))


def test_one_row_takes_little_memory_in_memory_and_streamed(tmp_path: Path) -> None:
    large = "ab cd " * MEGABYTE
    cell = tmp_path / "cell.parquet"
    pq.write_table(pa.table(texts(large)), cell, compression="zstd")
    line = tmp_path / "line.csv"
    lines = [f"{row},{'ab'[row % 2]}\n" for row in range(ROWS)]
    lines[7] = "12," * 8_000_000 + "\n"
    line.write_text("".join(["t,y\n", *lines]))
    once = tmp_path / "once.parquet"  # one large cell, which 300 rows name
    cells = pa.DictionaryArray.from_arrays(
        pa.array([0] * 300 + [1] * 8, pa.int32()), pa.array([large, "short"])
    )
    table = pa.table({"t": cells, "y": ["a"] * 308})
    pq.write_table(table, once, dictionary_pagesize_limit=2**24, store_schema=False)
    assert cell.stat().st_size < 4096
    assert once.stat().st_size < MEGABYTE
    schema = tmp_path / "schema.json"
    schema.write_bytes(dump_schema(text_schema()))
    done = subprocess.run(
        [sys.executable, "-c", _READ, schema, cell, line, once],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads(done.stdout)
    assert rows[0] == rows[1] == [ROWS - 1, [7]]
    assert rows[3] == rows[4] == [ROWS - 1, [9]]
    assert rows[6] == rows[7] == [8, list(range(300))]
    assert max(rows[2::3]) < 150  # MiB; 700 and more with any of them before there were limits


def test_a_page_that_would_become_too_large_is_not_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table(texts(" " * (LARGEST_PAGE + 1)))
    pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size < 65536
    with pytest.raises(InvalidInputError, match=r"'t' of .* has a page of 67,\d+,\d+ bytes"):
        read_table(path, text_schema())
    with pytest.raises(InvalidInputError, match="has a page of"):
        streamed(path, text_schema())


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", None])
def test_every_layout_of_a_file_gives_the_same_rows(
    tmp_path: Path, version: str, encoding: str | None
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table(texts("x" * 5000)),
        path,
        use_dictionary=encoding is None,
        column_encoding=None if encoding is None else {"t": encoding, "y": encoding},
        data_page_version=version,
        row_group_size=16,
        data_page_size=64,
        write_batch_size=4,
    )
    rows = read_table(path, text_schema(limits=Limits(cell=4999)))
    assert [problem.place for problem in rows.problems] == [7]
    assert len(read_table(path, text_schema(limits=Limits(cell=5000)))) == ROWS
    same_rejections(rows, path, text_schema(limits=Limits(cell=4999)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(("letter", "size"), [("x", 1), ("é", 2)])
def test_the_largest_cell_is_counted_in_bytes_whatever_the_file(
    tmp_path: Path, suffix: str, letter: str, size: int
) -> None:
    path = tmp_path / f"rows{suffix}"
    table = texts(letter * 50)
    if suffix == ".parquet":
        pq.write_table(pa.table(table), path)
    else:
        lines = [f'"{t}",{y}\n' for t, y in zip(*table.values(), strict=True)]
        path.write_text("".join(["t,y\n", *lines]), encoding="utf-8")
    schema = text_schema(limits=Limits(cell=50 * size - 1))
    rows = read_table(path, schema)
    assert [p.place for p in rows.problems] == [9 if suffix == ".csv" else 7]
    assert f"column 't': it holds more than {50 * size - 1} bytes" in rows.problems[0].reason
    assert not rows.problems[0].label
    same_rejections(rows, path, schema)
    assert len(read_table(path, text_schema(limits=Limits(cell=50 * size)))) == ROWS


@pytest.mark.parametrize("end", ["\n", ""])
def test_the_largest_line_is_the_same_wherever_it_stands(tmp_path: Path, end: str) -> None:
    path = tmp_path / "rows.csv"
    fits, long = f"{'x' * 62},b\n", f"{'x' * 63},b\n"
    path.write_text("t,y\n" + (fits + long) * 20 + "short,a\n" + "y" * 300 + end)
    schema = text_schema(limits=Limits(line=64, cell=64))
    rows = read_table(path, schema)
    assert len(rows) == 21
    assert [p.place for p in rows.problems] == [*range(3, 42, 2), 43]
    assert all("more than 64 bytes" in p.reason and p.label for p in rows.problems)
    same_rejections(rows, path, schema)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_a_row_left_out_for_its_label_alone_says_so(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    labels = ["a", "b" * 9, "b"]
    if suffix == ".csv":
        path.write_text("".join(["X,y\n", *(f"{row},{y}\n" for row, y in enumerate(labels))]))
    elif suffix == ".parquet":
        pq.write_table(pa.table({"X": [0.0, 1.0, 2.0], "y": labels}), path)
    else:
        np.savez(path, X=np.arange(3.0)[:, None], y=np.array(labels))
    schema = Schema(label="y", classes=("a", "b"), limits=Limits(cell=8))
    (problem,) = read_table(path, schema).problems
    assert problem.label
    assert "more than 8 bytes" in problem.reason


def test_limits_are_part_of_the_frozen_schema(tmp_path: Path) -> None:
    usual, declared = text_schema(), text_schema(limits=Limits(cell=100))
    assert "limits" not in schema_values(usual)  # as schemas were written before there were any
    assert schema_digest(usual) != schema_digest(declared)
    values = schema_values(declared)
    assert parse_schema(values) == declared
    with pytest.raises(GuaranteeError, match="changed after it was frozen"):
        parse_schema({**values, "limits": {**values["limits"], "cell": 101}})
    with pytest.raises(
        InvalidInputError, match=r"the key .rows. of limits is not known; it has cell"
    ):
        parse_schema({**values, "limits": {"rows": 3}})
    with pytest.raises(InvalidInputError, match="an integer from 1"):
        Limits(line=0)


def test_an_array_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    header = {"shape": (2**40, 2), "fortran_order": False, "descr": "<f8"}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))
    with pytest.raises(InvalidInputError, match=r"takes 17,592,186,044,416 bytes"):
        read_table(path, Schema())
    archive = tmp_path / "rows.npz"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(path, "X.npy")
    with pytest.raises(InvalidInputError, match=r"takes 17,592,186,044,416 bytes"):
        read_table(archive, Schema())


def progressive(n_scans: int, side: int = 64) -> bytes:
    """Return a progressive JPEG image whose last scan is repeated."""
    file = io.BytesIO()
    Image.new("L", (side, side), 90).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    n_before = data.count(b"\xff\xda") - 1
    return data[:last] + data[last:-2] * (n_scans - n_before) + b"\xff\xd9"


def png(
    width: int, height: int, depth: int, colour: int, pixels: bytes, more: bytes = b""
) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    packed = chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + more + packed


def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded() -> None:
    assert decode_image(progressive(pixels.MOST_SCANS), "a.jpg").size == (64, 64)
    assert decode_image(progressive(10) + b"\xff\xda" * 1000, "a.jpg").size == (64, 64)
    hostile = progressive(2000, side=2048)
    assert len(hostile) < 500_000
    start = time.process_time()
    with pytest.raises(InvalidInputError, match="more than 100 scans"):
        decode_image(hostile, "a.jpg")
    assert time.process_time() - start < 1  # 10 s when all scans were decoded


@pytest.mark.parametrize(("colour", "channels"), [(2, 3), (4, 2), (6, 4), (0, 1)])
def test_16_bit_png_images_are_refused_in_every_colour(colour: int, channels: int) -> None:
    row = b"\0" + b"\x12\x34" * channels * 4
    with pytest.raises(InvalidInputError, match="more than 8 bits"):
        decode_image(png(4, 4, 16, colour, row * 4), "a.png")
    row = b"\0" + b"\x12" * channels * 4
    assert decode_image(png(4, 4, 8, colour, row * 4), "a.png").size == (4, 4)


def many_parts(kind: str) -> bytes:
    """Return a valid image with a megabyte of parts that say nothing."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, kind)
    data = file.getvalue()
    if kind == "JPEG":
        return data[:2] + b"\xff\xfe\x00\x02" * 250_000 + data[2:]
    if kind == "PPM":
        return data[:2] + b" " + b"#\n" * 500_000 + data[2:]
    return (
        data[:33] + (pack(">I", 0) + b"ruBb" + pack(">I", zlib.crc32(b"ruBb"))) * 80_000 + data[33:]
    )


@pytest.mark.parametrize("kind", ["JPEG", "PPM", "PNG"])
def test_images_of_endless_parts_are_refused_at_once(kind: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidInputError, match=r"more than|at most"):
        decode_image(many_parts(kind), "a")
    assert time.process_time() - start < 1


@pytest.mark.parametrize("header", [b"P3 4 4 255", b"P3 4 4 1023", b"P6 4 4 100", b"P6 4 4 1023"])
def test_variants_that_decode_slowly_are_refused(header: bytes) -> None:
    with pytest.raises(InvalidInputError, match="a variant of PPM that decodes slowly"):
        decode_image(header + b"\n" + b"1 " * 48, "a.ppm")
    plain = decode_image(b"P6 # a comment\n500 500 255\n" + b"1" * 750_000, "a.ppm")
    assert plain.size == (500, 500)


def test_declared_pixels_bound_an_image() -> None:
    file = io.BytesIO()
    Image.new("L", (20, 30)).save(file, "PNG")
    assert decode_image(file.getvalue(), "a.png", max_pixels=600).size == (20, 30)
    with pytest.raises(InvalidInputError, match="at most 599 in all"):
        decode_image(file.getvalue(), "a.png", max_pixels=599)


def test_numbers_that_are_written_at_length_are_cells_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("u,y\n1,a\n" + "1." + "0" * 50 + ",b\n2,b\n")
    schema = freeze_schema(
        Schema(
            columns=(NumberColumn(name="u"),),
            label="y",
            classes=("a", "b"),
            test_share=0.0,
            limits=Limits(cell=51),
        )
    )
    rows = read_table(path, schema)
    assert [(p.place, p.reason[:11]) for p in rows.problems] == [(3, "column 'u':")]
    same_rejections(rows, path, schema)
