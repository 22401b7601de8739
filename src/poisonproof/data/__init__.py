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
    number_columns,
)
from poisonproof.data.rows import CheckedRows, RowProblem
from poisonproof.data.schema import (
    Limits,
    Schema,
    freeze_schema,
    held_out_rows,
    load_schema,
    parse_schema,
    schema_digest,
)
from poisonproof.data.sources import DataSource, read_table, split_rows
from poisonproof.data.value_text import label_text
from poisonproof.data.vote_files import read_votes

__all__ = [
    "ArrayColumn",
    "CategoryColumn",
    "CheckedRows",
    "Column",
    "DataSource",
    "DateColumn",
    "ImageColumn",
    "Limits",
    "NumberColumn",
    "RowProblem",
    "Schema",
    "TextColumn",
    "freeze_schema",
    "held_out_rows",
    "label_text",
    "load_schema",
    "number_columns",
    "parse_schema",
    "read_table",
    "read_votes",
    "schema_digest",
    "split_rows",
]
