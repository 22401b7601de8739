"""Strict readers of JSON, zip, npz and safetensors: a file has one meaning, or it is refused.

Hand-written around `json`, `zipfile`, NumPy and safetensors, which accept files that another parser
reads differently: repeated keys or names, overlapping entries or arrays. An npz file is read by the
parser that has checked it. Nothing here can hold code.
"""

from __future__ import annotations

import json
import math
import os
import stat
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError

Buffer = bytes | memoryview
_DTYPES = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
_ENTRY = {"dtype", "shape", "data_offsets"}
_LONGEST_HEADER = 2**27
_LOCAL_HEAD, _END = 30, 22


def parse_json(data: bytes | str, *, constants: bool = False) -> Any:
    """Parse JSON that has one meaning: no key twice, UTF-8, no NaN unless `constants` are allowed.

    Else raise `ValueError`.
    """
    text = data if isinstance(data, str) else data.decode("utf-8")
    try:
        constant = None if constants else _no_constant
        return json.loads(text, parse_constant=constant, object_pairs_hook=_no_repeats)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {repeated[:80]!r} appears twice")
    return found


def strict_json(data: bytes | str, name: str) -> Any:
    """Parse JSON of a model; `name` says in a `StoreError` what was read."""
    try:
        return parse_json(data)
    except ValueError as error:
        raise StoreError(f"{name} is damaged: {str(error)[:200]}.") from error


def read_regular_file(path: str | os.PathLike[str], largest: int) -> bytes:
    """Return the bytes of a regular file of at most `largest` bytes, else raise `ValueError`."""
    # Opening a pipe waits for a writer unless told otherwise.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if status.st_size > largest:
            raise ValueError(f"it has {status.st_size:,} bytes; at most {largest:,} are read")
        return file.read(status.st_size)


def check_zip(archive: zipfile.ZipFile, *, stored: bool = False) -> dict[str, zipfile.ZipInfo]:
    """Return the entries of an archive by name, or raise `ValueError` if two readers may differ.

    With `stored` nothing is compressed, and no byte lies before, between or behind the entries.
    """
    file: Any = archive.fp
    entries = archive.infolist()
    found = {entry.filename: entry for entry in entries}
    if len(found) != len(entries):
        raise ValueError("it holds two files of the same name")
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        name, size = entry.filename, entry.compress_size
        if entry.filename != entry.orig_filename:
            raise ValueError(f"the name {name[:80]!r} can be read in two ways")
        plain = entry.compress_type == zipfile.ZIP_STORED and size == entry.file_size
        if (stored and not plain) or entry.flag_bits & 0x1:
            raise ValueError(f"{name[:80]!r} is compressed or encrypted")
        file.seek(entry.header_offset)
        head = file.read(_LOCAL_HEAD)
        apart = entry.header_offset != end if stored else entry.header_offset < end
        if apart or head[:4] != b"PK\x03\x04":
            raise ValueError(f"{name[:80]!r} overlaps what is before it or is misplaced")
        length = int.from_bytes(head[26:28], "little")
        encoding = "utf-8" if entry.flag_bits & 0x800 else "cp437"
        if file.read(length) != name.encode(encoding, "replace"):
            raise ValueError(f"{name[:80]!r} has two names")
        end = entry.header_offset + _LOCAL_HEAD + length + size
        end += int.from_bytes(head[28:30], "little")
    if end > archive.start_dir or (stored and end != archive.start_dir):
        raise ValueError("its last file does not end where its directory begins")
    file.seek(-_END, os.SEEK_END)
    if stored and file.read(4) != b"PK\x05\x06":
        raise ValueError("it continues after its end")
    return found


def read_npz(
    file: IO[bytes], names: Iterable[str] | None = None, *, largest: int | None = None
) -> dict[str, NDArray[Any]]:
    """Return arrays of an npz file by name, all by default, of at most `largest` bytes each.

    Nothing is unpickled. A missing name is a `KeyError`; a damaged file raises nearly anything.
    """
    with zipfile.ZipFile(file) as archive:
        entries = check_zip(archive)
        known = {name.removesuffix(".npy"): entry for name, entry in entries.items()}
        if len(known) != len(entries):
            raise ValueError("it holds two arrays of the same name")
        arrays: dict[str, NDArray[Any]] = {}
        for name in known if names is None else names:
            if name not in known:
                raise KeyError(sorted(known))
            if largest is not None and known[name].file_size > largest:
                raise ValueError(f"{name!r} has more than {largest:,} bytes")
            with archive.open(known[name]) as part:
                arrays[name] = read_array(part, known[name].file_size)
        return arrays


def read_array(file: IO[bytes], size: int) -> NDArray[Any]:
    """Read an npy file of `size` bytes; no room is made for more than is there."""
    headers = np.lib.format
    first = headers.read_magic(file) == (1, 0)
    read = headers.read_array_header_1_0 if first else headers.read_array_header_2_0
    shape, _, dtype = read(file)
    needed, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if needed > there and not dtype.hasobject:  # which is refused below
        raise ValueError(f"an array of {shape} and {dtype} takes {needed:,} bytes, not {there:,}")
    file.seek(0)
    array: NDArray[Any] = headers.read_array(file, allow_pickle=False)
    return array


def encode_tensors(tensors: Mapping[str, NDArray[Any]], about: Mapping[str, str]) -> bytes:
    """Return a safetensors file that holds `tensors` and, as metadata, the texts `about`."""
    from safetensors.numpy import save  # here, as certificates are read with NumPy alone

    plain = {
        name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)
        for name, array in tensors.items()
    }
    data: bytes = save(plain, metadata=dict(about))
    return data


def decode_tensors(data: Buffer, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays, as views of `data`, and the texts that `encode_tensors` was given.

    Hand-written, as safetensors copies every array; views let large members stay in a mapped file.
    Arrays must fill the data exactly, else a `StoreError` begins with `name`.
    """
    view = memoryview(data)
    size = int.from_bytes(view[:8], "little") if len(view) >= 8 else -1
    if not 2 <= size <= min(len(view) - 8, _LONGEST_HEADER):
        raise StoreError(f"{name} is damaged: its header does not fit into the file.")
    header = strict_json(bytes(view[8 : 8 + size]), name)
    about = header.pop("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(about, dict):
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
    if not all(isinstance(text, str) for text in about.values()):
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
        raise ValueError("its shape or its place is not valid")
    dtype = _DTYPES[code]
    start, stop = offsets
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError("its size does not match its shape")
    return dtype, shape, start, stop


def _are_sizes(value: Any) -> bool:
    return type(value) is list and all(type(v) is int and 0 <= v < 2**62 for v in value)
