"""A file from a stranger has one meaning, or it is refused."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from poisonproof.data import load_schema
from poisonproof.data.npz_files import load_arrays
from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.store.manifest import Item, decode_block, encode_block
from poisonproof.strict import check_zip, decode_tensors, encode_tensors, parse_json, read_npz

ARRAYS = {
    "a": np.arange(6, dtype=np.int16).reshape(2, 3),
    "empty": np.empty((0, 3)),
    "flag": np.array([True, False]),
    "big-endian": np.arange(3, dtype=">f8"),
    "scalar": np.array(2.5, dtype=np.float32),
    "turned": np.arange(6.0).reshape(2, 3).T,
}


def test_arrays_come_back_and_any_reader_reads_them() -> None:
    data = encode_tensors(ARRAYS, {"about": "hello"})
    back, about = decode_tensors(data, "block")
    other = load(data)
    assert about == {"about": "hello"}
    for name, array in ARRAYS.items():
        assert back[name].shape == array.shape
        assert np.array_equal(back[name], array)
        assert np.array_equal(other[name], array)


def test_arrays_are_views_of_the_file() -> None:
    data = bytearray(encode_tensors({"a": np.arange(4)}, {}))
    back, _ = decode_tensors(memoryview(data), "block")
    assert np.shares_memory(back["a"], np.frombuffer(data, dtype=np.uint8))


def forged(change: Any) -> bytes:
    data = encode_tensors({"a": np.arange(4), "b": np.arange(4)}, {"about": ""})
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dtype", "F128"),
        ("dtype", None),
        ("dtype", ["I64"]),
        ("shape", [5]),
        ("shape", [-4]),
        ("shape", [4.0]),
        ("shape", [True] * 4),
        ("shape", "4"),
        ("shape", [1] * 40 + [4]),
        ("shape", [2**61, 0, 2**61]),
        ("data_offsets", [0, 2**40]),
        ("data_offsets", [32, 64]),
        ("data_offsets", [-8, 24]),
        ("data_offsets", [0]),
        ("data_offsets", None),
        ("other", 1),
    ],
)
def test_a_header_that_lies_is_refused(key: str, value: Any) -> None:
    with pytest.raises(StoreError, match="block"):
        decode_tensors(forged(lambda header: header["a"].update({key: value})), "block")


def test_bytes_that_belong_to_no_array_are_refused() -> None:
    with pytest.raises(StoreError, match=r"overlap or leave gaps|belong to no array"):
        decode_tensors(forged(lambda header: header.pop("a")), "block")
    with pytest.raises(StoreError, match="belong to no array"):
        decode_tensors(encode_tensors(ARRAYS, {}) + b"x", "block")


@pytest.mark.parametrize("data", [b"", b"1234567", b"\xff" * 8, b"\xff" * 100, bytes(16)])
def test_bytes_that_are_no_file_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="block"):
        decode_tensors(data, "block")


def test_items_come_back_each_by_itself() -> None:
    items = [Item(7, "p7", "d7", {"x": None}, {"w": np.arange(3)}), Item(2, "p2", "d2")]
    back = decode_block(encode_block(items), "block")
    assert sorted(back) == [2, 7]
    assert back[7].about == {"x": None}
    assert back[7].tensors["w"].tolist() == [0, 1, 2]
    assert encode_block(items) == encode_block([back[7], back[2]])


@pytest.mark.parametrize(
    "about", ["", "{", "[]", "{}", "[1]", '[{"index": 1}]', "null", '[{"index": true}]']
)
def test_a_block_that_describes_no_items_is_refused(about: str) -> None:
    with pytest.raises(StoreError, match="block"):
        decode_block(encode_tensors({"1/w": np.arange(2)}, {"about": about}), "block")


def zipped(*entries: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", method) as archive:
        warnings.simplefilter("ignore", UserWarning)
        for name, content in entries:
            archive.writestr(name, content)
    return file.getvalue()


def overlapping() -> bytes:
    """Return an archive whose second entry lies within the bytes of the first."""
    inner = zipped(("b", b"inner"))
    data = zipped(("a", inner), ("b", b"outer"))
    second = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02", len(inner) + 30) + 4)
    within = data.index(b"PK\x03\x04", 4)
    return data[: second + 42] + within.to_bytes(4, "little") + data[second + 46 :]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (zipped(("a", b"1"), ("b", b"2"), ("a", b"3")), "same name"),
        (zipped(("a", b"1")).replace(b"a1PK", b"b1PK"), "two names"),
        (zipped(("aXb", b"1")).replace(b"aXb", b"a\x00b"), "two ways"),
        (overlapping(), "overlap"),
        (zipped(("a", b"0" * 99), method=zipfile.ZIP_DEFLATED), "compressed"),
    ],
    ids=["duplicate", "local name", "zero byte", "overlap", "packed"],
)
def test_an_archive_that_two_readers_may_read_differently_is_refused(
    data: bytes, said: str
) -> None:
    with (
        zipfile.ZipFile(io.BytesIO(data)) as archive,
        pytest.raises(ValueError, match=said),
    ):
        check_zip(archive, stored=True)


def test_an_archive_as_it_is_written_passes() -> None:
    with zipfile.ZipFile(io.BytesIO(zipped(("a", b"1"), ("ä/b", b""), ("c", b"3")))) as archive:
        assert list(check_zip(archive, stored=True)) == ["a", "ä/b", "c"]
    file = io.BytesIO()
    np.savez_compressed(file, x=np.arange(3), y=np.array(["a"]))
    assert read_npz(file)["x"].tolist() == [0, 1, 2]


def npy(values: list[int]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values))
    return file.getvalue()


@pytest.mark.parametrize("names", [("X.npy", "X.npy"), ("X.npy", "X")])
def test_an_npz_file_with_two_arrays_of_one_name_is_refused(
    names: tuple[str, str], tmp_path: Path
) -> None:
    """NumPy would take one of them, and whoever looks at the file with other tools another."""
    file = tmp_path / "rows.npz"
    file.write_bytes(zipped((names[0], npy([1, 2])), (names[1], npy([3, 4]))))
    with pytest.raises(InvalidInputError, match="same name"):
        load_arrays(file, ["X"])


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', "[" * 10**5, "9" * 10**4])
def test_json_with_two_meanings_or_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"twice|not JSON|nested|digits"):
        parse_json(text)


def test_a_file_of_settings_with_a_repeated_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"format": "a", "format": "poisonproof-schema"}')
    with pytest.raises(InvalidInputError, match="appears twice"):
        load_schema(tmp_path / "f.json")
