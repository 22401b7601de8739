"""Schema files: proposed, read by a human, frozen."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.schema.column_types import parse_column
from poisonproof.schema.table import Limits, TableSchema
from poisonproof.strict import parse_json

__all__ = [
    "dump_schema",
    "freeze_schema",
    "load_schema",
    "parse_schema",
    "schema_digest",
    "schema_values",
]

FORMAT = "poisonproof-schema"
VERSION = 1
MAX_BYTES = 2**26
KEYS = (
    "kind", "label", "classes", "groups", "weights", "test_share", "invalid_rows", "columns",
    "ignore",
)  # fmt: skip


def schema_digest(schema: TableSchema) -> str:
    """Return the SHA-256 of everything that the schema declares.

    >>> from poisonproof.schema import NumberColumn
    >>> one = TableSchema(columns=(NumberColumn(name="a"),), label="y", classes=("0", "1"))
    >>> schema_digest(one) == schema_digest(freeze_schema(one))
    True
    """
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, **schema.to_json()}, sort_keys=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def freeze_schema(schema: TableSchema) -> TableSchema:
    """Return the schema with its seal: a human has read it and says it is what they want."""
    return replace(schema, frozen=schema_digest(schema))


def dump_schema(schema: TableSchema) -> bytes:
    """Return the schema as the contents of a file: JSON, one column per line."""
    values = schema.to_json()
    columns = ",\n".join(
        f"  {json.dumps(column, ensure_ascii=True)}" for column in values.pop("columns")
    )
    head = {"format": FORMAT, "version": VERSION, **values}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines.append(f' "columns": [\n{columns}\n ]')
    lines.append(f' "frozen": {json.dumps(schema.frozen)}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def load_schema(path: str | os.PathLike[str], *, require_frozen: bool = True) -> TableSchema:
    """Read a schema file.

    Parameters
    ----------
    path : path
        The file.
    require_frozen : bool
        Refuse a proposal that nobody has confirmed.

    Raises
    ------
    GuaranteeError
        If the schema is a proposal, or was changed after it was frozen.
    InvalidInputError
        If the file is no schema.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise InvalidInputError(f"{file} is larger than {MAX_BYTES:,} bytes: no schema.")
        values = parse_json(file.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"Cannot read {file}: {error.strerror or error}.") from error
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{file} is not a schema file: {error}.") from error
    try:
        schema = parse_schema(values)
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from error
    except GuaranteeError as error:
        raise GuaranteeError(f"{file}: {error}") from error
    if require_frozen:
        schema.require_frozen(file)
    return schema


def parse_schema(values: Any) -> TableSchema:
    """Return the schema that JSON values describe; a broken seal raises `GuaranteeError`."""
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InvalidInputError(f"this is not a schema: its format is not {FORMAT!r}.")
    if values.get("version") != VERSION:
        raise InvalidInputError(
            f"schema version {values.get('version')!r}; this poisonproof reads version {VERSION}."
        )
    expected = {"format", "version", "frozen", *KEYS}
    if set(values) - {"limits"} != expected:
        wrong = sorted(map(str, set(values) - {"limits"} ^ expected))
        raise InvalidInputError(f"a schema has the keys {sorted(expected)}; check {wrong}.")
    for key in ("classes", "columns", "ignore"):
        if not isinstance(values[key], list):
            raise InvalidInputError(f"{key} is a list. Got {type(values[key]).__name__}.")
    options = {key: values[key] for key in KEYS}
    options["columns"] = tuple(parse_column(entry) for entry in values["columns"])
    schema = TableSchema(**options, limits=_parse_limits(values.get("limits", {})))
    if values["frozen"] and values["frozen"] != schema_digest(schema):
        raise GuaranteeError(
            "the schema was changed after it was frozen. Read it again, empty the entry 'frozen' "
            "and freeze it with: poisonproof schema FILE --freeze"
        )
    return replace(schema, frozen=values["frozen"] or "")


def _parse_limits(entry: Any) -> Limits:
    known = {field.name for field in fields(Limits)}
    if not isinstance(entry, dict) or not set(entry) <= known:
        raise InvalidInputError(f"limits are {', '.join(sorted(known))}. Got {str(entry)[:80]}.")
    return Limits(**entry)


def schema_values(schema: TableSchema) -> dict[str, Any]:
    """Return what `parse_schema` reads, to be kept inside a model."""
    return {
        "format": FORMAT,
        "version": VERSION,
        **schema.to_json(),
        "frozen": schema.frozen,
    }
