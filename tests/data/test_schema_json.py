"""The JSON Schema of schema files allows what the reader allows, and names every key."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from poisonproof.data import (
    DateColumn,
    ImageColumn,
    NumberColumn,
    Schema,
    load_schema,
    parse_schema,
)
from poisonproof.data.columns import COLUMN_TYPES, NUMBER_FORMATS, PARTS
from poisonproof.data.schema import DELIMITERS, ENCODINGS, KEYS, OPTIONAL, Limits, schema_values
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition import GroupHash, NamedSources, TimeBlocks
from tests.data.builders import SCHEMA
from tests.data.test_schema_files import ARRAYS, IMAGES

FILE = json.loads(files("poisonproof.data").joinpath("schema-file.schema.json").read_text())
FULL = replace(
    SCHEMA,
    columns=(
        *SCHEMA.columns,
        NumberColumn(name="price", unit="$", format="1,234.5"),
        DateColumn(name="due", format="%m/%d/%Y", parts=("hour", "month"), missing="nan"),
    ),
    encoding="latin-1",
    delimiter=";",
    missing_texts=("NA", "?"),
    others="ignore",
    limits=Limits(cell=100),
    frozen="",
)
NETWORK = ImageColumn(
    name="i", height=8, width=8, encoder="network", model="m.safetensors", digest="0" * 64, size=4
)
RULES = (NamedSources(["a", "b"]), TimeBlocks("2020-01-01", days=7), GroupHash(entities={"a": "b"}))
SCHEMAS = [SCHEMA, FULL, ARRAYS, IMAGES, replace(IMAGES, columns=(NETWORK,))]
SCHEMAS += [replace(FULL, partition=rule) for rule in RULES]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_is_written_is_valid_and_read_again(schema: Schema) -> None:
    values = json.loads(json.dumps(schema_values(schema)))
    jsonschema.Draft202012Validator.check_schema(FILE)
    jsonschema.validate(values, FILE)
    assert parse_schema(values) == schema


def test_every_key_of_every_column_is_described() -> None:
    listed = [
        entry["$ref"].rpartition("/")[2]
        for entry in FILE["properties"]["columns"]["items"]["oneOf"]
    ]
    assert listed == list(COLUMN_TYPES)
    for name, kind in COLUMN_TYPES.items():
        described, known = FILE["$defs"][name], {field.name: field for field in fields(kind)}
        assert set(described["properties"]) == {"type", *known}
        needed = {key for key, field in known.items() if field.default is MISSING}
        assert set(described["required"]) == {"type", *needed}
    keys = {"format", "version", "frozen", *KEYS}
    assert set(FILE["required"]) == keys
    assert set(FILE["properties"]) == keys | {"limits", *OPTIONAL}
    assert set(FILE["properties"]["limits"]["properties"]) == set(asdict(Limits()))


def test_choices_are_those_of_the_reader() -> None:
    top, defs = FILE["properties"], FILE["$defs"]
    assert top["encoding"]["enum"] == list(ENCODINGS)
    assert top["delimiter"]["enum"] == ["", *DELIMITERS]
    assert defs["number"]["properties"]["format"]["enum"] == ["", *NUMBER_FORMATS]
    assert defs["date"]["properties"]["parts"]["items"]["enum"] == list(PARTS)


@pytest.mark.parametrize("schema", [*SCHEMAS[:4], SCHEMAS[5]])
@pytest.mark.parametrize("wrong", [[], {"a": 1}, "no such choice"])
def test_the_reader_refuses_what_the_json_schema_refuses(
    schema: Schema, wrong: Any, tmp_path: Path
) -> None:
    values = json.loads(json.dumps(schema_values(schema)))
    spots = [(values, key) for key in values if key not in ("label", "groups", "frozen")]
    spots += [(column, key) for column in values["columns"] for key in column if key != "name"]
    refused = 0
    for holder, key in spots:
        before, holder[key] = holder[key], wrong
        try:
            jsonschema.validate(values, FILE)
        except jsonschema.ValidationError:
            refused += 1
            (tmp_path / "s.json").write_text(json.dumps(values))
            with pytest.raises((InvalidInputError, GuaranteeError)):
                load_schema(tmp_path / "s.json")
        holder[key] = before
    assert refused > len(spots) / 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clases": ["a", "b"]}, "'clases' of the schema is not known; did you mean 'classes'?"),
        ({"column": 1}, "did you mean 'columns'?"),
        (
            {"columns": [{"name": "age", "tpye": "number"}]},
            "key 'tpye' of column 'age' is not known; did you mean 'type'?",
        ),
        (
            {"columns": [{"nmae": "age", "type": "number"}]},
            "'nmae' of a column is not known; did you mean 'name'?",
        ),
        ({"columns": [{"name": "age", "type": "number", "scal": 1}]}, "did you mean 'scale'?"),
        (
            {"columns": [{"name": "age", "type": "category"}]},
            "the key 'categories' of column 'age' is missing",
        ),
        ({"columns": [{"name": "age"}]}, "the key 'type' of column 'age' is missing"),
        ({"limits": {"cel": 3}}, "the key 'cel' of limits is not known; did you mean 'cell'?"),
        ({"encoding": "utf8"}, "encoding is one of utf-8, latin-1"),
        ({"delimiter": "::"}, "delimiter is one of"),
        ({"missing_texts": ["-999"]}, "texts that are not numbers"),
        ({"missing_texts": "NA"}, "missing_texts is a list"),
    ],
)
def test_a_wrong_key_is_named_with_the_right_one(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(schema_values(replace(SCHEMA, frozen="")) | change)
    assert words in str(caught.value)


def test_a_missing_key_is_named() -> None:
    values = schema_values(SCHEMA)
    del values["classes"]
    with pytest.raises(InvalidInputError, match="the key 'classes' of the schema is missing"):
        parse_schema(values)
