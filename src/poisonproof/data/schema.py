"""Schemas: the meaning of the columns of a data source, declared and never found in its rows."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import (
    ArrayColumn,
    Column,
    ImageColumn,
    NumberColumn,
    cell_number,
    check_keys,
    parse_column,
)
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.partition.contributors import (
    GroupHash,
    GroupPartitioner,
    NamedSources,
    TimeBlocks,
)
from poisonproof.strict import parse_json

KINDS = ("table", "arrays", "images")
"""CSV and Parquet; npz; a folder of images."""

ENCODINGS = (
    "utf-8", "latin-1", "iso-8859-2", "iso-8859-15", "cp1250", "cp1251", "cp1252", "koi8-r",
    "shift_jis", "euc_kr", "big5", "gb18030",
)  # fmt: skip
"""Encodings in which a line ends where its bytes say so."""
DELIMITERS = (",", ";", "\t", "|")

MAX_COLUMNS = 20_000
"""Most columns of a schema: more than a person can review."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest cell, line and image that is read: they bound what one row can cost.

    A row with anything larger is rejected alone, so these numbers decide which rows are kept. The
    defaults belong to version 1 of the schema file, which names only other values: changing a
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
                    f"The limit {key!r} is an integer from 1 to {2**30:,}. Got {value!r}."
                )


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A declaration of how the rows of an untrusted source are read; no row takes part in it.

    Labels and groups are read as text, see `label_text`; weights are finite numbers that are not
    negative.

    Parameters
    ----------
    columns : sequence of Column
        The features. If none is listed, every column that nothing else names is a number that may
        be missing, in the order of the file (of an npz file: the array `samples`).
    label : str, optional
        The column (array; for images what to call the folders) with the labels.
    classes : sequence of str
        The label set. A row with another label is rejected, alone.
    kind : {"table", "arrays", "images"}
        CSV or Parquet files, npz files, or folders of images.
    groups, weights : str, optional
        Columns with the contributor and the weight of a row.
    partition : NamedSources, TimeBlocks or GroupHash with entities, optional
        What `groups` holds if not contributors: sources, times or accounts. A row whose source or
        time has no partition is rejected.
    ignore : sequence of str
        Columns that are not read.
    others : {"raise", "ignore"}
        What to do with columns that nothing names, if `columns` are listed.
    test_share : float
        Share of rows (with `groups`: of contributors, entities or time blocks; never of sources,
        which are too few) that a hash holds out of training.
    invalid_rows : {"drop", "raise"}
        Leave out each row that does not fit, or stop.
    samples : str
        Without `columns`, the array of an npz file that holds the samples.
    limits : Limits
        The largest cell, line and image that is read.
    encoding : str
        The encoding of CSV files, one of `ENCODINGS`.
    delimiter : str
        What separates the cells of CSV files: a comma, semicolon, tab or bar. Empty for a comma,
        in .tsv files a tab.
    missing_texts : sequence of str
        Texts of feature cells that mean that the value is missing, such as ``NA``; a category of
        that name stays one.
    frozen : str
        Digest of everything above, once somebody has confirmed it; empty before that. Without
        `columns` nothing can have been proposed, so nothing needs to be confirmed.

    Guarantee
    ---------
    What a row becomes, whether it is kept and on which side of the split it falls are functions of
    that row and this object.

    Examples
    --------
    >>> from poisonproof.data import NumberColumn
    >>> schema = Schema(
    ...     columns=(NumberColumn(name="links"),), label="kind", classes=("ham", "spam")
    ... )
    >>> schema.n_features, bool(schema.frozen)
    (1, False)
    """

    columns: Sequence[Column] = ()
    label: str | None = None
    classes: Sequence[str] = ()
    kind: str = "table"
    groups: str | None = None
    partition: GroupPartitioner | None = None
    weights: str | None = None
    ignore: Sequence[str] = ()
    others: str = "raise"
    test_share: float = 0.0
    invalid_rows: str = "drop"
    samples: str = "X"
    limits: Limits = field(default_factory=Limits)
    encoding: str = "utf-8"
    delimiter: str = ""
    missing_texts: Sequence[str] = ()
    frozen: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInputError(f"kind is one of {', '.join(KINDS)}. Got {self.kind!r}.")
        for key, other in (("invalid_rows", "drop"), ("others", "ignore")):
            if getattr(self, key) not in (other, "raise"):
                raise InvalidInputError(f"{key} is {other} or raise. Got {getattr(self, key)!r}.")
        for key in ("columns", "classes", "ignore", "missing_texts"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
        self._check_texts()
        self._check_columns()
        self._check_names()
        self._check_partition()
        self._check_classes()
        share = self.test_share
        if type(share) not in (int, float) or not 0 <= share <= 0.9:
            raise InvalidInputError(f"test_share is a number from 0 to 0.9. Got {share!r}.")

    def _check_texts(self) -> None:
        for key, allowed in (("encoding", ENCODINGS), ("delimiter", ("", *DELIMITERS))):
            if (given := getattr(self, key)) not in allowed:
                shown = ", ".join(repr(name) if key == "delimiter" else name for name in allowed)
                raise InvalidInputError(f"{key} is one of {shown}. Got {given!r}.")
        for text in self.missing_texts:
            if not isinstance(text, str) or not text or text != text.strip() or _is_number(text):
                raise InvalidInputError(
                    "missing_texts is a list of texts that are not numbers, without spaces at "
                    f"their ends, such as NA. Got {text!r}."
                )

    def _check_columns(self) -> None:
        columns = self.columns
        if not all(isinstance(column, Column) for column in columns):
            raise InvalidInputError("columns is a list of columns, such as NumberColumn(name='a').")
        if len(columns) + len(self.ignore) > MAX_COLUMNS:
            raise InvalidInputError(f"A schema lists at most {MAX_COLUMNS:,} columns.")
        kinds: dict[str, type[Column]] = {"arrays": ArrayColumn, "images": ImageColumn}
        whole = kinds.get(self.kind)
        if whole is None:
            if any(isinstance(column, (ArrayColumn, ImageColumn)) for column in columns):
                raise InvalidInputError(
                    "The columns of a table are numbers, categories, texts or dates."
                )
        elif len(columns) != 1 or not isinstance(columns[0], whole):
            raise InvalidInputError(f"A schema of {self.kind} has one column of type {whole.type}.")
        if self.kind == "images" and (self.groups or self.weights or self.ignore):
            raise InvalidInputError("A folder of images has no columns for groups or weights.")

    def _check_names(self) -> None:
        for key, value in self._roles.items():
            if value is not None and (not isinstance(value, str) or not value):
                raise InvalidInputError(f"{key} is the name of a column. Got {value!r}.")
        if not all(isinstance(name, str) for name in self.ignore):
            raise InvalidInputError("ignore is a list of column names.")
        roles = [name for name in self._roles.values() if name is not None]
        names = [*roles, *self.ignore, *(column.name for column in self.columns)]
        if twice := _repeated(names):
            raise InvalidInputError(
                f"The schema names the column {twice[0]!r} twice; a column is a feature, the "
                "label, the group, the weight or ignored."
            )

    def _check_partition(self) -> None:
        rule = self.partition
        if rule is None:
            return
        if not isinstance(rule, GroupPartitioner) or rule.unit == "group" or not self.groups:
            raise InvalidInputError(
                "partition is NamedSources, TimeBlocks or GroupHash with entities, and groups "
                f"names the column that it reads. Got {rule!r:.80} and groups={self.groups!r}."
            )
        names = [*getattr(rule, "sources", ()), *chain(*getattr(rule, "entities", ()))]
        if not all(isinstance(name, str) for name in names):
            raise InvalidInputError("Sources and accounts of a file are texts. Name them so.")

    def _check_classes(self) -> None:
        if not all(isinstance(name, str) and name for name in self.classes):
            raise InvalidInputError("classes is a list of texts.")
        named = self.label is not None
        if len(set(self.classes)) != len(self.classes) or (named and len(self.classes) < 2):
            raise InvalidInputError(
                f"classes lists at least two different labels. Got {len(self.classes)}: "
                f"{listed(self.classes)}."
            )

    @property
    def _roles(self) -> dict[str, str | None]:
        return {"label": self.label, "groups": self.groups, "weights": self.weights}

    @property
    def n_features(self) -> int:
        """The number of features of a row; 0 where the file decides."""
        return sum(column.n_features for column in self.columns)

    @property
    def unit(self) -> str:
        """What certificates count: rows, contributors, entities, sources, days or blocks."""
        if self.partition is not None:
            return self.partition.unit
        return "row" if self.groups is None else "group"

    @cached_property
    def keeps_numbers(self) -> bool:
        """Whether features are the numbers of the file as they stand."""
        return self.kind == "table" and all(
            isinstance(column, NumberColumn)
            and column.plain
            and (column.missing, column.center, column.scale) == ("nan", 0.0, 1.0)
            for column in self.columns
        )

    def require_frozen(self, file: object = "This schema") -> None:
        """Raise `GuaranteeError` unless somebody has confirmed the columns."""
        if self.columns and not self.frozen:
            how = "freeze_schema(schema)"
            if isinstance(file, Path):
                how = f"poisonproof schema {file} --freeze"
            raise GuaranteeError(
                f"{file} is a proposal: it was made by looking at rows that an attacker may have "
                f"written. Read it, correct it, then freeze it: {how}"
            )

    @classmethod
    def propose(cls, X: Any, label: str, **options: Any) -> Schema:
        """Draft a schema by looking at a frame, as ``poisonproof schema`` does for a file.

        Parameters
        ----------
        X : frame of pandas or Polars, or Arrow table
            Rows, of which some from all over the frame are looked at.
        label : str
            The column with the labels.
        **options
            `groups`, `weights`, `test_share` (0 by default) as in the schema, `classes` (by default
            the labels that are seen), and the names of columns to `ignore` or to take as `text`.

        Returns
        -------
        Schema
            A proposal: print its columns, classes and ignored columns, correct them with
            `dataclasses.replace`, then confirm it with `freeze_schema`.

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"age": [31, 47, 25, 62] * 9, "kind": ["a", "b", "b", "a"] * 9})
        >>> schema = Schema.propose(table, label="kind")
        >>> schema.columns[0].center, schema.columns[0].scale, schema.classes
        (39.0, 21.0, ('a', 'b'))
        """
        from poisonproof.data.proposing import ProposalOptions, propose_table

        known = {f.name for f in fields(ProposalOptions)} - {"label"}
        if not set(options) <= known:
            raise InvalidInputError(
                f"propose takes label, {', '.join(sorted(known))}. Got {sorted(options)}."
            )
        given: dict[str, Any] = {"test_share": 0.0, **options}
        for key in {"ignore", "text", "classes"} & set(given):
            given[key] = tuple(given[key])
        return propose_table(X, ProposalOptions(label=label, **given)).schema

    def libraries(self) -> dict[str, str]:
        """Return the versions of what turns cells into numbers, beside what members are made by."""
        encoders = {getattr(column, "encoder", None) for column in self.columns}
        used = {
            "pillow": self.kind == "images",
            "sentence-transformers": "sentences" in encoders,
            "torch": "network" in encoders,
        }
        return {name: metadata.version(name) for name, needed in used.items() if needed}

    def reading(self, *, labelled: bool, grouped: bool, weighted: bool | None = None) -> Schema:
        """Return the schema of files in which labels, or groups and weights, are not read."""
        weighted = grouped if weighted is None else weighted
        read = {"label": labelled, "groups": grouped, "weights": weighted}
        roles = {key: name for key, name in self._roles.items() if name and not read[key]}
        if not roles:
            return self
        unread = () if self.kind == "images" else roles.values()
        changes: dict[str, Any] = dict.fromkeys(roles)
        changes |= {"partition": None} if "groups" in roles else {}
        return replace(self, **changes, ignore=[*self.ignore, *unread])

    def locate(self, header: Sequence[str], file: object) -> Layout:
        """Find the declared columns in the header of a file.

        Ignored columns may be absent, unless all columns that nothing names are features: a
        misspelt one would become a feature.

        Parameters
        ----------
        header : sequence of str
            Column names in file order.
        file : object
            What the errors call the file.

        Raises
        ------
        InvalidInputError
            If a column is missing, named twice, or not declared although all must be.

        Examples
        --------
        >>> schema = Schema(label="kind", classes=("ham", "spam"), ignore=("id",))
        >>> schema.locate(["id", "length", "links", "kind"], "mails.csv").features
        (1, 2)
        """
        refuse_repeated(header, file)
        position = {name: index for index, name in enumerate(header)}
        roles = {key: name for key, name in self._roles.items() if name is not None}
        named = [*roles.values(), *(column.name for column in self.columns)]
        wanted = named if self.columns else [*named, *self.ignore]
        if missing := [name for name in wanted if name not in position]:
            raise InvalidInputError(
                f"{file} has no column{'s' * (len(missing) > 1)} {listed(missing)}. Its columns "
                f"are {listed(header)}.{other_delimiter(header)}"
            )
        taken = {*named, *self.ignore}
        rest = [name for name in header if name not in taken]
        if self.columns and self.others == "raise" and rest:
            raise InvalidInputError(
                f"{file} has the column{'s' * (len(rest) > 1)} {listed(rest)}, which the model "
                "does not know. Ignore what is not a feature (on the command line: --ignore "
                f"{','.join(rest[:12])}; certify, report and predict take --label)."
            )
        numbers = [column.name for column in self.columns if column.plain]
        texts = [column.name for column in self.columns if not column.plain]
        features = numbers if self.columns else rest
        if "" in features:
            raise InvalidInputError(
                f"Column {position[''] + 1} of {file} has no name. Row numbers are not a feature: "
                "write the file without them (in pandas index=False), or list the features."
            )
        return Layout(
            header=tuple(header),
            features=tuple(position[name] for name in features),
            feature_names=tuple(features),
            texts=tuple(position[name] for name in texts),
            **{key: position[name] for key, name in roles.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the schema as it stands in its file, without the seal."""
        more: dict[str, Any] = {} if self.limits == Limits() else {"limits": asdict(self.limits)}
        more |= {} if self.others == "raise" else {"others": self.others}
        more |= {} if self.partition is None else {"partition": _rule_values(self.partition)}
        more |= {} if self.encoding == "utf-8" else {"encoding": self.encoding}
        more |= {"delimiter": self.delimiter} if self.delimiter else {}
        more |= {"missing_texts": list(self.missing_texts)} if self.missing_texts else {}
        return {
            "kind": self.kind,
            "label": self.label,
            "classes": list(self.classes),
            "groups": self.groups,
            "weights": self.weights,
            "test_share": float(self.test_share),
            "invalid_rows": self.invalid_rows,
            **more,
            "columns": [column.to_json() for column in self.columns],
            "ignore": list(self.ignore),
        }


