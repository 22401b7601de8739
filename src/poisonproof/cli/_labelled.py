"""Rows with labels for a model that exists: to add, to remove, or those it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from poisonproof.cli._data import TrainedModel
from poisonproof.cli._options import parse_list
from poisonproof.cli._source import refuse_labels
from poisonproof.cli._text import counted, note, verbosity
from poisonproof.datasets import CheckedRows, Schema, read_rows, read_table, split_rows
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress

__all__ = ["GroupsOption", "LabelledColumns", "WeightsOption", "read_labelled"]

GroupsOption = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Who contributed a row, as in train.")
]
WeightsOption = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The weight of a row, as in train.")
]


@dataclass(frozen=True)
class LabelledColumns:
    """Options that say what the columns mean, for a model that was trained without a schema."""

    label: str | None
    groups: str | None
    weights: str | None
    ignore: str | None
    samples: str


def read_labelled(model: TrainedModel, path: Path, columns: LabelledColumns) -> tuple[Any, ...]:
    """Return samples, labels, groups and weights as `update` takes them.

    Rows that the model's schema holds out of training are left out.
    """
    from sklearn.utils import get_tags

    classifier = model.classifier
    _check_groups(model, columns.groups)
    allow_missing = bool(get_tags(classifier).input_tags.allow_nan)
    if model.table is not None:
        rows = read_table(
            path,
            model.table,
            labelled=True,
            allow_missing=allow_missing,
            progress=make_progress(verbosity()),
        )
    else:
        if columns.label is None and path.suffix.lower() != ".npz":
            raise InvalidInputError("Name the column with the labels: --label COLUMN.")
        has_names = path.suffix.lower() not in {".npz", ".npy"}
        schema = Schema(
            classes=model.classes,
            also=model.also,
            label=columns.label or "y",
            groups=columns.groups,
            weights=columns.weights,
            features=model.feature_names if has_names else None,
            ignore=parse_list(columns.ignore, "--ignore"),
            others="raise",
            n_features=getattr(classifier, "n_features_in_", None),
            allow_missing=allow_missing,
            samples=columns.samples,
        )
        rows = read_rows(path, schema)
    if classifier.invalid_rows == "raise":
        rows.refuse_problems()
    if "insert_delete" not in getattr(classifier, "threats", ("insert_delete",)):
        refuse_labels(rows)
    return _training_rows(model, _trained_on(model, rows))


def _check_groups(model: TrainedModel, groups: str | None) -> None:
    """Refuse contributors that the model does not read, or reads from another column."""
    if groups is None:
        return
    if not _by_group(model):
        raise InvalidInputError(
            f"--groups {groups}: this model certifies rows and does not read contributors. Leave "
            "it out, or train with --groups."
        )
    if model.table is not None and groups != model.table.groups:
        raise InvalidInputError(
            f"--groups is {groups!r}, but the model's schema declares {model.table.groups!r}."
        )


def _by_group(model: TrainedModel) -> bool:
    partitioner = getattr(model.classifier, "partitioner_", None)
    return partitioner is not None and partitioner.unit == "group"


def _trained_on(model: TrainedModel, rows: CheckedRows) -> CheckedRows:
    if model.table is None:
        return rows
    held_out = split_rows(rows, model.table)
    if held_out.all():
        raise InvalidInputError(
            f"All rows of {rows.path} are held out of training by the model's schema."
        )
    if held_out.any():
        note(f"{counted(int(held_out.sum()), 'row')} of {rows.path} held out of training.")
    return rows.only(~held_out)


def _training_rows(model: TrainedModel, rows: CheckedRows) -> tuple[Any, ...]:
    by_group = _by_group(model)
    if by_group and rows.groups is None:
        raise InvalidInputError(
            "The model is partitioned by contributor: name it, --groups COLUMN."
        )
    return rows.X, model.truth(rows), rows.groups if by_group else None, rows.weights
