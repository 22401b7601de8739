"""From options to rows: for training, and for a trained model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import poisonproof
from poisonproof.cli._text import note_problems, verbosity
from poisonproof.datasets import (
    CheckedRows,
    Schema,
    label_text,
    read_rows,
    read_table,
    split_rows,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress
from poisonproof.schema import TableSchema, parse_schema

__all__ = ["AskedRows", "TrainedModel", "open_model", "stored_fingerprint", "unseen"]

TRUTH_VALUES = (
    *(("0", "False"), ("false", "False"), ("FALSE", "False")),
    *(("1", "True"), ("true", "True"), ("TRUE", "True")),
)
"""How spreadsheets and binary files write the labels of a model that was trained on booleans."""


@dataclass(frozen=True)
class AskedRows:
    """Options that say how to read the rows that a model is asked about."""

    path: Path
    label: str | None
    ignore: tuple[str, ...]
    samples: str
    held_out: bool = False


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
    table : TableSchema or None
        The frozen schema it was trained with, if there was one.
    """

    classifier: Any
    feature_names: tuple[str, ...] | None
    classes: tuple[str, ...]
    table: TableSchema | None = None

    def read(self, asked: AskedRows) -> CheckedRows:
        """Read rows with the model's features, matched by name, whatever their order."""
        return self._read(asked)[0]

    def read_tested(self, asked: AskedRows) -> tuple[CheckedRows, NDArray[np.bool_] | None]:
        """Read rows, and find which the model was trained on; None if that cannot be checked."""
        from poisonproof.estimators.training_sets import seen_rows
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
        has_names = asked.path.suffix.lower() not in {".npz", ".npy"}
        schema = Schema(
            classes=self.classes,
            also=self.also,
            label=asked.label,
            features=self.feature_names if has_names else None,
            ignore=asked.ignore,
            others="raise",
            n_features=getattr(self.classifier, "n_features_in_", None),
            allow_missing=allow_missing,
            samples=asked.samples,
        )
        rows = read_rows(asked.path, schema)
        rows.refuse_problems()
        return rows, None

    @property
    def also(self) -> tuple[tuple[str, str], ...]:
        """Other texts for its labels: truth values are written in more than one way."""
        return TRUTH_VALUES if self.classifier.classes_.dtype == np.bool_ else ()

    def truth(self, rows: CheckedRows) -> NDArray[Any] | None:
        """Return the true labels of rows that were read with them."""
        known = self.classifier.classes_ if self.table is None else np.array(self.table.classes)
        return None if rows.labels is None else known[rows.labels]

    def _read_table(
        self, asked: AskedRows, table: TableSchema, allow_missing: bool
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
    from poisonproof.store import ModelReader

    return ModelReader.open(path).manifest.fingerprint


def open_model(path: Path, *, jobs: int | None, verbose: int) -> TrainedModel:
    """Load a model directory."""
    from poisonproof.estimators.loading import set_schedule

    if not path.exists():
        raise InvalidInputError(f"There is no model {path}. Make one with: poisonproof train")
    classifier = set_schedule(poisonproof.load(path), jobs, verbose)
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
