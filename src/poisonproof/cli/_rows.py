"""Open the data files and models named on the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.result import Certificates
from poisonproof.certificates.threats import unit_noun
from poisonproof.cli._app import choose, declared_classes, parse_list, refuse_given, takes_missing
from poisonproof.cli._screen import counted, note, note_problems, verbosity
from poisonproof.data.columns import number_columns
from poisonproof.data.rows import CheckedRows
from poisonproof.data.schema import Schema, freeze_schema, load_schema
from poisonproof.data.sources import read_entities, read_table, refuse_labels, split_rows
from poisonproof.data.value_text import label_text
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.progress import make_progress


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
    id: str | None = None

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
    """A way to read training data: by a frozen schema, or by columns named as options.

    `table` is the schema if it comes from a file.
    """

    schema: Schema
    invalid_rows: str
    table: Schema | None = None

    def read(self, path: Path, *, droppable: bool = True, **options: Any) -> CheckedRows:
        """Read the rows; unless `droppable` (not in SS-DPA), none may be left out for its label."""
        rows = read_table(path, self.schema, progress=make_progress(verbosity()), **options)
        if self.invalid_rows == "raise":
            rows.refuse_problems(
                "Correct the row or what is declared, or leave such rows out with --invalid-rows "
                "drop."
            )
        if not droppable:
            refuse_labels(rows)
        return rows

    def read_both(
        self, train: Path, test: Path | None, **options: Any
    ) -> tuple[CheckedRows, CheckedRows]:
        """Read training and test rows of the same columns; without a test file, those held out.

        What the schema holds out is never trained on, whether a test file is named or not.
        """
        both = [self.read(path, **options) for path in (train, test) if path is not None]
        for rows in both:
            note_problems(rows)
        held_out = split_rows(both[0], self.schema)
        if held_out.all():
            raise InvalidInputError(f"All rows of {train} are held out of training by the schema.")
        if test is None:
            if not held_out.any():
                raise InvalidInputError(
                    f"The schema holds no rows of {train} out. Name the test rows, too: TRAIN TEST."
                )
            return both[0].only(~held_out), both[0].only(held_out)
        if both[0].names != both[1].names or both[0].X.shape[1:] != both[1].X.shape[1:]:
            raise InvalidInputError(
                f"{train} and {test} have different feature columns, or the same in another order."
            )
        if held_out.any():
            out = counted(int(held_out.sum()), "row")
            note(f"{out} of {train} held out of training by the schema.")
        return both[0].only(~held_out), both[1]


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
        return TrainingSource(table, invalid_rows or table.invalid_rows, table)
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


@dataclass(frozen=True)
class TrainedModel:
    """A loaded model, its columns if they had names, its classes as text, and its schema if any."""

    classifier: Any
    feature_names: tuple[str, ...] | None
    classes: tuple[str, ...]
    table: Schema | None

    def elected_by(self, election: str) -> Callable[..., Certificates]:
        """Return what certifies rows by `election`: called with the classifier and the rows."""
        if choose("--election", election, ("plurality", "runoff")) == "plurality":
            certify: Callable[..., Certificates] = type(self.classifier).certify
            return certify
        from poisonproof.estimators.certifying import certify_runoff

        return certify_runoff

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
        seen = seen_rows(self.classifier, rows)
        if seen is None and trained_on is not None:
            seen = are_among(rows.X, trained_on)
        return rows, seen

    def refuse_groups_apart(self, instead: str) -> None:
        """Refuse a model whose groups were handed to `fit`: no column of a file holds them."""
        partitioner = getattr(self.classifier, "partitioner_", None)
        if partitioner is None or not partitioner.by_group or self.table is None:
            return
        if self.table.groups is None:
            raise InvalidInputError(
                f"The model counts {unit_noun(partitioner.unit)} that were given to fit in Python, "
                f"and its schema has no column that names them. Use Python: {instead}."
            )

    def read_training(
        self, path: Path, columns: Columns, instead: str
    ) -> tuple[Any, Any, Any, Any]:
        """Return samples, labels, groups and weights of the rows that are not held out.

        `instead` says what to call in Python where the command line cannot read the groups.
        """
        self.refuse_groups_apart(instead)
        partitioner = getattr(self.classifier, "partitioner_", None)
        by_group = partitioner is not None and partitioner.by_group
        if columns.groups is not None and not by_group:
            raise InvalidInputError(
                f"--groups {columns.groups}: this model certifies rows and does not read "
                "contributors. Leave it out, or train with --groups."
            )
        label = columns.label_in(path) if self.table is None else columns.label
        rows = self._read(path, replace(columns, label=label))
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
        return rows, self.truth(rows), rows.groups if by_group else None, rows.weights

    def truth(self, rows: CheckedRows) -> NDArray[Any] | None:
        """Return the true labels of rows that were read with them."""
        declared = () if self.table is None else self.table.classes
        known = np.array(declared) if declared else self.classifier.classes_
        return None if rows.labels is None else known[rows.labels]

    def _read(self, path: Path, columns: Columns, **options: Any) -> CheckedRows:
        """Read a file by the model's schema; without one, features by name in any order."""
        schema, ignore = self.table, parse_list(columns.ignore, "--ignore")
        if columns.id is not None:
            named = () if schema is None else (*schema.ignore, *(c.name for c in schema.columns))
            roles: Any = columns if schema is None else schema
            known = {*named, *(self.feature_names or ()), roles.label, roles.groups, roles.weights}
            ids = parse_list(columns.id, "--id")
            ignore = tuple(dict.fromkeys([*ignore, *(name for name in ids if name not in known)]))
        missing = takes_missing(self.classifier)
        if schema is None:
            has_names = path.suffix.lower() not in {".npz", ".npy"}
            plain = Schema(
                columns=number_columns(self.feature_names or ()) if has_names else (),
                classes=self.classes,
                label=columns.label,
                groups=columns.groups if options.get("grouped", True) else None,
                weights=columns.weights,
                ignore=ignore,
                samples=columns.x_key or "X",
            )
            schema = freeze_schema(plain)
        else:
            if schema.label is None and columns.label is not None:
                schema = replace(schema, label=columns.label, classes=self.classes)
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
    if classifier.schema_ is not None and not classifier.schema_.frozen:
        raise GuaranteeError(
            f"{path} was trained on a frame whose columns were read by their types, which nobody "
            "has declared. Train it with a schema."
        )
    names = getattr(classifier, "feature_names_in_", None)
    if names is not None:
        # Columns are matched by name here; plain arrays go on, so there are no names to compare.
        del classifier.feature_names_in_
    texts = classifier.classes_.dtype.kind in "Ub"
    return TrainedModel(
        classifier,
        None if names is None else tuple(map(str, names)),
        tuple(str(label if texts else label_text(label)) for label in classifier.classes_),
        classifier.schema_,
    )


def unseen(seen: NDArray[np.bool_] | None, n_rows: int) -> NDArray[np.bool_]:
    """Return which rows are test rows: those not trained on, or all where there are no such."""
    return np.ones(n_rows, dtype=np.bool_) if seen is None or seen.all() else ~seen