@dataclass(frozen=True)
class Layout:
    """The column names of a file, and where the declared columns stand: numbers and texts apart."""

    header: tuple[str, ...]
    features: tuple[int, ...]
    feature_names: tuple[str, ...] = ()
    texts: tuple[int, ...] = ()
    label: int | None = None
    groups: int | None = None
    weights: int | None = None


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(cell_number(text)))
    except ValueError:
        return False


def other_delimiter(header: Sequence[str]) -> str:
    """Say what to do if a header of one column holds what may separate several."""
    if len(header) > 1 or not any(mark in name for name in header for mark in DELIMITERS):
        return ""
    return " If other marks separate its cells, a schema says so: poisonproof schema FILE."


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def refuse_repeated(header: Sequence[str], file: object) -> None:
    """Raise if two columns of a file have one name."""
    if repeated := _repeated(header):
        raise InvalidInputError(
            f"{file} has more than one column named {listed(repeated)}. Rename or drop them: "
            "features are known by their names."
        )


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names in quotes, the first few of many."""
    shown = ", ".join(
        repr(name) if len(name) <= 80 else f"{name[:80]!r}..." for name in list(names)[:most]
    )
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


# Schema files: proposed, read by a human, frozen.

FORMAT = "poisonproof-schema"
VERSION = 1
MAX_BYTES = 2**26
KEYS = (
    "kind", "label", "classes", "groups", "weights", "test_share", "invalid_rows", "columns",
    "ignore",
)  # fmt: skip
OPTIONAL = ("others", "encoding", "delimiter", "missing_texts", "partition")
"""Keys that a schema file names only where they are not the default."""


def schema_digest(schema: Schema) -> str:
    """Return the SHA-256 of everything that the schema declares.

    >>> from poisonproof.data import NumberColumn
    >>> one = Schema(columns=(NumberColumn(name="a"),), label="y", classes=("0", "1"))
    >>> schema_digest(one) == schema_digest(freeze_schema(one))
    True
    """
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, **schema.to_json()}, sort_keys=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def freeze_schema(schema: Schema) -> Schema:
    """Return the schema with its seal: a human has read it and confirms it.

    Examples
    --------
    >>> schema = freeze_schema(Schema(label="kind", classes=("ham", "spam")))
    >>> schema.frozen == schema_digest(schema)
    True
    """
    return replace(schema, frozen=schema_digest(schema))


def schema_values(schema: Schema) -> dict[str, Any]:
    """Return what `parse_schema` reads, to be kept inside a model."""
    head = {"format": FORMAT, "version": VERSION}
    return {**head, **schema.to_json(), "frozen": schema.frozen}


def dump_schema(schema: Schema) -> bytes:
    """Return the schema as the contents of a file: JSON, one column per line."""
    values = schema_values(schema)
    columns = ",\n".join(
        f"  {json.dumps(column, ensure_ascii=True)}" for column in values.pop("columns")
    )
    seal = values.pop("frozen")
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    lines.append(f' "columns": [\n{columns}\n ]')
    lines.append(f' "frozen": {json.dumps(seal)}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def load_schema(path: str | os.PathLike[str], *, require_frozen: bool = True) -> Schema:
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
        If the file is not a schema.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise InvalidInputError(f"it has over {MAX_BYTES:,} bytes, too many for a schema")
        schema = parse_schema(parse_json(file.read_bytes()))
        if schema.label is None:
            raise InvalidInputError("label is the name of a column. Got None.")
        if not schema.columns:
            raise InvalidInputError("A schema file declares at least one feature column.")
    except OSError as error:
        raise InvalidInputError(f"Cannot read {file}: {error.strerror or error}.") from error
    except GuaranteeError as error:
        raise GuaranteeError(f"{file}: {error}") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{file}: {error}") from error
    except ValueError as error:
        raise InvalidInputError(f"{file} is not a schema file: {error}.") from error
    if require_frozen:
        schema.require_frozen(file)
    return schema


def parse_schema(values: Any) -> Schema:
    """Return the schema that JSON values describe.

    Raises
    ------
    GuaranteeError
        If the schema was changed after it was frozen.
    InvalidInputError
        If the values are not a schema of this version.
    """
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InvalidInputError(f"this is not a schema: its format is not {FORMAT!r}.")
    if values.get("version") != VERSION:
        raise InvalidInputError(
            f"schema version {values.get('version')!r}; this poisonproof reads version {VERSION}."
        )
    needed = ("format", "version", "frozen", *KEYS)
    check_keys(values, (*needed, *OPTIONAL, "limits"), needed, "the schema")
    for key in ("classes", "columns", "ignore", "missing_texts"):
        if not isinstance(values.get(key, []), list):
            raise InvalidInputError(f"{key} is a list. Got {type(values[key]).__name__}.")
    options = {key: values[key] for key in (*KEYS, *OPTIONAL) if key in values}
    options["columns"] = tuple(parse_column(entry) for entry in values["columns"])
    options["partition"] = _parse_rule(values["partition"]) if "partition" in values else None
    schema = Schema(**options, limits=_parse_limits(values.get("limits", {})))
    if values["frozen"] and values["frozen"] != schema_digest(schema):
        raise GuaranteeError(
            "the schema was changed after it was frozen. Read it again, empty the entry 'frozen' "
            "and freeze it with: poisonproof schema FILE --freeze"
        )
    return replace(schema, frozen=values["frozen"] or "")


def _parse_limits(entry: Any) -> Limits:
    if not isinstance(entry, dict):
        raise InvalidInputError(f"limits is an object. Got {str(entry)[:80]}.")
    check_keys(entry, [field.name for field in fields(Limits)], (), "limits")
    return Limits(**entry)


_RULES: dict[str, tuple[type[GroupPartitioner], tuple[str, ...]]] = {
    "source": (NamedSources, ("sources",)),
    "time": (TimeBlocks, ("start", "days")),
    "entity": (GroupHash, ("entities",)),
}
"""What `partition` can be by, and what a schema file then says."""


def _rule_values(rule: GroupPartitioner) -> dict[str, Any]:
    by, keys = next((by, keys) for by, (kind, keys) in _RULES.items() if isinstance(rule, kind))
    values = {key: getattr(rule, key) for key in keys}
    if by == "source":
        values["sources"] = list(values["sources"])
    return {"by": by} | (values if by != "entity" else {"entities": dict(values["entities"])})


def _parse_rule(entry: Any) -> GroupPartitioner:
    options = dict(entry) if isinstance(entry, dict) else {}
    kind, keys = _RULES.get(str(options.pop("by", "")), (GroupHash, ()))
    if not keys or set(options) != set(keys):
        raise InvalidInputError(
            'partition is {"by": "source", "sources": [...]}, {"by": "time", "start": '
            '"2020-01-01", "days": 1} or {"by": "entity", "entities": {"account": "entity"}}. Got '
            f"{str(entry)[:80]}."
        )
    return kind(**options)


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

    if share == 0:
        return np.zeros(len(X), dtype=np.bool_)
    digests = sample_digests(X if groups is None else groups)
    hashed = b"".join(hashlib.sha256(DOMAIN + bytes(digest)).digest()[:8] for digest in digests)
    numbers = np.frombuffer(hashed, dtype="<u8")
    # An exact comparison of integers: no row sits on a rounding error.
    return np.asarray(numbers < np.uint64(int(share * 2**63) * 2))
