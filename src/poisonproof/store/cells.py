"""Cells that are not numbers of one type, as tagged JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.store.tensors import strict_json

__all__ = ["decode_cells", "encode_cells"]


def encode_cells(cells: Sequence[Any]) -> NDArray[np.uint8]:
    """Return cells as the bytes of a JSON list.

    >>> decode_cells(encode_cells(["ant", 3, None, 0.1, b"x"]))
    ['ant', 3, None, 0.1, b'x']
    """
    text = json.dumps([_encode(cell) for cell in cells], separators=(",", ":"))
    return np.frombuffer(text.encode(), dtype=np.uint8)


def decode_cells(data: NDArray[np.uint8]) -> list[Any]:
    """Return what `encode_cells` was given; raises `ValueError` for anything else."""
    cells = strict_json(data.tobytes(), "a list of cells")
    if not isinstance(cells, list):
        raise ValueError("cells are not a list")
    return [_decode(cell) for cell in cells]


def _encode(cell: Any) -> Any:
    if isinstance(cell, np.datetime64 | np.timedelta64):
        unit, step = np.datetime_data(cell.dtype)
        return {cell.dtype.kind: [int(cell.view(np.int64)), f"{step}{unit}"]}
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, float) and not math.isfinite(cell):
        return {"f": repr(cell)}
    if cell is None or isinstance(cell, str | bool | int | float):
        return cell
    if isinstance(cell, bytes):
        return {"b": cell.hex()}
    if isinstance(cell, list | tuple):
        return {"l": [_encode(part) for part in cell]}
    if type(cell).__name__ == "NAType":
        return None
    if hasattr(cell, "to_datetime64") and getattr(cell, "tzinfo", None) is None:
        return _encode(cell.to_datetime64())
    if hasattr(cell, "to_timedelta64"):
        return _encode(cell.to_timedelta64())
    raise StoreError(
        f"cells of type {type(cell).__name__} cannot be kept in a store. Save without keep_data, "
        "and give `update` and `audit` the data."
    )


def _decode(cell: Any) -> Any:
    if not isinstance(cell, dict):
        if isinstance(cell, list):
            raise ValueError("a cell without a tag")
        return cell
    if len(cell) != 1:
        raise ValueError("a cell has one tag")
    ((tag, value),) = cell.items()
    if tag == "f" and value in ("nan", "inf", "-inf"):
        return float(value)
    if tag == "b":
        return bytes.fromhex(value)
    if tag == "l":
        return [_decode(part) for part in value]
    if tag in ("M", "m"):
        count, unit = value
        return np.array([count], dtype=np.int64).view(f"{tag}8[{unit}]")[0]
    raise ValueError(f"unknown tag {str(tag)[:40]!r}")
