"""The whole declaration of a data source."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import ArrayColumn, Column, ImageColumn, parse_column
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.strict import parse_json

KINDS = ("table", "arrays", "images")
"""CSV and Parquet; npz; a folder of images."""

MAX_COLUMNS = 20_000
"""The longest list of columns that a human could be asked to confirm, and then some."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest cell, line and image that is read: they bound what one row can cost.

    A row with anything larger is rejected alone, so these numbers decide which rows are kept. The
    defaults belong to version 1 of the schema file, which names other ones only: to change a
    default here would change models whose schema nobody touched.

    Parameters
    ----------
    cell : int
        Bytes of a cell that is read, as UTF-8: a text, a category, a label, a contributor, or the
        digits of a number.
    line : int
        Bytes of a line of a CSV file, with the columns that are not read.
    pixels : int
        Pixels of an image before it is resized.
    file : int
        Bytes of an image file.

    Examples
    --------
    >>> Limits(cell=2**20).cell > Limits().cell
    True
    """

    cell: int = 2**18
    line: int = 2**22
    pixels: int = 2**24
    file: int = 2**26

    def __post_init__(self) -> None:
        for key, value in asdict(self).items():
            if type(value) is not int or not 1 <= value <= 2**30:
                raise InvalidInputError(
                    f"The limit {key!r} is a whole number from 1 to {2**30:,}. Got {value!r}."
                )


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """How the rows of an untrusted source are read: all of it declared, none of it found.

    Parameters
    ----------
    kind : {"table", "arrays", "images"}
        CSV or Parquet files, npz files, or folders of images.
    columns : tuple of Column
        The features.
    label : str
        The column (array; for images what to call the folders) with the labels.
    classes : tuple of str
        The label set. A row with another label is rejected, alone.
    groups, weights : str, optional
        Columns with the contributor and the weight of a row.
    ignore : tuple of str
        Columns that are not read.
    test_share : float
        Share of rows (with `groups`: of contributors) that a hash holds out of training.
    invalid_rows : {"drop", "raise"}
        Leave a row out that does not fit, alone, or stop.
    limits : Limits
        The largest cell, line and image that is read.
    frozen : str
        Digest of everything above, once somebody has confirmed it; empty before that.

    Guarantee
    ---------
    What a row becomes, whether it is kept and on which side of the split it falls are functions of
    that row and this object.

    Examples
    --------
    >>> from poisonproof.data import NumberColumn
    >>> schema = TableSchema(
    ...     columns=(NumberColumn(name="links"),), label="kind", classes=("ham", "spam")
    ... )
    >>> schema.n_features, bool(schema.frozen)
    (1, False)
    """

    columns: tuple[Column, ...]
    label: str
    classes: tuple[str, ...]
    kind: str = "table"
    groups: str | None = None
    weights: str | None = None
    ignore: tuple[str, ...] = ()
    test_share: float = 0.2
    invalid_rows: str = "drop"
    limits: Limits = field(default_factory=Limits)
    frozen: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInputError(f"kind is one of {', '.join(KINDS)}. Got {self.kind!r}.")
        if self.invalid_rows not in ("drop", "raise"):
            raise InvalidInputError(f"invalid_rows is drop or raise. Got {self.invalid_rows!r}.")
        for key in ("columns", "classes", "ignore"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
        _check_names(self)
        _check_classes(self.classes)
        _check_columns(self)
        share = self.test_share
        if type(share) not in (int, float) or not 0 <= share <= 0.9:
            raise InvalidInputError(f"test_share is a number from 0 to 0.9. Got {share!r}.")

    @property
    def n_features(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.n_features for column in self.columns)

    def require_frozen(self, file: object = "This schema") -> None:
        """Raise `GuaranteeError` unless somebody has confirmed the schema."""
        if not self.frozen:
            raise GuaranteeError(
                f"{file} is a proposal: it was made by looking at rows that an attacker may have "
                "written. Read it, correct it, then freeze it with: poisonproof schema "
                f"{file} --freeze"
            )

    def with_groups(self, groups: str | None) -> TableSchema:
        """Return the schema with the contributor in `groups`, a column that it ignores so far."""
        if groups is None or groups == self.groups:
            return self
        if self.groups is not None or groups not in self.ignore:
            raise InvalidInputError(
                f"The schema declares the groups {self.groups!r} and ignores "
                f"{', '.join(map(repr, self.ignore[:12])) or 'nothing'}; --groups {groups} is "
                "neither. Change the schema and freeze it again."
            )
        rest = tuple(name for name in self.ignore if name != groups)
        return replace(self, groups=groups, ignore=rest)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as it stands in its file, without the seal."""
        limits = {} if self.limits == Limits() else {"limits": asdict(self.limits)}
        return {
            "kind": self.kind,
            "label": self.label,
            "classes": list(self.classes),
            "groups": self.groups,
            "weights": self.weights,
            "test_share": float(self.test_share),
            "invalid_rows": self.invalid_rows,
            **limits,
            "columns": [column.to_json() for column in self.columns],
            "ignore": list(self.ignore),
        }


