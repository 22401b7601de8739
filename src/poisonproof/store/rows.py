"""Training rows as items of a store: numbers as they are, other cells as tagged JSON.

What comes back has the digests of what was put in, or nothing is written: a container whose cells
cannot be kept exactly is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidRowsError, StoreError
from poisonproof.extras import needing
from poisonproof.partition.containers import as_objects, is_sparse
from poisonproof.partition.frames import is_frame, is_pandas
from poisonproof.partition.shards import Shard
from poisonproof.store.blocks import Item
from poisonproof.store.cells import decode_cells, encode_cells

__all__ = ["decode_rows", "encode_rows"]

_Tensors = dict[str, NDArray[Any]]


def encode_rows(index: int, shard: Shard) -> Item:
    """Return the rows of one partition as an item.

    Raises
    ------
    StoreError
        If the rows cannot be kept exactly.
    """
    about, tensors = _encode_samples(shard.X)
    tensors["y"] = shard.y
    if shard.sample_weight is not None:
        tensors["weight"] = shard.sample_weight
    digest = shard.digest()
    item = Item(index, digest, digest, about, tensors)
    if about["kind"] not in ("array", "sparse"):  # those two are copied bit for bit
        decode_rows(item, f"partition {index}")
    return item


def decode_rows(item: Item, name: str) -> Shard:
    """Return the rows that `encode_rows` was given; `name` says where they were read.

    Raises
    ------
    StoreError
        If they are not the rows of the partition that the item says it holds.
    """
    try:
        X = _decode_samples(item.about, item.tensors)
        y, weight = item.tensors["y"], item.tensors.get("weight")
        lengths = {X.shape[0] if hasattr(X, "shape") else len(X), *y.shape}
        if len(lengths) != 1 or y.dtype != np.int64 or (y < 0).any():
            raise ValueError("samples and labels do not belong together")
        if weight is not None and (weight.shape != y.shape or weight.dtype != np.float64):
            raise ValueError("weights do not belong to the rows")
        shard = Shard.build(X, y, weight)
    except (KeyError, TypeError, ValueError, InvalidRowsError) as error:
        raise StoreError(f"the rows of {name} are damaged: {str(error)[:200]}.") from error
    if shard.digest() != item.digest:
        raise StoreError(
            f"the rows of {name} are not those that were stored, or have cells that a store cannot "
            "keep exactly. Give `update` and `audit` the data instead (keep_data=False)."
        )
    return shard


def _encode_samples(X: Any) -> tuple[dict[str, Any], _Tensors]:
    about: dict[str, Any]
    if is_sparse(X):
        flavour = "array" if isinstance(X, sp.sparray) else "matrix"
        about = {"kind": "sparse", "flavour": flavour, "shape": list(map(int, X.shape))}
        return about, {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    if is_frame(X):
        return _encode_frame(X)
    if isinstance(X, np.ndarray) and _is_plain(X.dtype):
        return {"kind": "array"}, {"X": X}
    array = _objects(X) if isinstance(X, list) else as_objects(X)
    about = {"kind": "cells", "shape": list(array.shape), "list": isinstance(X, list)}
    return about, {"cells": encode_cells(array.ravel().tolist())}


def _objects(rows: list[Any]) -> NDArray[np.object_]:
    array = np.empty(len(rows), dtype=object)
    array[:] = rows if all(np.ndim(row) == 0 for row in rows) else [list(row) for row in rows]
    return array


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf" and dtype.itemsize <= 8


def _encode_frame(X: Any) -> tuple[dict[str, Any], _Tensors]:
    """Keep a table column by column; a series is a table of one column without a name."""
    series = len(X.shape) == 1
    columns = [X] if series else [_column(X, j) for j in range(X.shape[1])]
    names = [] if series else list(X.columns)
    if not all(type(name) in (str, int) for name in names):
        raise StoreError("a table can be kept if its columns are named by text or numbers.")
    tensors: _Tensors = {}
    for j, column in enumerate(columns):
        if is_pandas(column) and _is_plain(column.dtype):
            tensors[f"{j}.numbers"] = column.to_numpy()
        else:
            tensors[f"{j}.cells"] = encode_cells(column.to_list())
    return {"kind": "series" if series else "frame", "names": names}, tensors


def _column(X: Any, j: int) -> Any:
    return X.iloc[:, j] if is_pandas(X) else X[:, j]


def _decode_samples(about: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Any:
    kind = about["kind"]
    if kind == "array":
        return tensors["X"]
    if kind == "sparse":
        return _decode_sparse(about, tensors)
    if kind in ("frame", "series"):
        return _decode_frame(about, tensors)
    if kind != "cells":
        raise ValueError(f"unknown kind of container {str(kind)[:40]!r}")
    cells = decode_cells(tensors["cells"])
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    array = array.reshape(about["shape"])
    return array.tolist() if about["list"] else array


def _decode_sparse(about: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Any:
    kind = sp.csr_array if about["flavour"] == "array" else sp.csr_matrix
    rows, columns = about["shape"]
    arrays: Any = tuple(np.array(tensors[name]) for name in ("data", "indices", "indptr"))
    matrix = kind(arrays, shape=(int(rows), int(columns)))
    matrix.check_format(full_check=True)
    return matrix


def _decode_frame(about: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Any:
    with needing("pandas", "data"):
        import pandas as pd
    names = about["names"] if about["kind"] == "frame" else [0]
    columns: dict[int, Any] = {}
    for j in range(len(names)):
        if f"{j}.numbers" in tensors:
            columns[j] = np.array(tensors[f"{j}.numbers"])
        else:
            columns[j] = pd.Series(decode_cells(tensors[f"{j}.cells"]), dtype=object)
    if about["kind"] == "series":
        return pd.Series(columns[0])
    frame = pd.DataFrame(columns)
    frame.columns = pd.Index(
        names, dtype=object if any(isinstance(n, str) for n in names) else None
    )
    return frame
