"""Certificates as files: npz, CSV and Parquet, lossless and without pickle.

CSV and Parquet hold the columns of `Certificates.columns`, npz the arrays under the names of the
attributes. Beside them goes one JSON description (threat, classes, number of members, dtypes): a
comment in the first line of CSV (``pandas.read_csv(path, skiprows=1)`` reads the rest), schema
metadata in Parquet, an array named ``description`` in npz.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.classes import class_indices
from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import Threat
from poisonproof.exceptions import InvalidInputError, StoreError
from poisonproof.extras import needing
from poisonproof.replacing import replacing
from poisonproof.strict import parse_json, read_npz

__all__ = ["load_certificates", "save_certificates"]

_FORMAT = "poisonproof-certificates"
_VERSION = 1
_COMMENT = f"# {_FORMAT} "
_METADATA_KEY = _FORMAT.encode()

Columns = Mapping[str, Any]


def save_certificates(certificates: Certificates, path: str | os.PathLike[str]) -> None:
    """Write `certificates` in the format that the suffix of `path` names."""
    path = Path(path)
    write, _ = _format_of(path)
    columns = {name: _plain(name, column) for name, column in certificates.columns().items()}
    description = json.dumps(_describe(certificates), allow_nan=False)
    try:
        with replacing(path) as file:
            write(file, columns, description)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from error


def load_certificates(path: str | os.PathLike[str]) -> Certificates:
    """Read what `save_certificates` wrote."""
    path = Path(path)
    _, read = _format_of(path)
    try:
        with path.open("rb") as file:
            columns, description = read(file)
        return _assemble(columns, parse_json(description))
    except FileNotFoundError as error:
        raise StoreError(f"There is no file {path}.") from error
    except (
        *(ValueError, LookupError, TypeError, AttributeError, OSError, EOFError),
        *(csv.Error, zipfile.BadZipFile, zlib.error),
    ) as error:
        raise StoreError(f"{path} holds no readable certificates: {error}") from error


def _format_of(path: Path) -> tuple[Callable[..., None], Callable[[IO[bytes]], Any]]:
    formats = {
        ".npz": (_write_npz, _read_npz),
        ".csv": (_write_csv, _read_csv),
        ".parquet": (_write_parquet, _read_parquet),
    }
    if path.suffix.lower() not in formats:
        raise InvalidInputError(
            f"Certificates are kept in files that end in {', '.join(formats)}. Got {path.name!r}."
        )
    return formats[path.suffix.lower()]


def _plain(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in native byte order, and not of objects, which only pickle could write."""
    if array.dtype == object:
        values = array.tolist()
        kinds = {type(value) for value in values}
        if len(kinds) <= 1:
            array = np.array(values, dtype=None if kinds else np.str_)
    if array.dtype.kind not in "biufU" or array.dtype == np.longdouble:
        raise InvalidInputError(
            f"Only text, integers, floats or booleans, not mixed, can be saved; {name} has dtype "
            f"{array.dtype}."
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _describe(certificates: Certificates) -> dict[str, Any]:
    fields = ("labels", "radius", "runner_up", "counts", "target", "classes")
    arrays = {name: getattr(certificates, name) for name in fields}
    classes = certificates.classes
    listed = None if classes is None else _plain("classes", classes).tolist()
    for value in listed or ():
        _check_class(value)
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "threat": certificates.threat.to_dict(),
        "n_rows": len(certificates),
        "n_members": certificates.n_members,
        "n_classes": certificates.n_classes,
        "method": certificates.method,
        "classes": listed,
        "dtypes": {name: array.dtype.str for name, array in arrays.items() if array is not None},
    }


