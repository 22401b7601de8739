"""From what the user passes to a checked table: samples in their container, labels as indices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, assert_all_finite, get_tags
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from poisonproof.data.schema import refuse_repeated
from poisonproof.exceptions import (
    GuaranteeError,
    InvalidInputError,
    InvalidRowsError,
    UnknownLabelError,
)
from poisonproof.features.base import FrozenTransformer
from poisonproof.members.member import BatchedLearner
from poisonproof.members.scikit import largest_value
from poisonproof.partition.blocks import CanonicalColumn, canonical_column
from poisonproof.partition.canonical import readable_rows
from poisonproof.partition.cells import (
    NoCanonicalFormError,
    canonical_cell,
    nearest_float,
    shown,
)
from poisonproof.partition.containers import (
    as_container,
    as_objects,
    exact_sums,
    frame_columns,
    from_tensor,
)
from poisonproof.partition.contributors import make_partitioner
from poisonproof.partition.grids import Grid
from poisonproof.partition.partitioned import PartitionedData, partition_data
from poisonproof.partition.partitioners import Partitioner

MAX_CLASSES = 2**15 - 1
"""Votes are int16, and -1 abstains."""

_NO_DROP = "; it cannot be dropped, since places or features of other rows depend on its sample"


@dataclass(frozen=True)
class CheckedTable:
    """Training rows that every check has passed, with labels as indices into `classes`."""

    X: Any
    y: NDArray[np.int64]
    groups: Any
    sample_weight: NDArray[np.float64] | None
    classes: NDArray[Any]
    n_dropped: int

    def partitioned(self, partitioner: Partitioner) -> PartitionedData:
        """Cut the rows into partitions, or into the cells of a grid."""
        if isinstance(partitioner, Grid):
            return partitioner.cut(self.X, self.y, self.groups, self.sample_weight)
        return partition_data(self.X, self.y, partitioner, self.groups, self.sample_weight)


def check_update(classifier: Any, rows: Any, name: str) -> CheckedTable:
    """Check the argument `name` of a fitted classifier: ``(X, y)``, a longer tuple or a mapping."""
    known = ("X", "y", "groups", "sample_weight")
    if isinstance(rows, tuple) and 2 <= len(rows) <= 4:
        rows = dict(zip(known, rows, strict=False))
    elif classifier.schema_ is not None and not isinstance(rows, (tuple, Mapping)):
        rows = {"X": rows, "y": None}  # labels are in a column
    if not isinstance(rows, Mapping) or not {"X", "y"} <= set(rows) <= set(known):
        raise InvalidInputError(
            f"{name} must be a tuple (X, y), (X, y, groups) or (X, y, groups, sample_weight), or a "
            f"mapping with these keys; got {type(rows).__name__}."
        )
    partitioner = getattr(classifier, "partitioner_", None)
    return check_table(classifier, partitioner=partitioner, **rows, classes=classifier.classes_)


def check_table(
    classifier: Any,
    X: Any,
    y: Any,
    partitioner: Partitioner | None = None,
    groups: Any = None,
    sample_weight: Any = None,
    *,
    classes: NDArray[Any] | None = None,
) -> CheckedTable:
    """Check the rows of `fit`, or, with the fitted `classes`, of `update`.

    A row with an unknown label, or values that no member or no partition takes, is an error; with
    ``invalid_rows="drop"`` it is left out, alone. Votes of single rows have no `partitioner`.
    """
    X, y, groups, sample_weight, n_left_out = classifier.read_training(
        X, y, groups, sample_weight, reset=classes is None
    )
    drop = classifier.drops_invalid_rows
    if groups is not None and partitioner is not None and not partitioner.by_group:
        raise InvalidInputError(
            f"groups were given, but partitioner={partitioner.name!r} does not read them, so "
            "certificates would count rows and not contributors. Set partitioner='group', or leave "
            "groups out."
        )
    X, y, groups, sample_weight = map(from_tensor, (X, y, groups, sample_weight))
    samples = SampleRules.of(classifier, training=True)
    X = samples.check(classifier, X, reset=classes is None, any_cells=drop)
    declared = classifier.declared_classes
    labels = _check_labels(y, declared=classes is not None or declared is not None)
    try:
        check_consistent_length(X, labels, groups, sample_weight)
    except ValueError as error:
        raise InvalidInputError(
            f"{error}. X, y and, where they are given, groups and sample_weight have one entry per "
            "row."
        ) from error
    known = _label_set(declared, labels) if classes is None else classes
    if len(known) > MAX_CLASSES:
        raise InvalidInputError(
            f"there are {len(known)} classes, but a vote can name {MAX_CLASSES} of them at most."
        )
    codes = encode_labels(labels, known)
    weight, weighty = _check_weight(classifier, sample_weight, len(codes), samples.limit)
    fitting = readable_rows(X) if drop else np.ones(len(codes), dtype=np.bool_)
    fitting[fitting] = samples.usable(_taken(fitting, X)[0])
    good = (codes >= 0) & fitting & weighty
    if partitioner is not None and drop:
        # Otherwise the partitioner itself says what is wrong.
        good[fitting] &= partitioner.placeable(*_taken(fitting, X, groups))
    if good.all():
        return CheckedTable(X, codes, groups, weight, known, n_left_out)
    # Where a row's place depends on other rows, leaving one out would move the others.
    droppable = "insert_delete" in classifier.threats and (
        partitioner is None or partitioner.rowwise
    )
    if not drop:
        samples.refuse(classifier, ~fitting)
    if not (drop and droppable):
        if weight is not None and not weighty.all():
            row = int(np.argmin(weighty))
            raise (GuaranteeError if drop else InvalidRowsError)(
                f"sample_weight is {weight[row]} in row {row}; every weight must be finite and not "
                f"beyond {samples.limit:g}. Correct it{_NO_DROP if drop else ''}."
            )
        if (codes < 0).any():
            raise _unknown_label(labels, codes, known, dropping=drop)
    keep = np.flatnonzero(good)
    if classes is None and len(keep) == 0:
        raise InvalidRowsError(f"none of the {len(good)} training rows can be used.")
    X, groups, weight = _taken(good, X, groups, weight)
    n_left_out += len(good) - len(keep)
    return CheckedTable(X, codes[keep], groups, weight, known, n_left_out)


def _taken(good: NDArray[np.bool_], *containers: Any) -> list[Any]:
    """Return the good rows of containers, None for None."""
    if good.all():
        return list(containers)
    keep = np.flatnonzero(good)
    return [None if some is None else _safe_indexing(some, keep) for some in containers]


def _check_weight(
    classifier: Any, sample_weight: Any, n_rows: int, limit: float
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
        if not classifier.drops_invalid_rows:
            what = f"sample_weight must hold one number per row: {error}."
            raise InvalidInputError(what) from error
        weight = np.array([_number(one) for one in sample_weight])
    if weight.ndim != 1:
        raise InvalidInputError(
            f"Sample weights must be 1D array: one number per row. Got shape {weight.shape}."
        )
    fits = np.isfinite(weight) & (np.abs(weight) <= limit)
    return weight + 0.0, fits  # one zero: -0.0 would be another row


def _number(cell: Any) -> float:
    """Return the number that a learner could read a cell as, NaN if it is not a number."""
    try:
        return float(cell)
    except Exception:  # an object of the caller's may raise anything
        return math.nan


@dataclass(frozen=True)
class SampleRules:
    """Rules for the samples that a classifier can take, as far as scikit-learn's tags tell."""

    tags: Any
    own_map: bool  # what sees samples first is a map of this library: it takes numbers or texts
    numbers_only: bool  # otherwise what a cell means is the member's own business
    limit: float = math.inf  # the largest number with which training comes to an end

    @classmethod
    def of(cls, classifier: Any, *, training: bool = False) -> SampleRules:
        """Look at the features and the estimator of a classifier."""
        first = getattr(classifier, "features", None)
        if isinstance(first, str):
            raise InvalidInputError(
                "features is a transformer of poisonproof.features, or None for none. Got "
                f"{first!r}."
            )
        while isinstance(first, Pipeline):
            first = first.steps[0][1]
        own_map = isinstance(first, FrozenTransformer)
        compared = getattr(classifier, "numbers_only", False) and first is None
        template = getattr(classifier, "_template", None) if training else None
        limit = math.inf if template is None else largest_value(template())
        return cls(get_tags(classifier).input_tags, own_map, own_map or compared, limit)

    def check(self, classifier: Any, X: Any, *, reset: bool, any_cells: bool = False) -> Any:
        """Check samples and leave them in their container.

        Frames and text keep their cells; everything else must be numeric, except objects if
        `any_cells` is true, because then each row is looked at by itself. Feature names and counts
        are recorded when `reset` is true and compared otherwise, as scikit-learn does. Images
        become flat rows unless what sees them first takes images.
        """
        if is_table(X):
            refuse_repeated([str(name) for name in X.columns], "X")
            validate_data(classifier, X, reset=reset, skip_check_array=True)
            if X.shape[0] == 0 or X.shape[1] == 0:
                raise InvalidRowsError(
                    f"Found a table of {X.shape[0]} rows and {X.shape[1]} columns; at least one of "
                    "each is required."
                )
            return as_container(X)
        if self.tags.string and not sparse.issparse(X):
            return _check_text(X)
        _refuse_texts(X)
        if isinstance(X, np.ma.MaskedArray):
            as_container(X)  # says what to do; scikit-learn would read through the mask
        if isinstance(X, (list, tuple)):
            X = array_of_rows(classifier, X, reset=reset, drop=any_cells)
        elif isinstance(X, np.ndarray) and X.dtype.kind == "O" and X.ndim == 1 and len(X):
            X = array_of_rows(classifier, X.tolist(), reset=reset, drop=any_cells)
        elif sparse.issparse(X) and getattr(X, "format", "csr") != "csr":
            X = exact_sums(X)  # scikit-learn's conversion to CSR may add up entries of one place
        if isinstance(X, np.ndarray) and X.ndim > 2 and not self.tags.three_d_array:
            X = X.reshape(len(X), math.prod(X.shape[1:]))
        objects = isinstance(X, np.ndarray) and X.dtype.kind == "O"
        numeric = not self.tags.categorical and not (objects and any_cells)
        if objects and numeric:
            _refuse_cells(X)
        if sparse.issparse(X) and not self.tags.sparse:
            raise InvalidInputError(
                f"X is sparse, which {type(classifier).__name__} with these members or features "
                "does not take. Use X.toarray(), or members that take sparse rows."
            )
        if isinstance(X, np.ndarray) and X.ndim < 2:
            raise InvalidInputError(
                "Expected 2D array: X has one row per sample and one column per feature. Got shape "
                f"{X.shape}. Reshape your data: X.reshape(-1, 1) if it has one feature, "
                "X.reshape(1, -1) if it is one sample."
            )
        checked = validate_data(
            classifier,
            X,
            reset=reset,
            accept_sparse="csr" if self.tags.sparse else False,
            dtype="numeric" if numeric else None,
            ensure_all_finite=False,
            allow_nd=self.tags.three_d_array,
        )
        # Objects are checked but not converted: that would round integers beyond 2^53.
        return X if objects else checked

    def usable(self, X: Any) -> NDArray[np.bool_]:
        """Return which rows can be used: no infinity, and no NaN unless the members allow it.

        Cells are looked at one by one, so that no row decides for another.
        """
        if self.own_map and self.tags.string:
            return _texts(X)
        if is_table(X):
            return self._usable_cells(frame_columns(X), len(X))
        if sparse.issparse(X):
            return self._usable_sparse(X)
        values = np.asarray(X)
        if values.dtype.kind == "O" and values.ndim >= 2:
            cells = values.reshape(len(values), math.prod(values.shape[1:])).T
            return self._usable_cells(cells, len(values))
        if self.limit == math.inf and _surely_finite(values):
            return np.ones(len(values), dtype=np.bool_)
        rows: NDArray[np.bool_] = ~np.any(self._bad(values).reshape(len(values), -1), axis=1)
        return rows

    def refuse(self, classifier: Any, bad: NDArray[np.bool_]) -> None:
        """Raise `InvalidRowsError` that names the first bad row, if there is one."""
        if not bad.any():
            return
        if self.own_map and self.tags.string:
            what = "something that is not text"
        else:
            what = "infinity" if self.tags.allow_nan else "NaN or infinity"
            if self.limit < math.inf:
                what = f"{what}, or a number beyond {self.limit:g} that could keep training from "
                what += "ending,"
            if self.numbers_only:
                what = f"{what}, or something that is not a number,"
        template = getattr(classifier, "_template", None)
        who = f"{type(template()).__name__} members" if template else type(classifier).__name__
        advice = (
            "Remove them, or bound their values."
            if self.tags.allow_nan
            else "Remove them, impute inside the member's pipeline, or use a learner that takes "
            "missing values (infinity is none)."
        )
        raise InvalidRowsError(
            f"Input X contains {what} in row {int(np.argmax(bad))} ({int(bad.sum())} such rows), "
            f"which {who} cannot take. {advice}"
        )

    def _bad(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        bad = np.asarray(np.isinf(values) if self.tags.allow_nan else ~np.isfinite(values))
        if self.limit < math.inf:
            bad |= (values > self.limit) | (values < -self.limit)
        return bad

    def _usable_cells(self, columns: Iterable[NDArray[Any]], n_rows: int) -> NDArray[np.bool_]:
        """Check each cell separately, because the dtype of a column depends on all rows."""
        good = np.ones(n_rows, dtype=np.bool_)
        rows = np.arange(n_rows)
        for position, column in enumerate(columns):
            canonical = canonical_column(column, rows, position)
            good &= ~np.where(canonical.odd, self._bad_odd(canonical), self._bad(canonical.floats))
        return good

    def _bad_odd(self, column: CanonicalColumn) -> NDArray[np.bool_]:
        """Return which cells that float64 does not hold exactly make a row unusable.

        They are numbers that round to infinity, and all that a learner could read as a number
        beyond the limit, texts included. Smaller integers do not.
        """
        found = np.zeros(len(column.odd), dtype=np.bool_)
        for row, cell in zip(np.flatnonzero(column.odd), column.taken(column.odd), strict=True):
            if isinstance(cell, int):
                number = nearest_float(cell)
            else:
                number = _number(cell) if self.limit < math.inf else 0.0
            beyond = math.isinf(number) or abs(number) > self.limit
            found[row] = beyond or (self.numbers_only and not isinstance(cell, int))
        return found

    def _usable_sparse(self, X: Any) -> NDArray[np.bool_]:
        good = np.ones(X.shape[0], dtype=np.bool_)
        if self.limit < math.inf or not _surely_finite(X.data):
            matrix = X.tocsr()
            bad = self._bad(matrix.data)
            good[np.repeat(np.arange(X.shape[0]), np.diff(matrix.indptr))[bad]] = False
        return good


def array_of_rows(classifier: Any, X: Any, *, reset: bool, drop: bool) -> Any:
    """Return a sequence of rows as an array in which every cell still has its value.

    NumPy gives all rows one type: a text among numbers would turn all of them into text, and a
    fraction among large integers would round them.
    """
    try:
        values = np.asarray(X)
    except Exception:  # rows of different lengths, a cell that is a list, an object that raises
        return _array_of_cells(classifier, X, reset=reset, drop=drop)
    exact = values.dtype.kind in "biu" or (
        values.dtype.kind == "f" and not (np.abs(values) >= 2.0**53).any()
    )
    return values if exact else np.array(X, dtype=object)


def _array_of_cells(classifier: Any, X: Any, *, reset: bool, drop: bool) -> NDArray[np.object_]:
    """Read every row by itself; one of another shape is an error, or has no cell to read."""
    rows = [_cells_of(row) for row in X]
    shapes = [None if row is None else row.shape for row in rows]
    usual = _usual_shape(classifier, shapes, reset=reset, drop=drop)
    odd = [number for number, shape in enumerate(shapes) if shape != usual]
    if odd and not drop:
        raise InvalidRowsError(
            f"Row {odd[0]} of X has {_size(shapes[odd[0]])} cells, but most rows have "
            f"{_size(usual)}. Give every row the same number of cells."
        )
    found = np.empty((len(rows), *usual), dtype=object)
    for number, row in enumerate(rows):
        found[number] = NO_ROW if row is None or row.shape != usual else row
    return found


NO_ROW = object()
"""Stands in the cells of a row that has another shape; it has no canonical form."""


def _cells_of(row: Any) -> NDArray[np.object_] | None:
    """Return the cells of one row, None if it has none; a list is not a cell of an image."""
    listed = issubclass(type(row), (list, tuple))
    try:
        if not listed or any(isinstance(cell, (list, tuple, np.ndarray)) for cell in row):
            array = np.asarray(row)
            return as_objects(array) if array.ndim else None
    except Exception:
        if not listed:
            return None
    try:
        return np.fromiter(row, dtype=object, count=len(row))
    except Exception:
        return None


def _usual_shape(
    classifier: Any, shapes: Sequence[tuple[int, ...] | None], *, reset: bool, drop: bool
) -> tuple[int, ...]:
    """Return the shape that rows have: the fitted one, or that of most of them.

    An attacker must not decide which rows are left out: the most common shape must lead by more
    rows than a certificate can allow for, which is less than half the members. Where it counts
    contributors, sources or days, these may be any number of rows: then all shapes must agree.
    """
    known = None if reset else getattr(classifier, "n_features_in_", None)
    counts = Counter(shape for shape in shapes if shape and known in (None, shape[0]))
    if not counts:
        wanted = "" if known is None else f" of the {known} cells that the model was fitted on"
        raise InvalidRowsError(f"X has no rows{wanted}. Give a list or an array of cells per row.")
    (usual, most), (_, second) = [*counts.most_common(2), ((), 0)][:2]
    margin, partitioner = most // 2, getattr(classifier, "partitioner", None)
    if partitioner is not None:
        partitioner = make_partitioner(partitioner, classifier.n_partitions)
        margin = most - 1 if partitioner.by_group else partitioner.k
    if drop and known is None and most - second <= margin:
        raise InvalidRowsError(
            f"Rows of X have different numbers of cells: {most} rows have {_size(usual)}, {second} "
            "have another number. A majority so small cannot decide which to leave out. Correct X."
        )
    return usual


def _size(shape: tuple[int, ...] | None) -> str:
    return "no" if shape is None else " x ".join(map(str, shape))


class _NoNumberError(InvalidRowsError, TypeError):
    """A cell of unknown type; scikit-learn's contract demands a `TypeError` in these words."""


def _refuse_cells(X: NDArray[Any]) -> None:
    """Raise an error that names the first row with a cell that is not a number."""
    for row, cells in enumerate(X.reshape(len(X), -1) if X.size else ()):
        for cell in cells:
            if type(cell) is float or cell is None:
                continue
            try:
                number = canonical_cell(cell)
            except NoCanonicalFormError as error:
                raise _NoNumberError(
                    f"Row {row} of X: {error}. Every cell of this argument must be neither a "
                    "string nor another object, but a number."
                ) from None
            if isinstance(number, float):
                continue
            if isinstance(number, int) and math.isfinite(nearest_float(number)):
                continue
            kind = "the text " if isinstance(number, str) else ""
            raise InvalidRowsError(
                f"Row {row} of X holds {kind}{shown(cell)[:42]}, but X must hold numbers in the "
                "range of float64. Correct the row, or encode texts and categories row by row, as "
                "a schema does."
            )


def _refuse_texts(X: Any) -> None:
    listed = isinstance(X, (list, tuple)) or getattr(X, "ndim", 0) == 1
    if listed and len(X) and all(issubclass(type(text), str) for text in X):
        raise InvalidRowsError(
            "X holds one text per row, but the member takes numbers. Map texts row by row, "
            "features=HashedNGrams() of poisonproof.features, or put a vectorizer into the member, "
            "make_pipeline(TfidfVectorizer(), ...)."
        )


def _label_set(classes: Any, y: NDArray[Any]) -> NDArray[Any]:
    """Return the sorted label set: the declared one, or what `y` holds if none is declared."""
    if classes is None:
        return np.unique(y)
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Iterable):
        raise InvalidInputError(
            f"classes lists the label set, as ['ham', 'spam'] or range(10) do. Got {classes!r}."
        )
    if len({isinstance(label, (str, bytes)) for label in classes}) == 2:
        raise InvalidInputError(
            f"classes mixes text and other labels: {classes!r}. Give all labels one type."
        )
    declared = np.unique(np.asarray(classes))
    if declared.ndim != 1 or declared.size == 0:
        raise InvalidInputError(f"classes must list at least one label, got {classes!r}.")
    return declared


