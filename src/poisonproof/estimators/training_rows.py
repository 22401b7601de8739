"""From the arguments of `fit` and `update` to checked training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    has_fit_parameter,
)

from poisonproof.estimators.rows import Rows, concatenate_samples, find_rows
from poisonproof.estimators.validation import (
    check_labels,
    check_samples,
    encode_labels,
    finite_rows,
    label_set,
    unknown_label_error,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.base import BatchedLearner
from poisonproof.partition import PartitionedData, row_keys, sample_digests

__all__ = ["TrainingRows", "check_training_rows", "updated_data"]


@dataclass(frozen=True)
class TrainingRows:
    """Rows that every check has passed, with labels as indices into `classes`."""

    X: Any
    y: NDArray[np.int64]
    groups: Any
    sample_weight: NDArray[np.float64] | None
    classes: NDArray[Any]
    n_dropped: int


def check_training_rows(
    classifier: Any,
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    *,
    classes: NDArray[Any] | None = None,
) -> TrainingRows:
    """Check the rows of `fit`, or, with the fitted `classes`, of `update`.

    A row whose label is outside the declared classes, or whose values the members cannot take, is
    an error; with ``invalid_rows="drop"`` it is left out, alone.
    """
    if classifier.invalid_rows not in ("raise", "drop"):
        raise InvalidInputError(
            f"invalid_rows must be 'raise' or 'drop', got {classifier.invalid_rows!r}."
        )
    X = check_samples(classifier, X, reset=classes is None)
    labels = check_labels(y)
    check_consistent_length(X, labels, groups, sample_weight)
    known = label_set(classifier.classes, labels) if classes is None else classes
    codes = encode_labels(labels, known)
    weight = _check_weight(classifier, X, sample_weight)
    fitting = finite_rows(classifier, X)
    good = (codes >= 0) & fitting
    if good.all():
        return TrainingRows(X, codes, groups, weight, known, 0)
    if classifier.invalid_rows == "raise":
        classifier._refuse_rows(~fitting)
        raise unknown_label_error(labels, codes, known)
    keep = np.flatnonzero(good)
    return TrainingRows(
        _safe_indexing(X, keep),
        codes[keep],
        None if groups is None else _safe_indexing(groups, keep),
        None if weight is None else weight[keep],
        known,
        len(good) - len(keep),
    )


def updated_data(classifier: Any, data: PartitionedData, add: Any, remove: Any) -> PartitionedData:
    """Return the training set without the rows of `remove` and with those of `add`."""
    X, y, weight = data.X, data.y, data.sample_weight
    digests, assignment = data.digests, data.assignment
    if remove is not None:
        gone = _check_update(classifier, data, remove, "remove")
        position = find_rows(
            row_keys(digests, y, weight),
            row_keys(sample_digests(gone.X), gone.y, gone.sample_weight),
        )
        keep = np.delete(np.arange(len(y)), position)
        X, y, digests, assignment = (
            _safe_indexing(X, keep),
            y[keep],
            digests[keep],
            assignment[keep],
        )
        weight = None if weight is None else weight[keep]
    if add is not None:
        new = _check_update(classifier, data, add, "add")
        new_digests = sample_digests(new.X)
        X = concatenate_samples(X, new.X)
        y = np.concatenate([y, new.y])
        digests = np.concatenate([digests, new_digests])
        if classifier.partitioner_.rowwise:
            new_assignment = classifier.partitioner_.assign(new.X, groups=new.groups)
            assignment = np.concatenate([assignment, new_assignment])
        weight = None if weight is None else np.concatenate([weight, new.sample_weight])
    if not classifier.partitioner_.rowwise:
        assignment = classifier.partitioner_.assign(X)
    return PartitionedData.build(X, y, assignment, digests, len(data), sample_weight=weight)


def _check_update(classifier: Any, data: PartitionedData, rows: Any, name: str) -> TrainingRows:
    parsed = Rows.parse(rows, name)
    if (parsed.sample_weight is None) != (data.sample_weight is None):
        had = "without" if data.sample_weight is None else "with"
        raise InvalidInputError(
            f"the model was fitted {had} sample_weight, so `{name}` must come {had} it too."
        )
    return check_training_rows(classifier, *parsed, classes=classifier.classes_)


def _check_weight(classifier: Any, X: Any, sample_weight: Any) -> NDArray[np.float64] | None:
    if sample_weight is None:
        return None
    template = classifier._template()
    routed = process_routing(classifier, "fit", sample_weight=sample_weight)
    takes = "sample_weight" in routed.estimator.fit or has_fit_parameter(template, "sample_weight")
    if not takes and not isinstance(template, BatchedLearner):
        raise InvalidInputError(
            f"{type(template).__name__} takes no sample_weight. For a pipeline, turn on metadata "
            "routing (sklearn.set_config(enable_metadata_routing=True)) and request it: "
            "step.set_fit_request(sample_weight=True)."
        )
    weight: NDArray[np.float64] = _check_sample_weight(
        sample_weight, np.empty((len(sample_weight), 1)), dtype=np.float64
    )
    return weight
