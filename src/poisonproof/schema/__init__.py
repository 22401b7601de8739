"""A declared, frozen schema: how the cells of an untrusted source become features."""

from __future__ import annotations

from poisonproof.schema.columns import CategoryColumn, Column, NumberColumn, TextColumn
from poisonproof.schema.date_columns import DateColumn
from poisonproof.schema.files import freeze_schema, load_schema, parse_schema, schema_digest
from poisonproof.schema.sample_columns import ArrayColumn, ImageColumn
from poisonproof.schema.splitting import held_out_rows
from poisonproof.schema.table import Limits, TableSchema

__all__ = [
    "ArrayColumn",
    "CategoryColumn",
    "Column",
    "DateColumn",
    "ImageColumn",
    "Limits",
    "NumberColumn",
    "TableSchema",
    "TextColumn",
    "freeze_schema",
    "held_out_rows",
    "load_schema",
    "parse_schema",
    "schema_digest",
]
