"""From the arguments of `fit` and `update` to checked training rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.validation import check_consistent_length, has_fit_parameter

from poisonproof.estimators.validation import (
    check_labels,
    check_samples,
    encode_labels,
    label_set,
    training_limit,
    unknown_label_error,
    usable_rows,
)
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.members.member import BatchedLearner
from poisonproof.partition.canonical import digests_among, readable_rows, sample_digests
from poisonproof.partition.partitioned import PartitionedData, Shard, gathered
from poisonproof.partition.partitioners import ContentHash, Partitioner, make_partitioner
from poisonproof.store.blocks import Item
from poisonproof.store.items import decode_rows, encode_rows
from poisonproof.store.reading import ModelReader

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


# The rows a model was trained on, wherever they are, one partition at a time.


class TrainingSet(ABC):
    """k partitions that can be asked for singly."""

    @property
    @abstractmethod
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition, shape (k,)."""

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether the rows have weights."""

    @abstractmethod
    def shard(self, index: int) -> Shard:
        """Return the rows of one partition, checked against their digests."""

    @property
    def in_store(self) -> bool:
        """Whether the rows come from a store that keeps them."""
        return False

    def raw_shard(self, index: int) -> Shard:
        """Return the rows of one partition for someone who checks them himself."""
        return self.shard(index)

    def item(self, index: int) -> Item:
        """Return the rows of one partition as a store keeps them."""
        return encode_rows(index, self.shard(index))

    def whole(self) -> PartitionedData:
        """Return all rows together."""
        k = len(self.sizes)
        return gathered({index: self.shard(index) for index in range(k)}, k)

    def changed(self, shards: Mapping[int, Shard]) -> TrainingSet:
        """Return a training set in which some partitions are others."""
        return ChangedRows(self, dict(shards))


@dataclass(frozen=True)
class HeldRows(TrainingSet):
    """Rows in memory, in the caller's container."""

    data: PartitionedData

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition."""
        return self.data.sizes

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self.data.sample_weight is not None

    def shard(self, index: int) -> Shard:
        """Gather one partition; the caller may have overwritten the array it lies in."""
        shard = self.data.shard(index)
        if not shard.is_intact():
            raise InvalidRowsError(
                "the training rows were changed in place after they were fitted. Fit again."
            )
        return shard

    def raw_shard(self, index: int) -> Shard:
        """Gather one partition, unchecked."""
        return self.data.shard(index)

    def whole(self) -> PartitionedData:
        """Return all rows together."""
        return self.data


@dataclass(frozen=True)
class KeptRows(TrainingSet):
    """Rows in a store, read one partition at a time."""

    reader: ModelReader

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition."""
        return np.asarray(self.reader.manifest.partition_sizes, dtype=np.intp)

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return "weight" in self.item(0).tensors

    @property
    def in_store(self) -> bool:
        """They are kept."""
        return True

    def shard(self, index: int) -> Shard:
        """Read one partition, whose digest is checked."""
        return decode_rows(self.item(index), f"partition {index} of {self.reader.place.path}")

    def item(self, index: int) -> Item:
        """Return the rows of one partition as they are kept."""
        return self.reader.rows(index)


