"""From the arguments of `fit` and `update` to checked training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import check_consistent_length, has_fit_parameter

from poisonproof.estimators.usable_rows import training_limit, usable_rows
from poisonproof.estimators.validation import (
    check_labels,
    check_samples,
    encode_labels,
    label_set,
    unknown_label_error,
)
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.learners.base import BatchedLearner
from poisonproof.partition import Partitioner, make_partitioner
from poisonproof.partition.readable import readable_rows

__all__ = ["TrainingRows", "check_training_rows"]

MAX_CLASSES = 2**15 - 1
"""Votes are int16, and -1 abstains."""


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

    A row whose label is outside the declared classes, whose values the members cannot take, or
    that no partition takes (a missing contributor, a broken pixel) is an error; with
    ``invalid_rows="drop"`` it is left out, alone.
    """
    if classifier.invalid_rows not in ("raise", "drop"):
        raise InvalidInputError(
            f"invalid_rows must be 'raise' or 'drop', got {classifier.invalid_rows!r}."
        )
    partitioner = _partitioner(classifier)
    if groups is not None and partitioner is not None and partitioner.unit != "group":
        raise InvalidInputError(
            f"groups were given, but partitioner={partitioner.name!r} does not read them, so "
            "certificates would count rows and not contributors. Set partitioner='group', or leave "
            "groups out."
        )
    drop = classifier.invalid_rows == "drop"
    X = check_samples(classifier, X, reset=classes is None, any_cells=drop)
    declared = classes is not None or classifier.classes is not None
    labels = check_labels(y, declared=declared)
    check_consistent_length(X, labels, groups, sample_weight)
    known = label_set(classifier.classes, labels) if classes is None else classes
    if len(known) > MAX_CLASSES:
        raise InvalidInputError(
            f"there are {len(known)} classes, but a vote can name {MAX_CLASSES} of them at most."
        )
    codes = encode_labels(labels, known)
    weight, weighty = _check_weight(classifier, sample_weight, len(codes))
    limit = training_limit(classifier)
    fitting = _fitting(classifier, X, limit) if drop else usable_rows(classifier, X, limit=limit)
    good = (codes >= 0) & fitting & weighty
    if partitioner is not None and drop:
        # Otherwise the partitioner itself says what is wrong.
        good[fitting] &= partitioner.placeable(*_taken(fitting, X, groups))
    if good.all():
        return TrainingRows(X, codes, groups, weight, known, 0)
    # Where a row's place depends on other rows, leaving one out would move the others.
    droppable = "insert_delete" in classifier.threats and (
        partitioner is None or partitioner.rowwise
    )
    if not drop:
        classifier._refuse_rows(~fitting, limit)
        if weight is not None and not weighty.all():
            row = int(np.argmin(weighty))
            raise InvalidRowsError(
                f"sample_weight is {weight[row]} in row {row}; every weight must be finite and not "
                f"beyond {limit:g}."
            )
        raise unknown_label_error(labels, codes, known, droppable=True)
    if not droppable and (codes < 0).any():
        raise unknown_label_error(labels, codes, known, droppable=False)
    if not droppable and not weighty.all():
        raise GuaranteeError(
            f"sample_weight is not finite in row {int(np.argmin(weighty))}, which cannot be "
            "dropped: the places or features of other rows depend on it. Correct the weight."
        )
    keep = np.flatnonzero(good)
    if classes is None and len(keep) == 0:
        raise InvalidRowsError(f"none of the {len(good)} training rows can be used.")
    X, groups = _taken(good, X, groups)
    weight = None if weight is None else weight[keep]
    return TrainingRows(X, codes[keep], groups, weight, known, len(good) - len(keep))


def _fitting(classifier: Any, X: Any, limit: float) -> NDArray[np.bool_]:
    """Return which rows have a canonical form, and one that the members can take."""
    fitting = readable_rows(X)
    (readable,) = _taken(fitting, X)
    fitting[fitting] = usable_rows(classifier, readable, limit=limit)
    return fitting


def _taken(good: NDArray[np.bool_], *containers: Any) -> list[Any]:
    """Return the good rows of containers, None for None."""
    if good.all():
        return list(containers)
    keep = np.flatnonzero(good)
    return [None if some is None else _safe_indexing(some, keep) for some in containers]


def _partitioner(classifier: Any) -> Partitioner | None:
    """Return the partitioner, or None for votes of single rows, which have no partitions."""
    if not hasattr(classifier, "partitioner"):
        return None
    return make_partitioner(classifier.partitioner, classifier.n_partitions)


def _check_weight(
    classifier: Any, sample_weight: Any, n_rows: int
) -> tuple[NDArray[np.float64] | None, NDArray[np.bool_]]:
    """Return the weights, and which rows have one that a learner can take."""
    if sample_weight is None:
        return None, np.ones(n_rows, dtype=np.bool_)
    template = classifier._template()
    if get_config()["enable_metadata_routing"]:
        routed = process_routing(classifier, "fit", sample_weight=sample_weight)
        takes = "sample_weight" in routed.estimator.fit
    else:
        takes = has_fit_parameter(template, "sample_weight")
    if not takes and not isinstance(template, BatchedLearner):
        raise InvalidInputError(
            f"{type(template).__name__} takes no sample_weight. For a pipeline, turn on metadata "
            "routing (sklearn.set_config(enable_metadata_routing=True)) and request it: "
            "step.set_fit_request(sample_weight=True)."
        )
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except Exception as error:  # whatever an object of the caller's raises
        if classifier.invalid_rows == "raise":
            what = f"sample_weight must hold one number per row: {error}."
            raise InvalidInputError(what) from error
        weight = np.array([_number(one) for one in sample_weight])
    if weight.ndim != 1:
        raise InvalidInputError(
            f"Sample weights must be 1D array: one number per row. Got shape {weight.shape}."
        )
    fits = np.isfinite(weight) & (np.abs(weight) <= training_limit(classifier))
    return weight + 0.0, fits  # one zero: -0.0 would be another row


def _number(weight: Any) -> float:
    """Return a weight, NaN for what is none."""
    try:
        return float(weight)
    except Exception:  # an object of the caller's may raise anything
        return float("nan")