def _check_class(value: Any) -> None:
    """Raise for a class that some format could not give back as it was."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(f"Classes must be finite to be saved. Got {value!r}.")
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= c <= "\udfff" for c in value)):
        raise InvalidInputError(
            "Classes with a NUL character or half of a surrogate pair cannot be saved. Got "
            f"{value[:80]!r}."
        )


def _assemble(columns: Columns, description: dict[str, Any]) -> Certificates:
    if description["format"] != _FORMAT or description["version"] != _VERSION:
        raise ValueError(
            f"format {description['format']!r} version {description['version']!r}, "
            f"known is {_FORMAT!r} version {_VERSION}"
        )
    if len(columns["radius"]) != description["n_rows"]:
        raise ValueError(f"{len(columns['radius'])} rows, but {description['n_rows']} were saved")
    dtypes, n_classes = description["dtypes"], description["n_classes"]
    listed = description["classes"]
    classes = None if listed is None else np.array(listed, dtype=dtypes["classes"])

    def labels(column: str, field: str) -> NDArray[Any]:
        values = np.asarray(columns[column])
        if values.dtype.kind == "U":  # CSV knows only text
            known = range(n_classes) if listed is None else listed
            text = {str(value): value for value in known}
            values = np.array([text[value] for value in values.tolist()], dtype=object)
        indices = class_indices(values, classes, n_classes, name=column)
        return (indices if classes is None else classes[indices]).astype(dtypes[field])

    if "counts" in columns:
        counts = columns["counts"]
    else:
        names = range(n_classes) if listed is None else listed
        counts = np.stack([np.asarray(columns[f"votes_{name}"]) for name in names], axis=1)
    return Certificates(
        labels=labels("label", "labels"),
        radius=np.asarray(columns["radius"]).astype(dtypes["radius"]),
        runner_up=labels("runner_up", "runner_up"),
        counts=counts.astype(dtypes["counts"]),
        threat=Threat.from_dict(description["threat"]),
        n_members=int(description["n_members"]),
        classes=classes,
        target=labels("target", "target") if "target" in dtypes else None,
        method=description.get("method", "plurality"),  # the only one before there were others
    )


def _write_npz(file: IO[bytes], columns: Columns, description: str) -> None:
    arrays = {name: column for name, column in columns.items() if not name.startswith("votes_")}
    arrays["labels"] = arrays.pop("label")
    votes = [column for name, column in columns.items() if name.startswith("votes_")]
    arrays |= {"counts": np.stack(votes, axis=1), "description": np.array(description)}
    np.savez(file, allow_pickle=False, **arrays)


def _read_npz(file: IO[bytes]) -> tuple[Columns, str]:
    columns: dict[str, Any] = read_npz(file)
    columns["label"] = columns.pop("labels")
    return columns, str(columns["description"])


def _write_csv(file: IO[bytes], columns: Columns, description: str) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    text.write(f"{_COMMENT}{description}\n")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    text.detach()


def _read_csv(file: IO[bytes]) -> tuple[Columns, str]:
    with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        first = text.readline()
        if not first.startswith(_COMMENT):
            raise ValueError(f"the first line does not begin with {_COMMENT.strip()!r}")
        header, *rows = csv.reader(text, strict=True)
    columns = list(zip(*rows, strict=True)) or [()] * len(header)
    named = zip(header, columns, strict=True)
    return {name: np.array(column, dtype=np.str_) for name, column in named}, first[len(_COMMENT) :]


def _write_parquet(file: IO[bytes], columns: Columns, description: str) -> None:
    pa, pq = _pyarrow()
    table = pa.table({name: pa.array(column) for name, column in columns.items()})
    pq.write_table(table.replace_schema_metadata({_METADATA_KEY: description}), file)


def _read_parquet(file: IO[bytes]) -> tuple[Columns, str]:
    _, pq = _pyarrow()
    table = pq.read_table(file)
    metadata = table.schema.metadata or {}
    if _METADATA_KEY not in metadata:
        raise ValueError(f"its schema has no metadata {_FORMAT!r}")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    return columns, metadata[_METADATA_KEY].decode()


def _pyarrow() -> tuple[Any, Any]:
    with needing("pyarrow", "data"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    return pa, pq
