"""Coefficients of neighbouring members as one matrix.

A product for each of many small members is mostly overhead. Members that lie side by side in a
tile share one block-diagonal matrix instead: their kernels and coefficients are integers and their
sums exact, so the zeros between the blocks change no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poisonproof.learners.closed_form.tiles import Piece, Tile

__all__ = ["Readout", "tile_readouts"]

_SHARED_ROWS = 32
"""Members are put together until they have so many rows."""


@dataclass(frozen=True)
class Readout:
    """How rows ``low:high`` of a tile's kernels add to rows ``first:last`` of its scores.

    Attributes
    ----------
    low, high, first, last : int
        Rows of kernels, and of scores.
    parts : tuple of ndarray of shape (last - first, high - low)
        Upper bits of the coefficients, and lower bits if there are any.
    continues, is_open : bool
        Whether earlier rows of this member lie in the tile before, and later ones in the next.
    """

    low: int
    high: int
    first: int
    last: int
    parts: tuple[NDArray[np.float64], ...]
    continues: bool
    is_open: bool


def tile_readouts(
    tile: Tile, parts: Sequence[NDArray[np.float64]], classes: Sequence[NDArray[np.int16]]
) -> list[Readout]:
    """Return the readouts of a tile.

    Parameters
    ----------
    tile : Tile
        Some rows of the stack.
    parts : sequence of ndarray of shape (rows of the stack, C)
        Upper and lower bits of every row's coefficients.
    classes : sequence of ndarray
        The classes each member knows.
    """
    readouts = []
    first = 0
    for pieces in _neighbours(tile.pieces):
        counts = [len(classes[piece.member]) for piece in pieces]
        low, high, last = pieces[0].low, pieces[-1].high, first + sum(counts)
        blocks = tuple(np.zeros((last - first, high - low)) for _ in parts)
        row = 0
        for piece, count in zip(pieces, counts, strict=True):
            known = classes[piece.member]
            for part, block in zip(parts, blocks, strict=True):
                columns = slice(piece.low - low, piece.high - low)
                block[row : row + count, columns] = part[piece.low : piece.high, known].T
            row += count
        is_open = not pieces[-1].is_last
        span = (low - tile.start, high - tile.start, first, last)
        readouts.append(Readout(*span, blocks, not pieces[0].is_first, is_open))
        first = first if is_open else last
    return readouts


def _neighbours(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Group whole small members; one that is cut by the tile's edge stays alone."""
    group: list[Piece] = []
    for piece in pieces:
        whole = piece.is_first and piece.is_last
        if group and (not whole or piece.high - group[0].low > _SHARED_ROWS):
            yield group
            group = []
        group.append(piece)
        if not whole:
            yield group
            group = []
    if group:
        yield group
