"""The rows that `attack` poisons: digits, a table of numbers, or whatever a schema describes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.cli._data import AskedRows as DataColumns
from poisonproof.cli._data import open_model
from poisonproof.cli._labelled import LabelledColumns, read_labelled
from poisonproof.cli._options import declared_classes, parse_list
from poisonproof.cli._text import note_problems, verbosity
from poisonproof.datasets import Schema, read_rows, read_written, split_rows
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress
from poisonproof.schema import ArrayColumn, ImageColumn, TableSchema
from poisonproof.schema.encoding import encode_rows

if TYPE_CHECKING:
    from poisonproof.attacks import Material

__all__ = [
    "AttackedData",
    "PlainColumns",
    "digits",
    "member_name",
    "numbers",
    "with_model",
    "with_schema",
]


@dataclass(frozen=True, eq=False)
class AttackedData:
    """Clean training rows, the rows whose predictions are attacked, and what they are made of.

    Attributes
    ----------
    material : Material
        The training rows, and how to forge more.
    y : ndarray of shape (m,)
    groups : ndarray of shape (m,) or None
        Contributors, if the schema names them.
    test : ndarray of shape (n, ...)
    classes : ndarray of shape (C,)
    name : str
        What figures call the data.
    """

    material: Material
    y: NDArray[Any]
    groups: NDArray[Any] | None
    test: NDArray[Any]
    classes: NDArray[Any]
    name: str


@dataclass(frozen=True)
class PlainColumns:
    """Options that say what the columns of a table of numbers mean."""

    label: str | None
    classes: str | None
    ignore: str | None
    samples: str
    groups: str | None = None

    def given(self) -> dict[str, str | None]:
        """Return the options by name; None where one was left out."""
        return {
            "--label": self.label,
            "--classes": self.classes,
            "--ignore": self.ignore,
            "--groups": self.groups,
        }


def digits() -> AttackedData:
    """Return scikit-learn's handwritten digits."""
    from sklearn.datasets import load_digits

    from poisonproof.attacks import NumberRows

    X, y = load_digits(return_X_y=True)
    material = NumberRows(X[:1300])
    return AttackedData(material, y[:1300], None, X[1300:], np.arange(10), "Handwritten digits")


def numbers(data: Path, test: Path | None, columns: PlainColumns) -> AttackedData:
    """Read two tables of numbers."""
    from poisonproof.attacks import NumberRows

    if test is None:
        raise InvalidInputError(
            "Name the test rows, too: poisonproof attack TRAIN TEST. With --schema the rows that "
            "it holds out are taken."
        )
    if columns.label is None and data.suffix.lower() != ".npz":
        raise InvalidInputError("Name the column with the labels: --label COLUMN.")
    if columns.groups is not None:
        raise InvalidInputError(
            "--groups is for a model that exists (--trained). To train one on contributors, name "
            "them in a schema: poisonproof schema DATA --groups COLUMN."
        )
    names = declared_classes(columns.classes, None)
    schema = Schema(
        classes=names,
        label=columns.label or "y",
        ignore=parse_list(columns.ignore, "--ignore"),
        allow_missing=False,
        samples=columns.samples,
    )
    train_rows, test_rows = read_rows(data, schema), read_rows(test, schema)
    for rows in (train_rows, test_rows):
        rows.refuse_problems("With --schema, texts and categories are read and such rows left out.")
    if train_rows.names != test_rows.names or train_rows.X.shape[1] != test_rows.X.shape[1]:
        raise InvalidInputError(f"{data} and {test} have different feature columns.")
    labels = np.array(names)
    return AttackedData(
        NumberRows(train_rows.X), labels[train_rows.labels], None, test_rows.X, labels, data.name
    )


def with_model(
    path: Path, data: Path | None, test: Path | None, columns: PlainColumns
) -> tuple[Any, AttackedData]:
    """Load a trained model and the rows that it was trained on."""
    from sklearn.utils import get_tags

    from poisonproof.attacks import NumberRows
    from poisonproof.attacks.study import WEIGHTED
    from poisonproof.estimators.aggregation import PartitionAggregation

    model = open_model(path, jobs=None, verbose=0)
    classifier = model.classifier
    if not isinstance(classifier, PartitionAggregation):
        raise InvalidInputError(
            f"{path} is a {type(classifier).__name__}; models of DPAClassifier and "
            "SSDPAClassifier can be attacked."
        )
    if data is None:
        raise InvalidInputError(
            f"Name the rows that {path} was trained on: attack DATA --trained {path}."
        )
    if model.table is not None:
        if given := [name for name, value in columns.given().items() if value is not None]:
            raise InvalidInputError(
                f"{', '.join(given)}: the schema of {path} says that already. Leave it out."
            )
        if model.table.weights is not None:
            raise InvalidInputError(WEIGHTED)
        missing = bool(get_tags(classifier).input_tags.allow_nan)
        attacked = with_schema(model.table, data, test, allow_missing=missing)
        by_group = classifier.partitioner_.unit == "group"
        return classifier, attacked if by_group else replace(attacked, groups=None)
    if test is None:
        raise InvalidInputError(
            f"Name the test rows, too: poisonproof attack TRAIN TEST --trained {path}. Only models "
            "with a schema know which rows they hold out."
        )
    named = LabelledColumns(columns.label, columns.groups, None, columns.ignore, columns.samples)
    X, y, groups, _ = read_labelled(model, data, named)
    asked = model.read(
        DataColumns(test, columns.label, parse_list(columns.ignore, "--ignore"), columns.samples)
    )
    attacked = AttackedData(NumberRows(X), y, groups, asked.X, classifier.classes_, data.name)
    return classifier, attacked


def member_name(classifier: Any) -> str:
    """Return what figures call the members of a trained model."""
    return type(classifier._template()).__name__


def with_schema(
    schema: TableSchema, data: Path, test: Path | None, *, allow_missing: bool
) -> AttackedData:
    """Read what a frozen schema describes; without `test`, attack the rows that it holds out."""
    bar = make_progress(verbosity())
    rows, written = read_written(data, schema, allow_missing=allow_missing, progress=bar)
    note_problems(rows)
    held_out = split_rows(rows, schema)
    if test is not None:
        asked_rows, asked = read_written(test, schema, allow_missing=allow_missing, progress=bar)
        note_problems(asked_rows)
    elif held_out.any():
        asked = written[held_out]
    else:
        raise InvalidInputError(
            f"The schema holds no rows of {data} out of training. Name the test rows: "
            "poisonproof attack TRAIN TEST."
        )
    train = ~held_out if test is None else np.ones(len(rows), dtype=np.bool_)
    labels = np.array(schema.classes)
    return AttackedData(
        _material(schema, written[train]),
        labels[rows.labels][train],
        None if rows.groups is None else rows.groups[train],
        asked,
        labels,
        data.name,
    )


def _material(schema: TableSchema, rows: NDArray[Any]) -> Material:
    from poisonproof.attacks import CellRows, NumberRows

    first = schema.columns[0]
    if not isinstance(first, (ArrayColumn, ImageColumn)):
        return CellRows(schema, rows)

    def encode(written: NDArray[Any]) -> NDArray[Any]:
        samples = written.reshape(len(written), *first.shape)
        return encode_rows(schema, {first.name: samples}, len(samples))[0]

    shape = first.shape if isinstance(first, ImageColumn) else None
    return NumberRows(rows, image_shape=shape, encoder=encode)
