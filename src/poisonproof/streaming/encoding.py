"""From cells that were read to checked features, so many rows at a time as fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from poisonproof.datasets import CheckedRows, Schema, split_rows
from poisonproof.datasets.rows import RawRows, check_rows
from poisonproof.datasets.tables import encoded_rows
from poisonproof.schema import TableSchema
from poisonproof.streaming.chunks import Chunk, rows_per_chunk

__all__ = ["encoded_chunks"]


def encoded_chunks(
    raw: RawRows,
    schema: TableSchema | Schema,
    plain: Schema,
    path: Path,
    chunk_bytes: int,
    amount: int,
    invalid_rows: str,
) -> Iterator[Chunk]:
    """Turn rows into chunks of those that fit and are not held out of training.

    Parameters
    ----------
    raw : RawRows
        What was read.
    schema : TableSchema or Schema
        What the cells mean.
    plain : Schema
        The same, as the readers of files know it.
    path : Path
        Where the rows stand, for messages.
    chunk_bytes : int
        About how large the samples of a chunk may be.
    amount : int
        How far the rows bring the reader.
    invalid_rows : {"raise", "drop"}
        What to do with a row that does not fit.
    """
    table = schema if isinstance(schema, TableSchema) else None
    width = int(np.prod(raw.X.shape[1:])) if table is None else table.n_features
    step = rows_per_chunk(chunk_bytes, 8 * width)
    for start in range(0, max(1, len(raw.places)), step):
        part = raw if len(raw.places) <= step else raw.cut(start, start + step)
        encoded = part if table is None else encoded_rows(part, table)
        rows = check_rows(encoded, plain, path, may_be_empty=True)
        if invalid_rows == "raise":
            rows.refuse_problems("Correct the row, or leave such rows out: invalid_rows='drop'.")
        if table is not None and table.test_share and len(rows):
            rows = replace(rows.only(~split_rows(rows, table)), problems=rows.problems)
        yield _chunk(rows, plain, path, amount if start == 0 else 0)


def _chunk(rows: CheckedRows, plain: Schema, path: Path, amount: int) -> Chunk:
    where = f"{path}, from {rows.unit} {rows.places[0]} on" if len(rows) else str(path)
    labels = np.array(plain.classes)[rows.labels]
    return Chunk(rows.X, labels, rows.groups, rows.weights, where, amount, rows.problems)