@dataclass(frozen=True)
class ChangedRows(TrainingSet):
    """A training set of which some partitions have been replaced."""

    base: TrainingSet
    shards: dict[int, Shard]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows per partition."""
        sizes = np.array(self.base.sizes)
        for index, shard in self.shards.items():
            sizes[index] = len(shard)
        return sizes

    @property
    def weighted(self) -> bool:
        """Whether the rows have weights."""
        return self.base.weighted

    @property
    def in_store(self) -> bool:
        """Whether the rows that did not change are kept."""
        return self.base.in_store

    def shard(self, index: int) -> Shard:
        """Return the rows of one partition."""
        return self.shards[index] if index in self.shards else self.base.shard(index)

    def item(self, index: int) -> Item:
        """Return the rows of one partition as a store keeps them."""
        return super().item(index) if index in self.shards else self.base.item(index)

    def changed(self, shards: Mapping[int, Shard]) -> TrainingSet:
        """Return a training set in which some more partitions are others."""
        return ChangedRows(self.base, self.shards | dict(shards))


def shards_for_others(
    classifier: Any, rows: TrainingSet, which: Sequence[int]
) -> Callable[[int], Shard]:
    """Return a function that reads a partition as it is sent to another process.

    Features that are learned from all samples may need all of them, so they are mapped here.
    """
    if not classifier._features_see_all_rows():
        return rows.raw_shard
    data: PartitionedData = classifier._member_data(rows.whole(), which)
    return data.shard


def seen_rows(classifier: Any, X: Any) -> NDArray[np.bool_] | None:
    """Return which samples `classifier` was trained on, whatever their labels; None if unknown.

    It is known where the training rows are held or kept. A list of their digests would do, too, but
    would tell everybody who has the model who is in it, so none is stored.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from poisonproof import DPAClassifier
    >>> fitted = DPAClassifier(GaussianNB(), n_partitions=2).fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    >>> seen_rows(fitted, [[1], [5]])
    array([ True, False])
    """
    rows, digests = getattr(classifier, "rows_", None), sample_digests(X)
    if hasattr(classifier, "digests_"):  # votes of neighbours
        return digests_among(digests, [classifier.digests_])
    if not isinstance(rows, TrainingSet):
        return None
    partitioner = classifier.partitioner_
    places: Sequence[int] = range(len(rows.sizes))
    if isinstance(partitioner, ContentHash):
        places = np.unique(partitioner.assign_digests(digests)).tolist()
    shards = (rows.raw_shard(index) for index in places if rows.sizes[index])
    return digests_among(digests, (shard.digests for shard in shards))


# Rows to add to or to take out of a fitted model.


class Rows(NamedTuple):
    """Labelled rows, with their contributors and weights where the model has any."""

    X: Any
    y: Any
    groups: Any = None
    sample_weight: Any = None

    @classmethod
    def parse(cls, rows: Any, name: str) -> Rows:
        """Accept ``(X, y)``, longer tuples in the order of the fields, or a mapping of them."""
        if isinstance(rows, Mapping) and {"X", "y"} <= set(rows) <= set(cls._fields):
            return cls(**rows)
        if isinstance(rows, tuple) and 2 <= len(rows) <= len(cls._fields):
            return cls(*rows)
        raise InvalidInputError(
            f"{name} must be a tuple (X, y), (X, y, groups) or (X, y, groups, sample_weight), or a "
            f"mapping with these keys; got {type(rows).__name__}."
        )


def find_rows(
    keys: NDArray[np.void], wanted: NDArray[np.void]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Find one position in `keys` for every wanted key, no position twice.

    Repeated rows count as often as they occur: asking for a row twice takes two copies.

    Parameters
    ----------
    keys, wanted : ndarray of fixed-width bytes, shape (m,) and (r,)
        What identifies a row: sample, label and weight.

    Returns
    -------
    positions : ndarray
        Where the rows that are there stand.
    missing : ndarray of bool, shape (r,)
        Which rows are not there, or not often enough.
    """
    if len(keys) == 0:
        return np.empty(0, dtype=np.intp), np.ones(len(wanted), dtype=np.bool_)
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    wanted_order = np.argsort(wanted, kind="stable")
    sorted_wanted = wanted[wanted_order]
    repeats = np.arange(len(wanted)) - np.searchsorted(sorted_wanted, sorted_wanted)
    position = np.searchsorted(sorted_keys, sorted_wanted) + repeats
    inside = np.minimum(position, len(keys) - 1)
    absent = (position >= len(keys)) | (sorted_keys[inside] != sorted_wanted)
    missing = np.zeros(len(wanted), dtype=np.bool_)
    missing[wanted_order] = absent
    return order[inside[~absent]], missing


def missing_rows(missing: Sequence[int], n_wanted: int) -> InvalidRowsError:
    """Return the error that names a row which cannot be removed."""
    return InvalidRowsError(
        f"row {min(missing)} of `remove` is not in the training set (or not as often as it is to "
        f"be removed); {len(missing)} of {n_wanted} rows were not found. Nothing changed."
    )
