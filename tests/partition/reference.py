"""The canonical bytes once more, one cell at a time and as slowly as the format reads."""

from __future__ import annotations

import datetime
import math
import struct

EPOCH = datetime.datetime(1970, 1, 1)


def reference_bytes(row, shape=None):
    """Encode one row of plain Python values."""
    prefix = b""
    if shape is not None:
        prefix = b"R" + bytes([len(shape)]) + b"".join(struct.pack("<Q", n) for n in shape)
    cells = [math.nan if cell is None else cell for cell in row]
    numbers = all(isinstance(cell, (int, float)) for cell in cells)
    kept = [i for i, cell in enumerate(cells) if cell != 0]
    pairs = numbers and 8 * len(kept) < len(cells)
    if numbers and all(_whole(c) and 0 <= c <= 255 for c in cells):
        tag, write = b"B", lambda c: struct.pack("<B", int(c))
    elif numbers and all(_whole(c) and -(2**63) <= c < 2**63 for c in cells):
        tag, write = b"I", lambda c: struct.pack("<q", int(c))
    elif numbers and all(_is_float64(c) for c in cells):
        tag, write = b"F", _float
    else:
        tag, write = b"O", _tagged
    header = (b"S" if pairs else b"D") + tag + struct.pack("<Q", len(cells))
    if not pairs:
        return prefix + header + b"".join(map(write, cells))
    size = next(s for s in (1, 2, 4, 8) if len(cells) - 1 < 256**s)
    return prefix + header + b"".join(i.to_bytes(size, "little") + write(cells[i]) for i in kept)


def _is_nan(cell):
    return isinstance(cell, float) and math.isnan(cell)


def _whole(cell):
    return math.isfinite(cell) and cell == math.floor(cell)


def _is_float64(cell):
    if isinstance(cell, float):
        return True
    try:
        return int(float(cell)) == cell
    except OverflowError:
        return False


def _float(cell):
    if _is_nan(cell):
        return bytes.fromhex("000000000000f87f")
    return struct.pack("<d", float(cell) or 0.0)


def _tagged(cell):
    if isinstance(cell, str):
        data = cell.encode("utf-8", "surrogatepass")
        return b"s" + struct.pack("<Q", len(data)) + data
    if isinstance(cell, bytes):
        return b"b" + struct.pack("<Q", len(cell)) + cell
    if isinstance(cell, datetime.datetime):
        return b"t" + _time(cell - EPOCH)
    if _is_nan(cell):
        return b"n"
    if not _whole(cell):
        return b"f" + struct.pack("<d", cell)
    cell = int(cell)
    if -(2**63) <= cell < 2**63:
        return b"i" + struct.pack("<q", cell)
    size = 1
    while not -(256**size // 2) <= cell < 256**size // 2:
        size += 1
    return b"z" + struct.pack("<Q", size) + cell.to_bytes(size, "little", signed=True)


def _time(length):
    microseconds = length // datetime.timedelta(microseconds=1)
    seconds, rest = divmod(microseconds, 10**6)
    return _tagged(seconds) + struct.pack("<Q", rest * 10**12)
