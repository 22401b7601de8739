"""Votes in the fewest bytes: an entropy coder with one model per test row.

The votes of one row are nearly independent draws from that row's own distribution, and its vote
counts are that distribution. Each row is coded by a range coder of its own (rANS: one number that
grows with every vote by its information, and sheds 16 bits whenever it gets too large), all rows
side by side in NumPy. On simulated votes with MNIST's accuracies the words are within 1 % of the
entropy and the whole file, counts included, within 10 %; deflate needs 40 to 50 % more than that,
and LZMA 20 to 25 % more at twenty times the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError

__all__ = ["ABSTAINED", "decode_votes", "encode_votes"]

ABSTAINED = 255
"""How an abstention is written in a matrix of uint8 votes."""

LARGEST = 60_000
"""Votes per row in one code: one shed word must be enough for every vote."""

_WORD = 16


def encode_votes(votes: NDArray[np.uint8], n_classes: int) -> dict[str, NDArray[Any]]:
    """Code a vote matrix.

    Parameters
    ----------
    votes : ndarray of uint8, shape (n, k)
        Class indices, `ABSTAINED` where a member abstains.
    n_classes : int
        Number of classes, at most 255.

    Returns
    -------
    dict of ndarray
        ``counts`` (n, C + 1), abstentions last; ``states`` (n,); ``lengths`` (n,) words of each
        row; ``words``, all rows one after the other.

    Examples
    --------
    >>> votes = np.array([[2, 2, 0, 255], [1, 1, 1, 1]], dtype=np.uint8)
    >>> code = encode_votes(votes, n_classes=3)
    >>> code["counts"]
    array([[1, 0, 2, 1],
           [0, 4, 0, 0]], dtype=uint16)
    >>> decode_votes(code)
    array([[  2,   2,   0, 255],
           [  1,   1,   1,   1]], dtype=uint8)
    """
    n, k = votes.shape
    symbols = np.where(votes == ABSTAINED, n_classes, votes).astype(np.intp)
    outside = (votes != ABSTAINED) & (votes >= min(n_classes, ABSTAINED))
    if k > LARGEST or n_classes > ABSTAINED or outside.any():
        raise InvalidInputError(
            f"At most {LARGEST} votes per row of up to 255 classes can be coded, and every vote "
            f"must be below n_classes={n_classes}. Got {k} votes per row."
        )
    width = n_classes + 1
    places = np.arange(n)[:, np.newaxis] * width + symbols
    counts = np.bincount(places.ravel(), minlength=n * width).reshape(n, width)
    starts = np.cumsum(counts, axis=1) - counts
    states = np.full(n, k << _WORD, dtype=np.uint64)
    words = np.empty((n, k), dtype=np.uint16)
    lengths = np.zeros(n, dtype=np.int64)
    rows = np.arange(n)
    for j in reversed(range(k)):  # the last vote first: decoding meets them in order
        share = counts[rows, symbols[:, j]].astype(np.uint64)
        full = np.flatnonzero(states >= share << np.uint64(2 * _WORD))
        words[full, lengths[full]] = states[full].astype(np.uint16)  # its lowest 16 bits
        lengths[full] += 1
        states[full] >>= np.uint64(_WORD)
        whole, rest = np.divmod(states, share)
        states = whole * np.uint64(k) + starts[rows, symbols[:, j]].astype(np.uint64) + rest
    used = np.arange(k) < lengths[:, np.newaxis]
    return {
        "counts": counts.astype(np.uint16),
        "states": states,
        "lengths": lengths.astype(np.uint16),
        "words": words[used],
    }


def decode_votes(code: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return the votes that `encode_votes` coded, shape (n, k)."""
    try:
        counts = code["counts"].astype(np.int64)
        states = code["states"].astype(np.uint64)
        lengths = code["lengths"].astype(np.int64)
        words = code["words"].astype(np.uint64)
        n, width = counts.shape
        k = int(counts[0].sum()) if n else 0
        fits = bool((counts.sum(axis=1) == k).all()) and int(lengths.sum()) == len(words)
        if not fits or states.shape != (n,) or lengths.shape != (n,):
            raise InvalidInputError("The coded votes are damaged: their parts do not fit.")
    except (KeyError, ValueError) as error:
        raise InvalidInputError(f"The coded votes are damaged: {error}.") from error
    starts = np.cumsum(counts, axis=1) - counts
    # Which vote owns each of the k places of a row: its counts, laid side by side.
    owners = np.repeat(np.tile(np.arange(width), n), counts.ravel()).reshape(n, k)
    next_word = np.cumsum(lengths)  # one past the last word of each row; words are read backwards
    votes = np.empty((n, k), dtype=np.uint8)
    rows = np.arange(n)
    for j in range(k):
        whole, place = np.divmod(states, np.uint64(k))
        symbol = owners[rows, place.astype(np.intp)]
        votes[:, j] = np.where(symbol == width - 1, ABSTAINED, symbol)
        share, start = counts[rows, symbol], starts[rows, symbol]
        states = share.astype(np.uint64) * whole + place - start.astype(np.uint64)
        low = np.flatnonzero(states < np.uint64(k << _WORD))
        next_word[low] -= 1
        states[low] = (states[low] << np.uint64(_WORD)) | words[next_word[low]]
    if not np.array_equal(next_word, np.cumsum(lengths) - lengths):
        raise InvalidInputError("The coded votes are damaged: not all of the code was used.")
    return votes
