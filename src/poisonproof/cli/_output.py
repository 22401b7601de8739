"""Files written whole or not at all, and checked before the work begins."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.extras import needing
from poisonproof.replacing import write_bytes, write_together

__all__ = [
    "COLUMN_SUFFIXES",
    "check_columns",
    "check_folder",
    "check_model_path",
    "check_out",
    "column_bytes",
    "write_bytes",
    "write_columns",
    "write_together",
]

COLUMN_SUFFIXES = (".csv", ".parquet", ".npz")


def check_out(
    path: Path | None, suffixes: Sequence[str] = COLUMN_SUFFIXES, inputs: Sequence[Path | None] = ()
) -> None:
    """Raise now if a file could not be written later, or would replace an input."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise InvalidInputError(
            f"{path} must end in one of {', '.join(suffixes)}, which tells its format."
        )
    if path.is_dir():
        raise InvalidInputError(f"{path} is a directory; name a file.")
    for other in inputs:
        if other is not None and other.exists() and path.exists() and path.samefile(other):
            raise InvalidInputError(f"Writing {path} would replace the input. Choose another name.")
    if not path.parent.is_dir():
        raise InvalidInputError(f"Cannot write {path}: {path.parent} is not a directory.")
    _check_writable(path.parent, path)


def check_folder(path: Path) -> None:
    """Raise now if a folder could not be made or written to."""
    if path.exists() and not path.is_dir():
        raise InvalidInputError(f"Cannot write to {path}: it is not a directory.")
    _check_writable(_existing_ancestor(path), path)


def check_model_path(path: Path) -> None:
    """Raise now if a model could not be saved to `path`, or would replace something else."""
    from poisonproof.store import check_target

    check_target(path)
    _check_writable(_existing_ancestor(path.parent), path)


def check_columns(path: Path, names: Sequence[str] | None, *, overwrite: bool) -> None:
    """Raise now if a model of other columns stands at `path`, unless it may be replaced."""
    from poisonproof.store import refuse_another

    columns = None if names is None else [str(name) for name in names]
    refuse_another(path, {"feature_names_in": columns}, overwrite=overwrite)


def write_columns(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns of equal length as CSV, Parquet or npz, by the suffix of `path`."""
    write_bytes(path, column_bytes(path, columns))


def column_bytes(path: Path, columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Return what `write_columns` writes."""
    formats = {".csv": _csv_bytes, ".parquet": _parquet_bytes, ".npz": _npz_bytes}
    return formats[path.suffix.lower()](columns)


def _csv_bytes(columns: Mapping[str, NDArray[Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return text.getvalue().encode()


def _npz_bytes(columns: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def _parquet_bytes(columns: Mapping[str, NDArray[Any]]) -> bytes:
    with needing("pyarrow", "data"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    buffer = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), buffer)
    return buffer.getvalue()


def _existing_ancestor(path: Path) -> Path:
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _check_writable(folder: Path, path: Path) -> None:
    if not folder.is_dir():
        raise InvalidInputError(f"Cannot write {path}: {folder} is not a directory.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInputError(f"Cannot write {path}: no permission to write in {folder}.")
