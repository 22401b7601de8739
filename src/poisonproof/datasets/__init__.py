"""Reading data files with a declared schema: nothing about a column is guessed from its cells."""

from __future__ import annotations

from poisonproof.datasets.reading import read_rows
from poisonproof.datasets.rows import CheckedRows, RowProblem
from poisonproof.datasets.schema import Schema
from poisonproof.datasets.tables import read_table, read_written, split_rows
from poisonproof.datasets.value_text import label_text
from poisonproof.datasets.votes import read_votes

__all__ = [
    "CheckedRows",
    "RowProblem",
    "Schema",
    "label_text",
    "read_rows",
    "read_table",
    "read_votes",
    "read_written",
    "split_rows",
]
