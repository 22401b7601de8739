"""Counter-based random numbers: the same integers on every device, in any order.

Philox-4x32-10 (Salmon et al., 2011) in int64 tensor operations. A draw is a function of its
address (seed, partition, purpose, epoch, row) alone, so no member can move another's stream, and
a resumed run continues where a finished one would have been.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

__all__ = ["Purpose", "Stream", "below", "philox", "uniform"]

_MASK = 0xFFFFFFFF
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


class Purpose(IntEnum):
    """What a draw is for; part of its address, so purposes never share numbers."""

    SHUFFLE = 0
    CROP = 1
    AFFINE = 2
    COLOUR = 3
    CUTOUT = 4
    MIXUP = 5
    VIEW = 12
    INITIAL = 16


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Return four 32-bit words per counter, shape (..., 4), as int64.

    Parameters
    ----------
    counter : four int64 tensors of one broadcast shape
        Words in [0, 2**32).
    key : two int64 tensors
        Words in [0, 2**32).

    Examples
    --------
    >>> zero = torch.zeros((), dtype=torch.int64)
    >>> [f"{word:08x}" for word in philox((zero,) * 4, (zero,) * 2).tolist()]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)  # type: ignore[no-untyped-call]
    k0, k1 = key
    for _ in range(10):
        # The int64 product wraps modulo 2**64; masking after the shift drops the sign's copies.
        first, second = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (
            ((second >> 32) & _MASK) ^ c1 ^ k0,
            second & _MASK,
            ((first >> 32) & _MASK) ^ c3 ^ k1,
            first & _MASK,
        )
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return torch.stack((c0, c1, c2, c3), dim=-1)


def uniform(words: Tensor) -> Tensor:
    """Map 32-bit words to float32 in [0, 1); exact, hence alike on every device."""
    return (words >> 8).to(torch.float32) * 2.0**-24


def below(words: Tensor, bound: int) -> Tensor:
    """Map 32-bit words to integers in [0, bound)."""
    return (words * bound) >> 32


class Stream:
    """The streams of several members on one device.

    Parameters
    ----------
    seed : int
        Seed of the ensemble, in [0, 2**64).
    lanes : tensor of shape (S,)
        Number of each member's stream: its partition index, or 0 under one shared seed.
    host : tensor of shape (S,), optional
        The same numbers on the CPU, where they are known already: asking the device would wait
        for all work queued there.
    """

    def __init__(self, seed: int, lanes: Tensor, host: Tensor | None = None) -> None:
        self._seed, self._host = seed, host
        self._low = seed & _MASK
        self._high = (seed >> 32) & _MASK
        self.lanes = lanes.to(torch.int64)

    def on_host(self) -> Stream:
        """Return the same streams on the CPU."""
        return Stream(self._seed, self.lanes.cpu() if self._host is None else self._host)

    def words(self, purpose: int, epoch: int | Tensor, rows: Tensor) -> Tensor:
        """Draw four words per lane and row.

        Parameters
        ----------
        purpose : int
            A `Purpose`; ``INITIAL + j`` for the j-th parameter.
        epoch : int or int64 tensor of shape (E, 1, 1)
            Epochs, counted from 0.
        rows : int64 tensor of shape (n,), (S, n) or (E, S, n)
            Row numbers within the partition, in canonical order.

        Returns
        -------
        int64 tensor of shape (S, n, 4), or (E, S, n, 4)
        """
        rows = rows.expand(len(self.lanes), -1) if rows.ndim == 1 else rows
        device = rows.device

        def word(value: int | Tensor) -> Tensor:
            if isinstance(value, Tensor):
                return value
            # Filled on the device: a copy from the host would wait for all work queued there.
            return torch.full((), value, dtype=torch.int64, device=device)

        counter = (rows, word(epoch), word(int(purpose)), word(self._high))
        return philox(counter, (word(self._low), self.lanes[:, None]))

    def values(self, purpose: int, count: int) -> Tensor:
        """Draw `count` words per lane in one run, shape (S, count)."""
        blocks = torch.arange(-(-count // 4), device=self.lanes.device)
        return self.words(purpose, 0, blocks).reshape(len(self.lanes), -1)[:, :count]
