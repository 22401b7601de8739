"""Training rows come back with the digests they had, or are not kept at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from poisonproof.exceptions import StoreError
from poisonproof.partition import take_canonical
from poisonproof.partition.partitioned import Shard
from poisonproof.store.items import decode_rows, encode_rows
from poisonproof.store.manifest import decode_block, encode_block

NUMBERS = np.array([[1.5, -0.0, np.nan], [0.0, 2.0, 1e30], [1.5, -0.0, np.nan]])
MIXED = {"a": [1, 2, 3], "b": ["x", "ü", None], "c": [0.5, np.nan, -1.0], "d": [True, False, True]}
CONTAINERS: dict[str, Callable[[], Any]] = {
    "float64": lambda: NUMBERS,
    "float32": lambda: NUMBERS.astype(np.float32),
    "images": lambda: np.arange(24, dtype=np.uint8).reshape(3, 2, 4),
    "booleans": lambda: np.array([[True], [False], [True]]),
    "sparse-matrix": lambda: sparse.csr_matrix(np.nan_to_num(NUMBERS)),
    "sparse-array": lambda: sparse.csr_array(np.nan_to_num(NUMBERS)),
    "frame": lambda: pd.DataFrame(MIXED),
    "frame-of-numbers": lambda: pd.DataFrame(np.nan_to_num(NUMBERS)),
    "frame-of-dates": lambda: pd.DataFrame(
        {"t": pd.to_datetime(["2020-01-02", None, "1999-01-01"])}
    ),
    "categories": lambda: pd.DataFrame({"c": pd.Categorical(["a", "b", "a"])}),
    "nullable": lambda: pd.DataFrame({"i": pd.array([1, None, 3], dtype="Int64")}),
    "polars": lambda: pl.DataFrame(MIXED),
    "texts": lambda: np.array(["one text", "another", "déjà vu"], dtype=object),
    "list-of-texts": lambda: ["one text", "another", "déjà vu"],
    "objects": lambda: np.array([[1, "x"], [2.5, None], [b"raw", 2**70]], dtype=object),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_come_back_as_their_member_sees_them(name: str, weighted: bool) -> None:
    weight = np.array([0.5, 1.0, 2.0]) if weighted else None
    shard = Shard.build(CONTAINERS[name](), np.array([2, 0, 1]), weight)
    item = decode_block(encode_block([encode_rows(4, shard)]), "block")[4]
    back = decode_rows(item, "partition 4")
    assert back.digest() == shard.digest() == item.digest
    assert np.array_equal(back.y, shard.y)
    here, there = take_canonical(shard.X), take_canonical(back.X)
    assert type(here) is type(there)
    if sparse.issparse(here):
        here, there = here.toarray(), there.toarray()
    assert pd.DataFrame(np.asarray(here).reshape(3, -1)).equals(
        pd.DataFrame(np.asarray(there).reshape(3, -1))
    )


def test_cells_that_cannot_be_kept_are_refused_with_advice() -> None:
    digests = np.zeros((1, 32), np.uint8)
    shard = Shard(np.array([[1j]], dtype=object), np.array([0]), None, digests)
    with pytest.raises(StoreError, match="give `update` and `audit` the data"):
        encode_rows(0, shard)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t | {"y": t["y"][:-1]},
        lambda t: t | {"y": t["y"] - 5},
        lambda t: t | {"y": t["y"].astype(np.int8)},
        lambda t: t | {"X": t["X"] + 1},
        lambda t: t | {"weight": np.ones(2)},
        lambda t: {"y": t["y"]},
    ],
)
def test_rows_that_are_not_those_of_the_partition_are_refused(change: Any) -> None:
    item = encode_rows(0, Shard.build(np.arange(6.0).reshape(3, 2), np.array([0, 1, 2])))
    with pytest.raises(StoreError, match="rows of here"):
        decode_rows(replace(item, tensors=change(dict(item.tensors))), "here")


def test_a_sparse_matrix_that_points_outside_itself_is_refused() -> None:
    """Its kernels would read memory that is not the matrix's."""
    shard = Shard.build(sparse.csr_matrix(np.eye(3)), np.array([0, 1, 2]))
    item = encode_rows(0, shard)
    wild = dict(item.tensors) | {"indices": np.array([0, 10**6, 2], dtype=np.int32)}
    with pytest.raises(StoreError, match="damaged"):
        decode_rows(replace(item, tensors=wild), "here")
