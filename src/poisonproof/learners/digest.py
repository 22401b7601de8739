"""A digest of a fitted object: equal state, equal digest, in any process.

The walk follows the protocol that Python objects offer for copying (`__reduce_ex__`), and hashes
what it finds by value. Nothing is pickled, and nothing that only identifies an object in memory
(its address, which strings are shared) reaches the digest.
"""

from __future__ import annotations

import hashlib
import struct
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["state_digest"]


def state_digest(value: Any) -> str:
    """Return the hexadecimal digest of a fitted object's state.

    >>> import numpy as np
    >>> state_digest({"w": np.arange(3)}) == state_digest({"w": np.arange(3)})
    True
    >>> state_digest({"w": np.arange(3)}) == state_digest({"w": np.arange(3.0)})
    False
    """
    walk = _Walk()
    walk.visit(value)
    return walk.hash.hexdigest()


class _Walk:
    """One pass over an object graph; a second visit to the same object refers to the first."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=32, person=b"poisonproof-mem")
        self.seen: dict[int, int] = {}
        # Objects are kept alive so that an id is not used twice during the walk.
        self.alive: list[Any] = []

    def visit(self, value: Any) -> None:
        scalar = _scalar_bytes(value)
        if scalar is not None:
            self.put(*scalar)
            return
        if id(value) in self.seen:
            self.put("again", str(self.seen[id(value)]).encode())
            return
        self.seen[id(value)] = len(self.seen)
        self.alive.append(value)
        if isinstance(value, np.ndarray):
            self.visit_array(value)
        elif sparse.issparse(value):
            self.visit_sparse(value)
        elif isinstance(value, Mapping):
            self.put("mapping", str(len(value)).encode())
            for key, item in value.items():
                self.visit(key)
                self.visit(item)
        elif isinstance(value, (list, tuple)):
            self.put(type(value).__name__, str(len(value)).encode())
            for item in value:
                self.visit(item)
        elif isinstance(value, (set, frozenset)):
            self.put("set", b"".join(sorted(state_digest(item).encode() for item in value)))
        else:
            self.visit_object(value)

    def visit_array(self, array: np.ndarray[Any, Any]) -> None:
        if array.dtype.names is not None:
            # Field by field: the padding between fields holds whatever was in memory.
            self.put("fields", f"{array.shape}{array.dtype.names}".encode())
            for name in array.dtype.names:
                self.visit_array(array[name])
        elif array.dtype.hasobject:
            self.put("objects", str(array.shape).encode())
            for item in array.ravel():
                self.visit(item)
        else:
            self.put("array", f"{array.dtype.str}{array.shape}".encode())
            self.put("", np.ascontiguousarray(array).tobytes())

    def visit_sparse(self, matrix: Any) -> None:
        self.put("sparse", f"{matrix.format}{matrix.shape}".encode())
        csr = matrix.tocsr()
        for part in (csr.indptr, csr.indices, csr.data):
            self.visit_array(part)

    def visit_object(self, value: Any) -> None:
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            self.put("global", f"{type(value).__module__}.{reduced}".encode())
            return
        self.put("object", f"{type(value).__module__}.{type(value).__qualname__}".encode())
        for part in reduced[1:3]:
            self.visit(part)
        for items in reduced[3:5]:
            self.visit(None if items is None else list(items))

    def put(self, tag: str, content: bytes) -> None:
        self.hash.update(struct.pack("<B", len(tag)) + tag.encode())
        self.hash.update(struct.pack("<Q", len(content)))
        self.hash.update(content)


def _scalar_bytes(value: Any) -> tuple[str, bytes] | None:
    """Encode what has no parts; None for everything else."""
    if value is None or value is Ellipsis or value is NotImplemented:
        return "constant", repr(value).encode()
    if isinstance(value, np.generic) and not isinstance(value, np.void):
        return "numpy", value.dtype.str.encode() + value.tobytes()
    if isinstance(value, (bool, int)):
        return type(value).__name__, str(int(value)).encode()
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, str):
        return "str", value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray)):
        return "bytes", bytes(value)
    if isinstance(value, np.dtype):
        return "dtype", str(value).encode()
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, np.ufunc)):
        module = getattr(value, "__module__", "numpy")
        return "global", f"{module}.{getattr(value, '__qualname__', value.__name__)}".encode()
    return None
