"""Cells that are not numbers of one type, as tagged JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.partition.cells import (
    ATTOSECONDS,
    PER_SECOND,
    Duration,
    Instant,
    NoCanonicalFormError,
    canonical_cell,
)
from poisonproof.strict import strict_json

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
    return _encode_canonical(cell)


def _encode_canonical(cell: Any) -> Any:
    """Keep the value that counts: a member sees 1.50 and 1.5, or a day and its midnight, alike."""
    try:
        value = canonical_cell(cell)
    except NoCanonicalFormError as error:
        raise StoreError(
            f"cells of type {type(cell).__name__} cannot be kept in a store. Save without "
            "keep_data, and give `update` and `audit` the data."
        ) from error
    if isinstance(value, Fraction):
        return {"q": [value.numerator, value.denominator]}
    if isinstance(value, Instant | Duration):
        unit, per_second = next(
            (unit, count)
            for unit, count in {"s": 1, **PER_SECOND}.items()
            if value.attoseconds % (ATTOSECONDS // count) == 0
        )
        count = value.seconds * per_second + value.attoseconds * per_second // ATTOSECONDS
        return {"M" if isinstance(value, Instant) else "m": [count, f"1{unit}"]}
    return _encode(value)


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
    if tag == "q":
        numerator, denominator = value
        return Fraction(numerator, denominator)
    if tag in ("M", "m"):
        count, unit = value
        return np.array([count], dtype=np.int64).view(f"{tag}8[{unit}]")[0]
    raise ValueError(f"unknown tag {str(tag)[:40]!r}")
