"""Open the data files and models named on the command line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.threats import unit_noun
from poisonproof.cli._app import declared_classes, parse_list, refuse_given, takes_missing
from poisonproof.cli._screen import counted, note, note_problems, verbosity
from poisonproof.data.columns import ImageColumn, TextColumn, number_columns
from poisonproof.data.image_files import hidden_by_class
from poisonproof.data.rows import CheckedRows, RowProblem
from poisonproof.data.schema import (
    Schema,
    freeze_schema,
    load_schema,
    parse_schema,
    schema_values,
)
from poisonproof.data.sources import read_entities, read_table, split_rows
from poisonproof.data.value_text import label_text
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.progress import make_progress

TRUTH_VALUES = {
    "False": ("False", "0", "false", "FALSE"),
    "True": ("True", "1", "true", "TRUE"),
}
"""Texts for the labels of a model trained on booleans, in spreadsheets and binary files."""


@dataclass(frozen=True)
class Columns:
    """The options about the columns of a file; None where one is not given."""

    label: str | None = None
    classes: str | None = None
    features: str | None = None
    ignore: str | None = None
    groups: str | None = None
    weights: str | None = None
    x_key: str | None = None
    entities: Path | None = None

    def refuse(self, who: str, *, allowed: tuple[str, ...] = ()) -> None:
        """Refuse options that `who` decides."""
        given = {key: value for key, value in vars(self).items() if key not in allowed}
        refuse_given({f"--{key.replace('_', '-')}": value for key, value in given.items()}, who)

    def label_in(self, path: Path) -> str:
        """Return the name of the label column; only npz files have a default."""
        if self.label is None and path.suffix.lower() != ".npz":
            raise InvalidInputError("Name the column with the labels: --label COLUMN.")
        return self.label or "y"


@dataclass(frozen=True)
class TrainingSource:
    """A way to read training data: by a frozen schema, or by columns named as options."""

    schema: Schema
    invalid_rows: str
    from_file: bool = False

    @property
    def table(self) -> Schema | None:
        """The schema, if it comes from a file."""
        return self.schema if self.from_file else None

    def read(self, path: Path, *, droppable: bool = True, **options: Any) -> CheckedRows:
        """Read the rows; unless `droppable` (not in SS-DPA), none may be left out for its label."""
        rows = read_table(path, self.schema, progress=make_progress(verbosity()), **options)
        if self.invalid_rows == "raise":
            rows.refuse_problems(
                "Correct the row, or leave such rows out with --invalid-rows drop."
            )
        if not droppable:
            refuse_labels(rows)
        return rows

    def read_both(
        self, train: Path, test: Path | None, **options: Any
    ) -> tuple[CheckedRows, CheckedRows]:
        """Read training and test rows of the same columns; without a test file, those held out."""
        both = [self.read(path, **options) for path in (train, test) if path is not None]
        for rows in both:
            note_problems(rows)
        if test is None:
            held_out = split_rows(both[0], self.schema)
            if not held_out.any():
                raise InvalidInputError(
                    f"The schema holds no rows of {train} out. Name the test rows, too: TRAIN TEST."
                )
            return both[0].only(~held_out), both[0].only(held_out)
        if both[0].names != both[1].names or both[0].X.shape[1:] != both[1].X.shape[1:]:
            raise InvalidInputError(
                f"{train} and {test} have different feature columns, or the same in another order."
            )
        return both[0], both[1]

    def provenance(
        self, rows: CheckedRows | None = None, train: NDArray[np.bool_] | None = None
    ) -> dict[str, Any] | None:
        """Return what the model should know about its data; before it is read, without counts."""
        if self.table is None:
            return None
        known = {"schema": schema_values(self.table), "libraries": _libraries(self.table)}
        if rows is None or train is None:
            return {**known, "n_rows": 0, "n_groups": None, "n_left_out": 0}
        groups = None if rows.groups is None else len(set(rows.groups[train].tolist()))
        n_rows = int(np.sum(train))
        return {**known, "n_rows": n_rows, "n_groups": groups, "n_left_out": len(rows.problems)}


def open_source(
    schema: Path | None,
    columns: Columns,
    data: Path,
    *,
    invalid_rows: str | None = None,
    stream: bool = False,
) -> TrainingSource:
    """Return how to read the data, from a schema file or from options."""
    if schema is not None:
        columns.refuse(f"the schema {schema}", allowed=("label",))
        table = load_schema(schema)
        if columns.label not in (None, table.label):
            raise InvalidInputError(
                f"--label is {columns.label!r}, but the schema {schema} declares {table.label!r}."
            )
        return TrainingSource(table, invalid_rows or table.invalid_rows, from_file=True)
    if data.is_dir() and not stream:
        raise InvalidInputError(
            f"{data} is a folder. A folder of images needs a schema: poisonproof schema {data} "
            "--out FILE.json, then --schema FILE.json."
        )
    features = parse_list(columns.features, "--features")
    if columns.entities is not None and columns.groups is None:
        raise InvalidInputError("--entities needs --groups COLUMN, the account of every row.")
    plain = Schema(
        label=columns.label_in(data),
        classes=declared_classes(columns.classes),
        groups=columns.groups,
        partition=None if columns.entities is None else read_entities(columns.entities),
        weights=columns.weights,
        ignore=parse_list(columns.ignore, "--ignore"),
        columns=number_columns(features),
        others="ignore",
        samples=columns.x_key or "X",
    )
    return TrainingSource(freeze_schema(plain), invalid_rows or "raise")


def refuse_labels(rows: CheckedRows) -> None:
    """Raise `GuaranteeError` if a row was left out because of its label, or may have been."""
    labels = [problem for problem in rows.problems if problem.label]
    if rows.unit == "file":
        reason = "lies in a class whose name begins with a dot, which hides the file"
        labels += [RowProblem(file, reason) for file in hidden_by_class(rows.path)]
    if labels:
        raise GuaranteeError(
            f"{rows.path}, {rows.unit} {labels[0].place}: {labels[0].reason}. With ss-dpa such "
            "a row cannot be left out: one flipped label would move samples to other members. "
            "Correct it, or use --method dpa."
        )


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


@dataclass(frozen=True)
class TrainedModel:
    """A loaded model, its columns if they had names, its classes as text, and its schema if any."""

    classifier: Any
    feature_names: tuple[str, ...] | None
    classes: tuple[str, ...]
    table: Schema | None

    def read(
        self, path: Path, columns: Columns, *, held_out: bool = False, cells: bool = False
    ) -> tuple[CheckedRows, NDArray[Any] | None]:
        """Read rows to predict, and the samples trained on if these are in the same file."""
        if self.table is None and held_out:
            raise InvalidInputError(
                "--held-out needs a model that was trained with --schema: without one no rows "
                "were held out."
            )
        labelled = held_out or columns.label is not None
        rows = self._read(path, columns, labelled=labelled, grouped=held_out, keep_cells=cells)
        if self.table is None or self.table.invalid_rows == "raise":
            rows.refuse_problems()
        note_problems(rows)
        if not held_out or self.table is None:
            return rows, None
        tested = split_rows(rows, self.table)
        if not tested.any():
            raise InvalidInputError(
                f"No row of {path} is held out: the schema's test_share is "
                f"{self.table.test_share:g}."
            )
        return rows.only(tested), rows.X[~tested]

    def read_tested(
        self, path: Path, columns: Columns, *, held_out: bool, cells: bool = False
    ) -> tuple[CheckedRows, NDArray[np.bool_] | None]:
        """Read rows, and find which the model was trained on; None if that cannot be checked."""
        from poisonproof.estimators.training_set import seen_rows
        from poisonproof.partition.canonical import are_among

        rows, trained_on = self.read(path, columns, held_out=held_out, cells=cells)
        seen = seen_rows(self.classifier, rows.X)
        if seen is None and trained_on is not None:
            seen = are_among(rows.X, trained_on)
        return rows, seen

    def read_training(self, path: Path, columns: Columns) -> tuple[Any, Any, Any, Any]:
        """Return samples, labels, groups and weights of the rows that are not held out."""
        partitioner = getattr(self.classifier, "partitioner_", None)
        by_group = partitioner is not None and partitioner.by_group
        if columns.groups is not None and not by_group:
            raise InvalidInputError(
                f"--groups {columns.groups}: this model certifies rows and does not read "
                "contributors. Leave it out, or train with --groups."
            )
        label = columns.label_in(path) if self.table is None else columns.label
        rows = self._read(path, replace(columns, label=label))
        if self.classifier.invalid_rows == "raise":
            rows.refuse_problems()
        if "insert_delete" not in getattr(self.classifier, "threats", ("insert_delete",)):
            refuse_labels(rows)
        if self.table is not None and (held_out := split_rows(rows, self.table)).any():
            if held_out.all():
                raise InvalidInputError(
                    f"All rows of {path} are held out of training by the model's schema."
                )
            note(f"{counted(int(held_out.sum()), 'row')} of {path} held out of training.")
            rows = rows.only(~held_out)
        if partitioner is not None and by_group and rows.groups is None:
            raise InvalidInputError(
                f"The model is partitioned by {unit_noun(partitioner.unit, 1)}: name the column, "
                "--groups COLUMN."
            )
        return rows.X, self.truth(rows), rows.groups if by_group else None, rows.weights

    def truth(self, rows: CheckedRows) -> NDArray[Any] | None:
        """Return the true labels of rows that were read with them."""
        known = self.classifier.classes_ if self.table is None else np.array(self.table.classes)
        return None if rows.labels is None else known[rows.labels]

    def _read(self, path: Path, columns: Columns, **options: Any) -> CheckedRows:
        """Read a file by the model's schema; without one, features by name in any order."""
        schema, ignore = self.table, parse_list(columns.ignore, "--ignore")
        missing = takes_missing(self.classifier)
        truth = self.classifier.classes_.dtype == np.bool_
        if schema is None:
            has_names = path.suffix.lower() not in {".npz", ".npy"}
            texts = [text for name in self.classes for text in TRUTH_VALUES[name]] if truth else ()
            plain = Schema(
                columns=number_columns(self.feature_names or ()) if has_names else (),
                classes=texts or self.classes,
                label=columns.label,
                groups=columns.groups if options.get("grouped", True) else None,
                weights=columns.weights,
                ignore=ignore,
                samples=columns.x_key or "X",
            )
            schema = freeze_schema(plain)
        else:
            given = {"label": columns.label, "groups": columns.groups}
            for option, name in given.items():
                if name not in (None, own := getattr(schema, option)):
                    raise InvalidInputError(
                        f"--{option} is {name!r}, but the model's schema declares {own!r}."
                    )
            schema = replace(schema, ignore=(*schema.ignore, *ignore))
        bar = make_progress(verbosity())
        rows = read_table(path, schema, allow_missing=missing, progress=bar, **options)
        wanted = getattr(self.classifier, "n_features_in_", rows.X.shape[1])
        if self.table is None and rows.X.shape[1] != wanted:
            raise InvalidInputError(
                f"{path} has {rows.X.shape[1]} features per row, but the model was trained on "
                f"{wanted}."
            )
        if self.table is None and truth and rows.labels is not None:
            return replace(rows, labels=rows.labels // len(TRUTH_VALUES["True"]))
        return rows


def open_model(
    path: Path, trusted: str | None = None, jobs: int | None = None, verbose: int = 0
) -> TrainedModel:
    """Load a model."""
    if not path.exists():
        raise InvalidInputError(f"There is no model {path}. Make one with: poisonproof train")
    from poisonproof.estimators.loading import load

    types = () if trusted is None else parse_list(trusted, "--trusted")
    classifier = load(path, trusted=types).set_schedule(jobs, verbose)
    known = getattr(classifier, "provenance_", None) or {}
    names = getattr(classifier, "feature_names_in_", None)
    if names is not None:
        # Columns are matched by name here; plain arrays go on, so there are no names to compare.
        del classifier.feature_names_in_
    texts = classifier.classes_.dtype.kind in "Ub"
    return TrainedModel(
        classifier,
        None if names is None else tuple(map(str, names)),
        tuple(str(label if texts else label_text(label)) for label in classifier.classes_),
        parse_schema(known["schema"]) if known.get("schema") else None,
    )


def unseen(seen: NDArray[np.bool_] | None, n_rows: int) -> NDArray[np.bool_]:
    """Return which rows are test rows: those not trained on, or all where there are no such."""
    return np.ones(n_rows, dtype=np.bool_) if seen is None or seen.all() else ~seen
