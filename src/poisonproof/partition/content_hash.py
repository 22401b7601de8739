"""The default partitioner: a cryptographic digest of the sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.partition.base import Partitioner
from poisonproof.partition.canonical import sample_digests

__all__ = ["ContentHash", "reduce_digests"]


@dataclass(frozen=True, kw_only=True)
class ContentHash(Partitioner):
    """Put each sample where the digest of its values says; the label is not hashed.

    Parameters
    ----------
    n_partitions : int
        The number of partitions, k.

    Guarantee
    ---------
    The partition of a row depends on its values alone. A row inserted, deleted or relabelled
    touches one partition, and a replaced row at most two.

    Examples
    --------
    >>> X = np.arange(12).reshape(4, 3)
    >>> partitioner = ContentHash(n_partitions=50)
    >>> np.array_equal(partitioner.assign(X), partitioner.assign(X.astype(np.float32)))
    True
    """

    name: ClassVar[str] = "content"
    certifies: ClassVar[Mapping[str, int]] = MappingProxyType(
        {"insert_delete": 1, "label_flip": 1, "replace": 2}
    )
    unit: ClassVar[str] = "row"
    rowwise: ClassVar[bool] = True
    hint: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def assign(self, X: Any, groups: Any = None) -> NDArray[np.int64]:
        """Return the partition of each sample; `groups` are not read."""
        return self.assign_digests(sample_digests(X))

    def assign_digests(self, digests: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the partition of each sample from its digest, shape (n, 32)."""
        return reduce_digests(digests, self.k)


def reduce_digests(digests: NDArray[np.uint8], k: int) -> NDArray[np.int64]:
    """Return the first 128 bits of each digest, read as a little-endian number, modulo `k`.

    No partition is more likely than another by more than k / 2^128.

    Examples
    --------
    >>> reduce_digests(np.full((1, 32), 255, dtype=np.uint8), 1000), (2**128 - 1) % 1000
    (array([455]), 455)
    """
    words = np.ascontiguousarray(digests[:, :16]).view("<u8")
    low, high = words[:, 0] % k, words[:, 1] % k
    # With k < 2^31 no term reaches 2^62, so the exact remainder fits uint64.
    remainder = (high * np.uint64(2**64 % k) + low) % np.uint64(k)
    return np.asarray(remainder, dtype=np.int64)
