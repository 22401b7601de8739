"""Reading data files with a declared schema: nothing about a column is guessed from its cells."""

from __future__ import annotations

from poisonproof.data.columns import (
    ArrayColumn,
    CategoryColumn,
    Column,
    DateColumn,
    ImageColumn,
    NumberColumn,
    TextColumn,
)
from poisonproof.data.declared_columns import Schema
from poisonproof.data.readers import read_rows, read_votes
from poisonproof.data.rows import CheckedRows, RowProblem
from poisonproof.data.schema import (
    Limits,
    TableSchema,
    freeze_schema,
    held_out_rows,
    load_schema,
    parse_schema,
    schema_digest,
)
from poisonproof.data.sources import DeclaredRows, FrameRows, ImageRows
from poisonproof.data.streaming import ShardedRows, fit_stream, partition_stream
from poisonproof.data.tables import read_table, read_written, split_rows
from poisonproof.data.value_text import label_text

__all__ = [
    "ArrayColumn",
    "CategoryColumn",
    "CheckedRows",
    "Column",
    "DateColumn",
    "DeclaredRows",
    "FrameRows",
    "ImageColumn",
    "ImageRows",
    "Limits",
    "NumberColumn",
    "RowProblem",
    "Schema",
    "ShardedRows",
    "TableSchema",
    "TextColumn",
    "fit_stream",
    "freeze_schema",
    "held_out_rows",
    "label_text",
    "load_schema",
    "parse_schema",
    "partition_stream",
    "read_rows",
    "read_table",
    "read_votes",
    "read_written",
    "schema_digest",
    "split_rows",
]
