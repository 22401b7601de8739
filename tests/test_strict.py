"""Blocks are safetensors files that any reader reads, and this reader trusts none of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from poisonproof.exceptions import StoreError
from poisonproof.store import Item
from poisonproof.store.blocks import decode_block, encode_block
from poisonproof.strict import decode_tensors, encode_tensors

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
