"""From options to rows: for training, and for a trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import poisonproof
from poisonproof.datasets import CheckedRows, Schema, label_text, read_rows
from poisonproof.exceptions import InvalidInputError

__all__ = ["AskedRows", "TrainedModel", "open_model"]


@dataclass(frozen=True)
class AskedRows:
    """Options that say how to read the rows that a model is asked about."""

    path: Path
    label: str | None
    ignore: tuple[str, ...]
    samples: str


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
    """

    classifier: Any
    feature_names: tuple[str, ...] | None
    classes: tuple[str, ...]

    def read(self, asked: AskedRows) -> CheckedRows:
        """Read rows with the model's features, matched by name, whatever their order."""
        from sklearn.utils import get_tags

        has_names = asked.path.suffix.lower() not in {".npz", ".npy"}
        schema = Schema(
            classes=self.classes,
            label=asked.label,
            features=self.feature_names if has_names else None,
            ignore=asked.ignore,
            others="raise",
            n_features=getattr(self.classifier, "n_features_in_", None),
            allow_missing=get_tags(self.classifier).input_tags.allow_nan,
            samples=asked.samples,
        )
        rows = read_rows(asked.path, schema)
        rows.refuse_problems()
        return rows

    def class_value(self, text: str, option: str) -> Any:
        """Return the class that `text` names."""
        if text not in self.classes:
            raise InvalidInputError(f"{option} is one of {', '.join(self.classes)}. Got {text!r}.")
        return self.classifier.classes_[self.classes.index(text)]


def open_model(path: Path, *, jobs: int | None, verbose: int) -> TrainedModel:
    """Load a model directory."""
    if not path.exists():
        raise InvalidInputError(f"There is no model {path}. Make one with: poisonproof train")
    classifier = poisonproof.load(path)
    classifier.set_params(n_jobs=jobs, verbose=verbose)
    names = getattr(classifier, "feature_names_in_", None)
    if names is not None:
        # Columns are matched by name here; plain arrays go on, so there are no names to compare.
        del classifier.feature_names_in_
    return TrainedModel(
        classifier,
        None if names is None else tuple(str(name) for name in names),
        tuple(str(label_text(value)) for value in classifier.classes_),
    )
