"""What `train` reads: by a frozen schema, or by columns named on the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.cli._options import declared_classes, parse_list
from poisonproof.cli._text import verbosity
from poisonproof.datasets import CheckedRows, Schema, read_rows, read_table, split_rows
from poisonproof.datasets.image_rows import hidden_by_class
from poisonproof.datasets.rows import RowProblem
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.progress import make_progress
from poisonproof.schema import (
    ArrayColumn,
    ImageColumn,
    TableSchema,
    TextColumn,
    freeze_schema,
    load_schema,
)
from poisonproof.schema.files import schema_values

__all__ = ["ColumnOptions", "TrainingSource", "open_source", "refuse_labels"]


def refuse_labels(rows: CheckedRows) -> None:
    """Raise `GuaranteeError` if a row was left out because of its label, or may have been."""
    labels = [problem for problem in rows.problems if problem.label]
    if rows.unit == "file":
        reason = "lies in a class whose name begins with a point, which hides the file"
        labels += [RowProblem(file, reason) for file in hidden_by_class(rows.path)]
    if labels:
        raise GuaranteeError(
            f"{rows.path}, {rows.unit} {labels[0].place}: {labels[0].reason}. With ss-dpa such "
            "a row cannot be left out: one flipped label would move samples to other members. "
            "Correct it, or use --method dpa."
        )


@dataclass(frozen=True)
class ColumnOptions:
    """Options of `train` that say what the columns mean."""

    label: str | None
    classes: str | None
    classes_file: Path | None
    features: str | None
    ignore: str | None
    groups: str | None
    weights: str | None
    x_key: str | None
    invalid_rows: str | None


@dataclass(frozen=True)
class TrainingSource:
    """How to read the training data.

    Attributes
    ----------
    classes : tuple of str
        The declared label set.
    invalid_rows : {"raise", "drop"}
    groups, weights : str or None
        The columns with contributors and weights.
    plain : Schema or None
        Columns named on the command line, else `table`.
    table : TableSchema or None
        The frozen schema.
    """

    classes: tuple[str, ...]
    invalid_rows: str
    groups: str | None
    weights: str | None
    plain: Schema | None
    table: TableSchema | None

    def image_shape(self) -> tuple[int, ...] | None:
        """Return the declared shape of a sample, channels first, if it is an image."""
        first = None if self.table is None else self.table.columns[0]
        if not isinstance(first, (ArrayColumn, ImageColumn)):
            return None
        if isinstance(first, ImageColumn) and first.encoder != "pixels":
            return None
        shape = first.shape
        return {2: (1, *shape), 3: shape}.get(len(shape))

    def read(self, data: Path, *, allow_missing: bool, droppable: bool) -> CheckedRows:
        """Read the rows; what does not fit is left out or an error, as declared.

        With `droppable` false (SS-DPA) a row may not be left out because of its label: its sample
        takes part in the partitions, and a flipped label must not decide that.
        """
        if self.table is not None:
            rows = read_table(
                data, self.table, allow_missing=allow_missing, progress=make_progress(verbosity())
            )
        elif self.plain is not None:
            rows = read_rows(data, replace(self.plain, allow_missing=allow_missing))
        else:
            raise InvalidInputError("Nothing says how to read the data.")
        if self.invalid_rows == "raise":
            rows.refuse_problems(
                "Correct the row, or leave such rows out with --invalid-rows drop."
            )
        if not droppable:
            refuse_labels(rows)
        return rows

    def held_out(self, rows: CheckedRows) -> NDArray[np.bool_]:
        """Return which rows are held out of training; without a schema none."""
        if self.table is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return split_rows(rows, self.table)

    def provenance(self, rows: CheckedRows, train: NDArray[np.bool_]) -> dict[str, Any] | None:
        """Return what the model should know about its data: schema, rows, contributors."""
        if self.table is None:
            return None
        groups = None if rows.groups is None else len(set(rows.groups[train].tolist()))
        return {
            "schema": schema_values(self.table),
            "n_rows": int(train.sum()),
            "n_groups": groups,
            "n_left_out": len(rows.problems),
            "libraries": _libraries(self.table),
        }

    def streamed_provenance(self) -> dict[str, Any] | None:
        """Return the same before any row is read; contributors are not counted."""
        if self.table is None:
            return None
        counts = {"n_rows": 0, "n_groups": None, "n_left_out": 0}
        known = {"schema": schema_values(self.table), "libraries": _libraries(self.table)}
        return {**known, **counts}


def _libraries(table: TableSchema) -> dict[str, str]:
    """Return the versions of what turned cells into numbers, beyond the model's fingerprint."""
    names = {
        "pillow": table.kind == "images",
        "sentence-transformers": any(
            isinstance(column, TextColumn) and column.encoder == "sentences"
            for column in table.columns
        ),
        "torch": any(
            isinstance(column, ImageColumn) and column.encoder == "network"
            for column in table.columns
        ),
    }
    return {name: metadata.version(name) for name, used in names.items() if used}


def open_source(
    schema: Path | None, options: ColumnOptions, data: Path, *, stream: bool = False
) -> TrainingSource:
    """Return how to read the data, from a schema file or from options."""
    if schema is not None:
        return _with_schema(schema, options)
    if data.is_dir() and not stream:
        raise InvalidInputError(
            f"{data} is a folder. A folder of images needs a schema: poisonproof schema {data} "
            "--out FILE.json, then --schema FILE.json."
        )
    classes = declared_classes(options.classes, options.classes_file)
    if options.label is None and data.suffix.lower() != ".npz":
        raise InvalidInputError("Name the column with the labels: --label COLUMN.")
    plain = Schema(
        classes=classes,
        label=options.label or "y",
        groups=options.groups,
        weights=options.weights,
        features=parse_list(options.features, "--features") or None,
        ignore=parse_list(options.ignore, "--ignore"),
        samples=options.x_key or "X",
    )
    invalid = options.invalid_rows or "raise"
    return TrainingSource(classes, invalid, options.groups, options.weights, plain, None)


def _with_schema(file: Path, options: ColumnOptions) -> TrainingSource:
    told = {
        "--classes": options.classes,
        "--classes-file": options.classes_file,
        "--features": options.features,
        "--ignore": options.ignore,
        "--weights": options.weights,
        "--x-key": options.x_key,
    }
    if given := [name for name, value in told.items() if value is not None]:
        raise InvalidInputError(
            f"{', '.join(given)}: the schema {file} says that already. Leave it out, or change the "
            "schema and freeze it again."
        )
    table = load_schema(file)
    if options.label is not None and options.label != table.label:
        raise InvalidInputError(
            f"--label is {options.label!r}, but the schema {file} declares {table.label!r}."
        )
    if options.groups is not None and options.groups != table.groups:
        # The user names the column; nothing is found in the data.
        table = freeze_schema(table.with_groups(options.groups))
    invalid = options.invalid_rows or table.invalid_rows
    return TrainingSource(table.classes, invalid, table.groups, table.weights, None, table)
