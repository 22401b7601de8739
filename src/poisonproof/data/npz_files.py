"""Rows of NumPy files: an archive of arrays (npz), or samples alone (npy)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.declared_columns import Schema, listed
from poisonproof.data.rows import RawRows, too_long
from poisonproof.data.schema import Limits
from poisonproof.data.value_text import NoTextError, label_text
from poisonproof.exceptions import InvalidInputError
from poisonproof.strict import read_array, read_npz


def read_npz_rows(path: Path, schema: Schema) -> RawRows:
    """Read arrays by the names in the schema; samples of any shape become rows of numbers.

    The features of a npz file have no names, so ``features`` and ``ignore`` do not apply.
    """
    if schema.features is not None or schema.ignore:
        raise InvalidInputError(f"{path} has arrays, not named columns: nothing to pick or ignore.")
    wanted = [schema.samples, schema.label, schema.groups, schema.weights]
    arrays = load_arrays(path, [name for name in wanted if name is not None])
    X = _samples(arrays[schema.samples], schema.samples, path)
    for name in (schema.label, schema.groups, schema.weights):
        if name is not None and arrays[name].shape not in {(len(X),), (len(X), 1)}:
            raise InvalidInputError(
                f"Array {name!r} of {path} has shape {arrays[name].shape}, but there are "
                f"{len(X)} samples in {schema.samples!r}; one value per sample is needed."
            )
    reasons: dict[int, str] = {}
    label_reasons: dict[int, str] = {}

    def _texts(name: str | None, problems: dict[int, str]) -> list[str | None] | None:
        if name is None:
            return None
        texts, without = array_texts(arrays[name], name, path, schema.limits.cell)
        for row, reason in without.items():
            problems.setdefault(row, f"array {name!r}: {reason}")
        return texts

    return RawRows(
        X=X,
        labels=_texts(schema.label, label_reasons),
        groups=_texts(schema.groups, reasons),
        weights=None
        if schema.weights is None
        else _numbers(arrays[schema.weights], schema.weights, path).reshape(-1).astype(np.float64),
        names=None,
        places=range(len(X)),
        unit="row",
        reasons=reasons,
        label_reasons=label_reasons,
    )


def read_npy_rows(path: Path, schema: Schema) -> RawRows:
    """Read samples without labels."""
    asked = schema.label or schema.groups or schema.weights
    if asked is not None:
        raise InvalidInputError(f"{path} holds one array and no {asked!r}; use a npz file.")
    X = _samples(load_array(path), path.name, path)
    return RawRows(X, None, None, None, None, range(len(X)), "row")


def load_arrays(path: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    """Return arrays of a npz file by name, without pickle."""
    try:
        with path.open("rb") as file:
            return read_npz(file, names)
    except KeyError as error:
        known = error.args[0]
        missing = [name for name in names if name not in known]
        raise InvalidInputError(
            f"{path} has no array {listed(missing)}. It has {listed(known)}; name the ones to "
            "use, for example --x-key x_train --y-key y_train."
        ) from error
    except Exception as error:  # damaged bytes make decoders raise nearly anything
        raise InvalidInputError(f"{path} is not a readable npz file: {error}") from error


def load_array(path: Path) -> NDArray[Any]:
    """Return the array in a npy file, without pickle."""
    try:
        with path.open("rb") as file:
            return read_array(file, path.stat().st_size)
    except Exception as error:  # damaged bytes make decoders raise nearly anything
        raise InvalidInputError(f"{path} is not a readable npy file: {error}") from error


def _samples(array: NDArray[Any], name: str, path: Path) -> NDArray[Any]:
    if array.ndim < 2:
        raise InvalidInputError(
            f"Array {name!r} of {path} has shape {array.shape}; samples have shape (n, d) or more."
        )
    return _numbers(array, name, path)


def _numbers(array: NDArray[Any], name: str, path: Path) -> NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"Array {name!r} of {path} has dtype {array.dtype}; numbers are needed."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and its row rejected
            return array.astype(np.float64)
    return array


def array_texts(
    array: NDArray[Any], name: str, path: Path, most: int = Limits().cell
) -> tuple[list[str | None], dict[int, str]]:
    """Return the text of every value, as `label_text` writes it, and why some have none."""
    if array.dtype.kind not in "biufSUMm":
        raise InvalidInputError(
            f"Array {name!r} of {path} has dtype {array.dtype}; labels and groups are text, "
            "numbers or dates."
        )
    # One text per distinct value: labels repeat.
    values, inverse = np.unique(array.reshape(-1), return_inverse=True)
    known: list[str | None] = []
    unknown: dict[int, str] = {}
    for code, beyond in enumerate(_beyond_unicode(values)):
        try:
            if beyond:
                raise NoTextError("it is no Unicode text")
            text = label_text(values[code])
            if text is not None and len(text.encode()) > most:
                raise NoTextError(too_long("it", most))
            known.append(text)
        except NoTextError as error:
            known.append(None)
            unknown[code] = str(error)
    codes = inverse.reshape(-1).tolist()
    reasons = {row: unknown[code] for row, code in enumerate(codes) if code in unknown}
    return [known[code] for code in codes], reasons


def _beyond_unicode(values: NDArray[Any]) -> list[bool]:
    """Say which values hold characters that no Python text can; NumPy fails when asked for them."""
    if values.dtype.kind != "U" or not values.nbytes:
        return [False] * len(values)
    native = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
    largest = native.view(np.uint32).reshape(len(values), -1).max(axis=1)
    return [character > sys.maxunicode for character in largest.tolist()]
