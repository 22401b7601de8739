"""What `train` reads: by a frozen schema, or by columns named on the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import poisonproof
from poisonproof.cli._options import declared_classes, parse_list
from poisonproof.cli._screen import counted, note, note_problems, verbosity
from poisonproof.data.columns import ArrayColumn, ImageColumn, TextColumn, number_columns
from poisonproof.data.image_files import hidden_by_class
from poisonproof.data.rows import CheckedRows, RowProblem
from poisonproof.data.schema import (
    Schema,
    freeze_schema,
    load_schema,
    parse_schema,
    schema_values,
)
from poisonproof.data.sources import read_table, split_rows
from poisonproof.data.value_text import label_text
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.progress import make_progress


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
    table : Schema or None
        The frozen schema.
    """

    classes: tuple[str, ...]
    invalid_rows: str
    groups: str | None
    weights: str | None
    plain: Schema | None
    table: Schema | None

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
            rows = read_table(data, self.plain, allow_missing=allow_missing)
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


def _libraries(table: Schema) -> dict[str, str]:
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
    plain = freeze_schema(
        Schema(
            columns=number_columns(parse_list(options.features, "--features")),
            classes=classes,
            label=options.label or "y",
            groups=options.groups,
            weights=options.weights,
            ignore=parse_list(options.ignore, "--ignore"),
            others="ignore",
            samples=options.x_key or "X",
        )
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


# From options to rows: for training, and for a trained model.

TRUTH_VALUES = {
    "False": ("False", "0", "false", "FALSE"),
    "True": ("True", "1", "true", "TRUE"),
}
"""How spreadsheets and binary files write the labels of a model that was trained on booleans."""


@dataclass(frozen=True)
class AskedRows:
    """Options that say how to read the rows that a model is asked about."""

    path: Path
    label: str | None
    ignore: tuple[str, ...]
    samples: str
    held_out: bool = False
    cells: bool = False


@dataclass(frozen=True)
class TrainedModel:
    """A loaded model and what it expects of a data file.

    Attributes
    ----------
    classifier : DPAClassifier or SSDPAClassifier
    feature_names : tuple of str or None
        The columns it was trained on, if they had names.
    classes : tuple of str
        Its label set as text.
    table : Schema or None
        The frozen schema it was trained with, if there was one.
    """

    classifier: Any
    feature_names: tuple[str, ...] | None
    classes: tuple[str, ...]
    table: Schema | None = None

    def read(self, asked: AskedRows) -> CheckedRows:
        """Read rows with the model's features, matched by name, whatever their order."""
        return self._read(asked)[0]

    def read_tested(self, asked: AskedRows) -> tuple[CheckedRows, NDArray[np.bool_] | None]:
        """Read rows, and find which the model was trained on; None if that cannot be checked."""
        from poisonproof.estimators.training_set import seen_rows
        from poisonproof.partition.canonical import are_among

        rows, trained_on = self._read(asked)
        seen = seen_rows(self.classifier, rows.X)
        if seen is None and trained_on is not None:
            seen = are_among(rows.X, trained_on)
        return rows, seen

    def _read(self, asked: AskedRows) -> tuple[CheckedRows, NDArray[Any] | None]:
        """Return the rows, and the samples trained on if these are in the same file."""
        from sklearn.utils import get_tags

        allow_missing = bool(get_tags(self.classifier).input_tags.allow_nan)
        if self.table is not None:
            return self._read_table(asked, self.table, allow_missing)
        if asked.held_out:
            raise InvalidInputError(
                "--held-out needs a model that was trained with --schema: without one no rows were "
                "held out."
            )
        rows = self.read_plain(asked.path, asked.label, asked.ignore, asked.samples)
        rows.refuse_problems()
        return rows, None

    def read_plain(
        self,
        path: Path,
        label: str | None,
        ignore: tuple[str, ...],
        samples: str,
        groups: str | None = None,
        weights: str | None = None,
    ) -> CheckedRows:
        """Read rows for a model without a schema: its features by name, if they have names."""
        from sklearn.utils import get_tags

        classifier = self.classifier
        truth = classifier.classes_.dtype == np.bool_
        named = path.suffix.lower() not in {".npz", ".npy"}
        schema = Schema(
            columns=number_columns(self.feature_names or ()) if named else (),
            classes=[t for c in self.classes for t in TRUTH_VALUES[c]] if truth else self.classes,
            label=label,
            groups=groups,
            weights=weights,
            ignore=ignore,
            samples=samples,
        )
        missing = bool(get_tags(classifier).input_tags.allow_nan)
        rows = read_table(path, freeze_schema(schema), allow_missing=missing)
        wanted = getattr(classifier, "n_features_in_", None)
        if wanted is not None and rows.X.shape[1] != wanted:
            raise InvalidInputError(
                f"{path} has {rows.X.shape[1]} features per row, but the model was trained on "
                f"{wanted}."
            )
        if truth and rows.labels is not None:
            return replace(rows, labels=rows.labels // 4)
        return rows

    def truth(self, rows: CheckedRows) -> NDArray[Any] | None:
        """Return the true labels of rows that were read with them."""
        known = self.classifier.classes_ if self.table is None else np.array(self.table.classes)
        return None if rows.labels is None else known[rows.labels]

    def _read_table(
        self, asked: AskedRows, table: Schema, allow_missing: bool
    ) -> tuple[CheckedRows, NDArray[Any] | None]:
        if asked.label not in (None, table.label):
            raise InvalidInputError(
                f"--label is {asked.label!r}, but the model's schema declares {table.label!r}."
            )
        rows = read_table(
            asked.path,
            replace(table, ignore=(*table.ignore, *asked.ignore)),
            labelled=asked.held_out or asked.label is not None,
            grouped=asked.held_out,
            allow_missing=allow_missing,
            keep_cells=asked.cells,
            progress=make_progress(verbosity()),
        )
        if table.invalid_rows == "raise":
            rows.refuse_problems()
        elif rows.problems:
            note_problems(rows)
        if not asked.held_out:
            return rows, None
        held_out = split_rows(rows, table)
        if not held_out.any():
            raise InvalidInputError(
                f"No row of {asked.path} is held out: the schema's test_share is "
                f"{table.test_share:g}."
            )
        return rows.only(held_out), rows.X[~held_out]

    def class_value(self, text: str, option: str) -> Any:
        """Return the class that `text` names."""
        if text not in self.classes:
            raise InvalidInputError(f"{option} is one of {', '.join(self.classes)}. Got {text!r}.")
        return self.classifier.classes_[self.classes.index(text)]


def _class_texts(classes: NDArray[Any]) -> tuple[str, ...]:
    if classes.dtype == np.bool_:
        return tuple(str(value) for value in classes)
    return tuple(str(label_text(value)) for value in classes)


def unseen(seen: NDArray[np.bool_] | None, n_rows: int) -> NDArray[np.bool_]:
    """Return which rows are test rows: those not trained on, or all where there are no such."""
    return np.ones(n_rows, dtype=np.bool_) if seen is None or seen.all() else ~seen


def stored_fingerprint(path: Path) -> str:
    """Return the fingerprint of a model that was just written."""
    from poisonproof.store.reading import ModelReader

    return ModelReader.open(path).manifest.fingerprint


def open_model(path: Path, *, jobs: int | None, verbose: int) -> TrainedModel:
    """Load a model directory."""
    if not path.exists():
        raise InvalidInputError(f"There is no model {path}. Make one with: poisonproof train")
    classifier = poisonproof.load(path).set_schedule(jobs, verbose)
    known = getattr(classifier, "provenance_", None) or {}
    table = parse_schema(known["schema"]) if known.get("schema") else None
    names = getattr(classifier, "feature_names_in_", None)
    if names is not None:
        # Columns are matched by name here; plain arrays go on, so there are no names to compare.
        del classifier.feature_names_in_
    return TrainedModel(
        classifier,
        None if names is None else tuple(str(name) for name in names),
        _class_texts(classifier.classes_),
        table,
    )


# Rows with labels for a model that exists: to add, to remove, or those it was trained on.

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
        ignore = parse_list(columns.ignore, "--ignore")
        label = columns.label or "y"
        rows = model.read_plain(
            path, label, ignore, columns.samples, columns.groups, columns.weights
        )
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
