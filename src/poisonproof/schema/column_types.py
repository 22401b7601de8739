"""From an entry of a schema file to a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from poisonproof.exceptions import InvalidInputError
from poisonproof.schema.columns import CategoryColumn, Column, NumberColumn, TextColumn
from poisonproof.schema.date_columns import DateColumn
from poisonproof.schema.sample_columns import ArrayColumn, ImageColumn

__all__ = ["COLUMN_TYPES", "parse_column"]

COLUMN_TYPES: Mapping[str, type[Column]] = {
    kind.type: kind
    for kind in (NumberColumn, CategoryColumn, TextColumn, DateColumn, ArrayColumn, ImageColumn)
}


def parse_column(entry: object) -> Column:
    """Return the column that an entry of a schema file describes.

    >>> parse_column({"name": "links", "type": "number"})
    NumberColumn(name='links', missing='reject', center=0.0, scale=1.0)
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InvalidInputError(f"A column of the schema needs a name. Got {str(entry)[:80]}.")
    options = dict(entry)
    kind = COLUMN_TYPES.get(str(options.pop("type", None)))
    if kind is None:
        raise InvalidInputError(
            f"Column {entry['name']!r} of the schema: type is one of {', '.join(COLUMN_TYPES)}. "
            f"Got {entry.get('type')!r}."
        )
    known = {field.name for field in fields(kind)}
    if strange := sorted(set(options) - known):
        raise InvalidInputError(
            f"Column {entry['name']!r} of the schema: a {kind.type} has "
            f"{', '.join(sorted(known))}. Got {', '.join(map(repr, strange))}."
        )
    try:
        return kind(**options)
    except TypeError as error:
        raise InvalidInputError(f"Column {entry['name']!r} of the schema: {error}.") from None