def _check_names(schema: TableSchema) -> None:
    for key in ("label", "groups", "weights"):
        value = getattr(schema, key)
        if value is None and key != "label":
            continue
        if not isinstance(value, str) or not value:
            raise InvalidInputError(f"{key} is the name of a column. Got {value!r}.")
    if not all(isinstance(name, str) for name in schema.ignore):
        raise InvalidInputError("ignore is a list of column names.")
    special = [name for name in (schema.label, schema.groups, schema.weights) if name is not None]
    _refuse_repeats([*special, *schema.ignore, *(column.name for column in schema.columns)])


def _refuse_repeats(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInputError(
            f"The schema names the column {twice[0]!r} twice; a column is a feature, the label, "
            "the group, the weight or ignored."
        )


def _check_classes(classes: tuple[str, ...]) -> None:
    if not all(isinstance(name, str) and name for name in classes):
        raise InvalidInputError("classes is a list of texts.")
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise InvalidInputError(
            f"classes lists at least two different labels. Got {len(classes)}: "
            f"{', '.join(map(repr, classes[:12]))}."
        )


def _check_columns(schema: TableSchema) -> None:
    columns = schema.columns
    if not columns or not all(isinstance(column, Column) for column in columns):
        raise InvalidInputError("A schema declares at least one feature column.")
    if len(columns) + len(schema.ignore) > MAX_COLUMNS:
        raise InvalidInputError(f"A schema lists at most {MAX_COLUMNS:,} columns.")
    kinds: dict[str, type[Column]] = {"arrays": ArrayColumn, "images": ImageColumn}
    whole = kinds.get(schema.kind)
    if whole is None:
        if any(isinstance(column, (ArrayColumn, ImageColumn)) for column in columns):
            raise InvalidInputError(
                "The columns of a table are numbers, categories, texts or dates."
            )
    elif len(columns) != 1 or not isinstance(columns[0], whole):
        raise InvalidInputError(f"A schema of {schema.kind} has one column of type {whole.type}.")
    if schema.kind == "images" and (schema.groups or schema.weights or schema.ignore):
        raise InvalidInputError("A folder of images has no columns for groups or weights.")


# Schema files: proposed, read by a human, frozen.

FORMAT = "poisonproof-schema"
VERSION = 1
MAX_BYTES = 2**26
KEYS = (
    "kind", "label", "classes", "groups", "weights", "test_share", "invalid_rows", "columns",
    "ignore",
)  # fmt: skip


def schema_digest(schema: TableSchema) -> str:
    """Return the SHA-256 of everything that the schema declares.

    >>> from poisonproof.data import NumberColumn
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


# Which rows are held out of training: decided by a hash of each row.

DOMAIN = b"poisonproof.split1"
"""Hashed in front, so that a row's side says nothing about its partition."""


def held_out_rows(X: Any, share: float, groups: Any = None) -> NDArray[np.bool_]:
    """Return which rows are held out of training.

    Parameters
    ----------
    X : array of shape (n, ...)
        Samples.
    share : float
        The share to hold out.
    groups : array of shape (n,), optional
        Contributors. If given, all rows of a contributor fall on one side.

    Returns
    -------
    ndarray of bool, shape (n,)

    Guarantee
    ---------
    A row's side depends on that row's sample (with `groups`: on its contributor) and `share`. A
    row inserted or deleted moves no other; equal samples fall on one side.

    Examples
    --------
    >>> X = np.arange(2000).reshape(1000, 2)
    >>> side = held_out_rows(X, 0.2)
    >>> bool(np.array_equal(held_out_rows(X[:500], 0.2), side[:500])), int(side.sum())
    (True, 184)
    """
    from poisonproof.partition.canonical import sample_digests

    digests = sample_digests(X if groups is None else groups)
    hashed = b"".join(hashlib.sha256(DOMAIN + bytes(digest)).digest()[:8] for digest in digests)
    numbers = np.frombuffer(hashed, dtype="<u8")
    # An exact comparison of integers: no row sits on a rounding error.
    return np.asarray(numbers < np.uint64(int(share * 2**63) * 2))
