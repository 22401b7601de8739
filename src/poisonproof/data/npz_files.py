"""Rows of NumPy files: an archive of arrays (npz), or samples alone (npy)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.data.columns import ArrayColumn, Reasons
from poisonproof.data.rows import RawRows
from poisonproof.data.schema import Limits, Schema, listed
from poisonproof.data.value_text import texts_of
from poisonproof.exceptions import InvalidInputError
from poisonproof.strict import read_array, read_npz


def read_npz_rows(path: Path, schema: Schema) -> RawRows:
    """Read arrays by the names in the schema; samples keep their shape, and are not named."""
    declared = schema.columns[0] if schema.columns else None
    if schema.ignore if declared is None else not isinstance(declared, ArrayColumn):
        raise InvalidInputError(f"{path} has arrays, not columns: none can be chosen or ignored.")
    samples = schema.samples if declared is None else declared.name
    others = [name for name in (schema.label, schema.groups, schema.weights) if name is not None]
    if path.suffix.lower() == ".npy":
        if others:
            raise InvalidInputError(f"{path} holds one array, no {others[0]!r}; use an npz file.")
        arrays = {samples: load_array(path)}
    else:
        arrays = load_arrays(path, [samples, *others])
    X = _samples(arrays[samples], samples, path)
    if isinstance(declared, ArrayColumn) and X.shape[1:] != declared.shape:
        raise InvalidInputError(
            f"Array {samples!r} of {path} has samples of shape {X.shape[1:]}, but the schema "
            f"declares {declared.shape}."
        )
    for name in others:
        if arrays[name].shape not in {(len(X),), (len(X), 1)}:
            raise InvalidInputError(
                f"Array {name!r} of {path} has shape {arrays[name].shape}, but there are "
                f"{len(X)} samples in {samples!r}; one value per sample is needed."
            )
    reasons = Reasons()
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


def load_arrays(path: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    """Return arrays of an npz file by name, without pickle."""
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
    """Return the array in an npy file, without pickle."""
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
    if array.dtype.kind not in "biufSUM":
        raise InvalidInputError(
            f"Array {name!r} of {path} has dtype {array.dtype}; labels and groups are text, "
            "numbers or dates."
        )
    # One text per distinct value: labels repeat.
    values, inverse = np.unique(array.reshape(-1), return_inverse=True)
    known, unknown = texts_of(values, most)
    codes = inverse.reshape(-1).tolist()
    reasons = {row: unknown[code] for row, code in enumerate(codes) if code in unknown}
    return [known[code] for code in codes], reasons