def _check_labels(y: Any, *, declared: bool) -> NDArray[Any]:
    """Return `y` as an array of one label per row, each of the type it came with.

    With a declared label set an unknown label concerns its own row only. Without one the labels
    must look like classes, as scikit-learn demands.
    """
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None.")
    listed = declared and not isinstance(getattr(y, "dtype", None), np.dtype)
    if listed or (isinstance(y, (list, tuple)) and len({isinstance(one, str) for one in y}) == 2):
        # NumPy would give all labels of a list, or of a series of another library's type, one type:
        # bytes, text, a fraction or a missing one would change every row's.
        y = np.fromiter(y, dtype=object, count=len(y))
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    if not declared:
        if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
            labels = labels.astype(str)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
    return labels


def encode_labels(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return class indices, -1 for a label outside `classes`.

    >>> encode_labels(np.array([3, "ant", None, 5.0], dtype=object), np.array([3, 4, 5]))
    array([ 0, -1, -1,  2])
    """
    if classes.dtype.kind in "iu" and (abs(classes.astype(object)) >= 2**53).any():
        y = y.astype(object)  # a comparison of two types of numbers would round
    if y.dtype.kind == "O":
        index = {label: code for code, label in enumerate(classes.tolist())}
        return np.fromiter((_code(index, label) for label in y), dtype=np.int64, count=len(y))
    if (y.dtype.kind in "US") != (classes.dtype.kind in "US"):
        return np.full(len(y), -1, dtype=np.int64)
    position = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return np.where(classes[position] == y, position, -1).astype(np.int64)


def _code(index: Mapping[Any, int], label: Any) -> int:
    try:
        return index.get(label, -1)
    except Exception:  # a list, a signalling NaN, an object that raises: no label of a class
        return -1


def _unknown_label(
    y: NDArray[Any], codes: NDArray[np.int64], classes: Any, *, dropping: bool
) -> Exception:
    """Build the error that names the first row whose label is outside the declared set."""
    row = int(np.argmin(codes >= 0))
    way_out = _NO_DROP if dropping else ", or leave such rows out: invalid_rows='drop'"
    label, known = y[row : row + 1].tolist()[0], {str(one): one for one in classes.tolist()}
    twin = known.get(shown(label).strip("'"))
    hint = "" if twin is None else f"Did you mean {twin!r}? Labels and classes have one type. "
    return (GuaranteeError if dropping else UnknownLabelError)(
        f"row {row} has the label {shown(label)}, which is not one of the "
        f"declared classes {classes.tolist()}. {hint}Correct the row or declare the label{way_out}."
    )


def is_table(X: Any) -> bool:
    """Return whether `X` is a table of pandas, Polars or a similar library."""
    return hasattr(X, "columns") and hasattr(X, "shape") and not isinstance(X, np.ndarray)


def _check_text(X: Any) -> Any:
    times = isinstance(X, np.ndarray) and X.dtype.kind in "mM"
    if isinstance(X, (list, tuple)):  # NumPy would look into what is no text
        text: Any = np.fromiter(X, dtype=object, count=len(X))
    else:
        text = X if times else np.asarray(X, dtype=object)  # or make integers of nanoseconds
    if text.ndim == 0 or len(text) == 0:
        raise InvalidRowsError("Found no samples; at least one text is required.")
    return text


def _texts(X: Any) -> NDArray[np.bool_]:
    cells = (X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)).reshape(len(X), -1)
    return np.fromiter(
        (all(isinstance(cell, str) for cell in row) for row in cells), np.bool_, len(cells)
    )


def _surely_finite(values: NDArray[Any]) -> bool:
    """Look once, without a mask: a sum is finite unless a value is not, or the sum overflows."""
    if values.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64)))
