"""How the rows of all members are cut into tiles, and how a tile's votes are found.

Products are exact, so neither the cuts nor the order of the tiles can change a bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Piece", "Tile", "VotingRoom", "cut_tiles", "whole_tiles"]


@dataclass(frozen=True)
class Piece:
    """Rows ``low:high`` of one member; most members are one piece."""

    member: int
    low: int
    high: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True)
class Tile:
    """Rows ``start:stop`` of the stack, and the members whose last row is among them.

    Attributes
    ----------
    start, stop : int
        Rows of the tile.
    pieces : tuple of Piece
        The members in it, in order.
    members : ndarray of shape (g,)
        The members that end in this tile, whose scores are complete then.
    counts : ndarray of shape (g,)
        How many classes each of them knows. Its scores are as many rows of the tile's scores.
    classes : ndarray of shape (sum of counts,)
        Those classes, member after member.
    open_classes : int
        How many classes the member knows that goes on in the next tile, if there is one.
    """

    start: int
    stop: int
    pieces: tuple[Piece, ...]
    members: NDArray[np.intp]
    counts: NDArray[np.intp]
    classes: NDArray[np.int16]
    open_classes: int

    @property
    def n_scores(self) -> int:
        """Rows of scores while this tile is worked on, those of an unfinished member included."""
        return len(self.classes) + self.open_classes

    @cached_property
    def _by_knowledge(self) -> NDArray[np.intp]:
        """Places in `members`, those that know most classes first."""
        return np.argsort(-self.counts, kind="stable")

    @cached_property
    def _rows_by_rank(self) -> list[NDArray[np.intp]]:
        """Score rows of the first, second, ... class of all members that know so many."""
        firsts = (np.cumsum(self.counts) - self.counts)[self._by_knowledge]
        counts = self.counts[self._by_knowledge]
        most = int(counts[0]) if len(counts) else 0
        return [firsts[counts > rank] + rank for rank in range(most)]

    def vote(self, scores: NDArray[np.float64], votes: NDArray[np.int16], room: VotingRoom) -> None:
        """Write the class of each member's largest score, the smaller class on ties.

        Parameters
        ----------
        scores : ndarray of shape (sum of counts, width)
            Scores of the members that end in this tile.
        votes : ndarray of shape (k, width)
            Votes of all members; those of this tile's members are written.
        room : VotingRoom
            Memory to work in.
        """
        # Rank after rank for all members at once: calls are few, and all loops run along rows.
        first, *others = self._rows_by_rank
        best, found = room.best[: len(first)], room.found[: len(first)]
        np.take(scores, first, axis=0, out=best, mode="clip")
        found[:] = self.classes[first, np.newaxis]
        for rows in others:
            n = len(rows)
            leading, leader, change = best[:n], found[:n], room.change[:n]
            challenger = np.take(scores, rows, axis=0, out=room.challenger[:n], mode="clip")
            # Arithmetic instead of a masked copy: which class wins is hard to predict, and a
            # processor that guesses branches would be wrong half of the time.
            np.subtract(self.classes[rows, np.newaxis], leader, out=change)
            change *= np.greater(challenger, leading, out=room.better[:n]).view(np.int8)
            leader += change
            np.maximum(leading, challenger, out=leading)
        votes[self.members[self._by_knowledge]] = found


class VotingRoom:
    """Arrays that are used for one tile after the other, for fresh memory is slow.

    Parameters
    ----------
    tiles : sequence of Tile
        The tiles that will vote in it.
    width : int
        Number of test rows.
    """

    def __init__(self, tiles: Sequence[Tile], width: int) -> None:
        shape = (max((len(tile.members) for tile in tiles), default=0), width)
        self.best, self.challenger = np.empty(shape), np.empty(shape)
        self.found, self.change = np.empty(shape, np.int16), np.empty(shape, np.int16)
        self.better = np.empty(shape, np.bool_)


def cut_tiles(
    offsets: NDArray[np.intp], classes: Sequence[NDArray[np.int16]], limit: int
) -> list[Tile]:
    """Cut the rows of all members into tiles of at most `limit` rows.

    A member longer than a tile is cut into pieces; all others lie in one tile.
    """
    return [_tile(start, stop, pieces, classes) for start, stop, pieces in _cuts(offsets, limit)]


def whole_tiles(
    offsets: NDArray[np.intp], classes: Sequence[NDArray[np.int16]], limit: int
) -> list[Tile]:
    """Put whole members together until they have more than `limit` scores."""
    tiles, pieces, scores = list[Tile](), list[Piece](), 0
    for member, (low, high) in enumerate(pairwise(offsets.tolist())):
        if high == low:
            continue
        if pieces and scores + len(classes[member]) > limit:
            tiles.append(_tile(pieces[0].low, low, pieces, classes))
            pieces, scores = [], 0
        pieces.append(Piece(member, low, high, True, True))
        scores += len(classes[member])
    if pieces:
        tiles.append(_tile(pieces[0].low, int(offsets[-1]), pieces, classes))
    return tiles


def _cuts(offsets: NDArray[np.intp], limit: int) -> Iterator[tuple[int, int, list[Piece]]]:
    start, pieces = 0, list[Piece]()
    for member, (low, high) in enumerate(pairwise(offsets.tolist())):
        if high == low:
            continue
        if pieces and high - start > limit:
            yield start, low, pieces
            start, pieces = low, []
        while high - start > limit:
            yield start, start + limit, [Piece(member, start, start + limit, start == low, False)]
            start += limit
        begin = max(low, start)
        pieces.append(Piece(member, begin, high, begin == low, True))
    if pieces:
        yield start, int(offsets[-1]), pieces


def _tile(start: int, stop: int, pieces: list[Piece], classes: Sequence[NDArray[np.int16]]) -> Tile:
    ended = [piece.member for piece in pieces if piece.is_last]
    known = [classes[member] for member in ended]
    return Tile(
        start,
        stop,
        tuple(pieces),
        np.array(ended, dtype=np.intp),
        np.array([len(some) for some in known], dtype=np.intp),
        np.concatenate(known) if known else np.empty(0, dtype=np.int16),
        sum(len(classes[piece.member]) for piece in pieces if not piece.is_last),
    )
