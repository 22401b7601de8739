"""Named arrays as safetensors bytes, and back without a copy and without trust.

The library's own reader copies every array; this one returns views, so that large members can
stay in a mapped file. It accepts less than the format allows: arrays fill the data exactly, none
twice, none overlapping.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from poisonproof.exceptions import StoreError

__all__ = ["Buffer", "decode_tensors", "encode_tensors", "strict_json"]

Buffer = bytes | memoryview
_DTYPES = {
    code: np.dtype(name)
    for code, name in {
        "BOOL": "?",
        "U8": "u1",
        "I8": "i1",
        "U16": "<u2",
        "I16": "<i2",
        "U32": "<u4",
        "I32": "<i4",
        "U64": "<u8",
        "I64": "<i8",
        "F16": "<f2",
        "F32": "<f4",
        "F64": "<f8",
    }.items()
}
_ENTRY = {"dtype", "shape", "data_offsets"}
_LONGEST_HEADER = 2**27


def encode_tensors(tensors: Mapping[str, NDArray[Any]], about: str) -> bytes:
    """Return a safetensors file that holds `tensors` and, as metadata, the text `about`.

    Equal input gives equal bytes.
    """
    plain = {
        name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)
        for name, array in tensors.items()
    }
    data: bytes = save(plain, metadata={"about": about})
    return data


def decode_tensors(data: Buffer, name: str) -> tuple[dict[str, NDArray[Any]], str]:
    """Return the arrays, as views of `data`, and the text that `encode_tensors` was given.

    Raises
    ------
    StoreError
        If `data` is anything else; `name` says what was read.

    Examples
    --------
    >>> arrays, about = decode_tensors(encode_tensors({"w": np.arange(3)}, "hello"), "example")
    >>> arrays["w"].tolist(), about
    ([0, 1, 2], 'hello')
    """
    view = memoryview(data)
    size = int.from_bytes(view[:8], "little") if len(view) >= 8 else -1
    if not 2 <= size <= min(len(view) - 8, _LONGEST_HEADER):
        raise StoreError(f"{name} is damaged: its header does not fit into the file.")
    header = strict_json(bytes(view[8 : 8 + size]), name)
    metadata = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(metadata, dict):
        raise StoreError(f"{name} is damaged: its header is not a table of arrays.")
    body = view[8 + size :]
    tensors: dict[str, NDArray[Any]] = {}
    spans: list[tuple[int, int]] = []
    for key, entry in header.items():
        try:
            dtype, shape, start, stop = _entry(entry)
            count = math.prod(shape)
            flat = np.frombuffer(body, dtype, count, start) if count else np.empty(0, dtype)
            tensors[key] = flat.reshape(shape)
        except ValueError as error:
            raise StoreError(f"{name} is damaged: array {key[:80]!r}: {error}.") from error
        spans.append((start, stop))
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise StoreError(f"{name} is damaged: its arrays overlap or leave gaps.")
        end = stop
    if end != len(body):
        raise StoreError(f"{name} is damaged: {len(body) - end} bytes belong to no array.")
    about = metadata.get("about", "")
    if not isinstance(about, str):
        raise StoreError(f"{name} is damaged: its description is not text.")
    return tensors, about


def _entry(entry: Any) -> tuple[np.dtype[Any], list[int], int, int]:
    """Return dtype, shape and place of an array, or raise `ValueError`."""
    if not isinstance(entry, dict) or entry.keys() != _ENTRY:
        raise ValueError("it is not described by dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise ValueError(f"no model uses the dtype {str(code)[:40]!r}")
    if not (_are_sizes(shape) and len(shape) <= 32 and _are_sizes(offsets) and len(offsets) == 2):
        raise ValueError("its shape or its place is none")
    dtype = _DTYPES[code]
    start, stop = offsets
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError("its size is not the one of its shape")
    return dtype, shape, start, stop


def _are_sizes(value: Any) -> bool:
    return type(value) is list and all(type(v) is int and 0 <= v < 2**62 for v in value)


def strict_json(data: bytes, name: str) -> Any:
    """Parse JSON, without the numbers that JSON does not have."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{name} is damaged: {str(error)[:200]}.") from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
