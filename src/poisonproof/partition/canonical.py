"""Digests of samples: equal for equal values, whatever holds them.

This is the first step of everything: the digest decides the partition of `ContentHash` and the
order of the rows inside every partition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.partition.blocks import CellBlock, SparseBlock, row_blocks
from poisonproof.partition.containers import as_container, n_rows
from poisonproof.partition.encoding import Encoded, encode_dense, encode_sparse, image_prefix
from poisonproof.partition.table_encoding import encode_cells

__all__ = [
    "CANONICAL_FORM",
    "DIGEST_SIZE",
    "are_among",
    "canonical_bytes",
    "digests_among",
    "sample_digests",
]

CANONICAL_FORM = 1
"""Version of the encoding; another version puts samples into other partitions."""

DIGEST_SIZE = 32
DOMAIN = f"poisonproof.row{CANONICAL_FORM}".encode()
"""Hashed in front of every row, so that these digests are nobody else's."""


def sample_digests(X: Any) -> NDArray[np.uint8]:
    """Return one cryptographic digest per sample.

    Parameters
    ----------
    X : array, sparse matrix, frame, series or sequence of n samples
        See ``docs/canonical-form.md`` for what is understood.

    Returns
    -------
    ndarray of uint8 of shape (n, 32)
        SHA-256 of `DOMAIN` and the canonical bytes of each row.

    Guarantee
    ---------
    A digest depends on the values of its own row alone: not on other rows, the row's number, the
    dtype, the container, its memory layout or byte order, or the names of columns.

    Assumes
    -------
    Nobody can find two samples with the same SHA-256 digest.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> X = np.array([[0, 3, 0], [1, 2, 3]])
    >>> np.array_equal(sample_digests(X), sample_digests(sp.csr_matrix(X.astype(float))))
    True
    """
    X = as_container(X)
    digests = np.empty((n_rows(X), DIGEST_SIZE), dtype=np.uint8)
    for rows, header, pieces in _encoded(X):
        # Copying a hash that has read the header is cheaper than joining header and payload.
        fresh = hashlib.sha256(DOMAIN + header).copy
        found = []
        for piece in pieces:
            state = fresh()
            state.update(piece)
            found.append(state.digest())
        digests[rows] = np.frombuffer(b"".join(found), dtype=np.uint8).reshape(-1, DIGEST_SIZE)
    return digests


def are_among(X: Any, others: Any) -> NDArray[np.bool_]:
    """Return which samples of `X` are among others, whatever holds them, shape (n,).

    >>> are_among([[1, 2], [3, 4]], np.array([[3.0, 4.0]]))
    array([False,  True])
    """
    return digests_among(sample_digests(X), [sample_digests(others)])


def digests_among(
    digests: NDArray[np.uint8], others: Iterable[NDArray[np.uint8]]
) -> NDArray[np.bool_]:
    """Return which digests are among others, that come in several arrays."""
    known = {digest.tobytes() for some in others for digest in some}
    return np.fromiter((digest.tobytes() in known for digest in digests), np.bool_, len(digests))


def canonical_bytes(X: Any) -> list[bytes]:
    r"""Return the canonical bytes of each sample: what `sample_digests` hashes.

    Examples
    --------
    >>> canonical_bytes([[1, 2.0, True]])
    [b'DB\x03\x00\x00\x00\x00\x00\x00\x00\x01\x02\x01']
    """
    X = as_container(X)
    result = [b""] * n_rows(X)
    for encoded in _encoded(X):
        for row, piece in zip(encoded.rows, encoded.pieces, strict=True):
            result[row] = encoded.header + bytes(piece)
    return result


def _encoded(X: Any) -> Iterator[Encoded]:
    for block in row_blocks(X):
        if isinstance(block, SparseBlock):
            yield from encode_sparse(block.matrix, block.rows)
        elif isinstance(block, CellBlock):
            yield from encode_cells(block)
        else:
            yield from encode_dense(block.values, block.rows, image_prefix(block.shape))
