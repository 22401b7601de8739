"""From what the user passes to samples and class indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import assert_all_finite, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from poisonproof.exceptions import (
    GuaranteeError,
    InvalidInputError,
    InvalidRowsError,
    UnknownLabelError,
)
from poisonproof.partition.containers import as_container, exact_sums, is_sparse

__all__ = ["check_samples", "encode_labels", "is_table", "label_set"]


def check_samples(classifier: Any, X: Any, *, reset: bool, any_cells: bool = False) -> Any:
    """Check samples and leave them in their container.

    Frames and text keep their cells; everything else must be numeric, except objects if `any_cells`
    is true, because then each row is looked at by itself. Feature names and counts are recorded
    when `reset` is true and compared otherwise, as scikit-learn does.
    """
    if isinstance(features := getattr(classifier, "features", None), str):
        raise InvalidInputError(
            "features is a transformer of poisonproof.features, or None for none. Got "
            f"{features!r}."
        )
    tags = get_tags(classifier)
    if is_table(X):
        _refuse_repeated_columns(X)
        validate_data(classifier, X, reset=reset, skip_check_array=True)
        if X.shape[0] == 0 or X.shape[1] == 0:
            raise InvalidRowsError(
                f"Found a table of {X.shape[0]} rows and {X.shape[1]} columns; at least one of "
                "each is required."
            )
        return X
    if tags.input_tags.string and not sparse.issparse(X):
        return _check_text(X)
    if isinstance(X, np.ma.MaskedArray):
        as_container(X)  # says what to do; scikit-learn would read through the mask
    if isinstance(X, (list, tuple)):
        X = _array_of_rows(X)
    elif is_sparse(X) and X.format != "csr":
        X = exact_sums(X)  # scikit-learn's conversion to CSR may add up entries of one place
    objects = isinstance(X, np.ndarray) and X.dtype.kind == "O"
    numeric = not tags.input_tags.categorical and not (objects and any_cells)
    if objects and numeric:
        _refuse_text(X)
    checked = validate_data(
        classifier,
        X,
        reset=reset,
        accept_sparse="csr" if tags.input_tags.sparse else False,
        dtype="numeric" if numeric else None,
        ensure_all_finite=False,
        allow_nd=tags.input_tags.three_d_array,
    )
    # Objects are checked but not converted: that would round integers beyond 2^53.
    return X if objects else checked


def _array_of_rows(X: Any) -> Any:
    """Return a list of rows as an array in which every cell still has its value.

    NumPy gives all rows one type: a text among numbers would turn all of them into text, and a
    fraction among large integers would round them.
    """
    try:
        values = np.asarray(X)
    except ValueError:  # rows of different lengths, images, or a cell that is a list
        _refuse_ragged_rows(X)
        if not all(isinstance(row, (list, tuple)) for row in X):
            return X  # for scikit-learn's check to say
        cells = np.empty((len(X), len(X[0])), dtype=object)
        for row, column in np.ndindex(cells.shape):
            cells[row, column] = X[row][column]
        return cells
    exact = values.dtype.kind in "biu" or (
        values.dtype.kind == "f" and not (np.abs(values) >= 2.0**53).any()
    )
    return values if exact else np.array(X, dtype=object)


def _refuse_text(X: NDArray[Any]) -> None:
    """Name the first row with a cell that is no number, for members that take numbers alone."""
    for row, cells in enumerate(X.reshape(len(X), -1) if X.size else ()):
        for cell in cells:
            if isinstance(cell, str):
                raise InvalidRowsError(
                    f"Row {row} of X holds the text {cell[:40]!r} where numbers are taken. Correct "
                    "the row, or encode texts and categories row by row, as a schema does."
                )


def _refuse_ragged_rows(X: Any) -> None:
    """Name the first row that has another number of cells than the first one."""
    lengths = [len(row) if isinstance(row, (list, tuple)) else None for row in X]
    if None in lengths or len(set(lengths)) == 1:
        return
    row = next(i for i, length in enumerate(lengths) if length != lengths[0])
    raise InvalidRowsError(
        f"Row {row} of X has {lengths[row]} cells, but row 0 has {lengths[0]}. Give every row "
        "the same number of cells."
    )


def _refuse_repeated_columns(X: Any) -> None:
    counts = Counter(str(name) for name in X.columns)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise InvalidInputError(
            f"X has more than one column named {', '.join(map(repr, twice[:5]))}. Rename or drop "
            "them: features are told apart by their names."
        )


def label_set(classes: Any, y: NDArray[Any]) -> NDArray[Any]:
    """Return the sorted label set: the declared one, or what `y` holds if none is declared."""
    if classes is None:
        return np.unique(y)
    if len({isinstance(label, (str, bytes)) for label in classes}) == 2:
        raise InvalidInputError(
            f"classes mixes text and other labels: {classes!r}. Give all labels one type."
        )
    declared = np.unique(np.asarray(classes))
    if declared.ndim != 1 or declared.size == 0:
        raise InvalidInputError(f"classes must list at least one label, got {classes!r}.")
    return declared


def check_labels(y: Any, *, declared: bool) -> NDArray[Any]:
    """Return `y` as an array of one label per row, each of the type it came with.

    With a declared label set a strange label is a matter of its row. Without one the labels must
    look like classes, as scikit-learn demands.
    """
    if y is None:
        raise InvalidInputError("requires y to be passed, but the target y is None.")
    if declared and not (isinstance(y, np.ndarray) or isinstance(_dtype(y), np.dtype)):
        # NumPy would give all labels of a list, or of a series of another library's type, one type:
        # bytes, text, a fraction or a missing one would change every row's.
        y = np.fromiter(y, dtype=object, count=len(y))
    elif isinstance(y, (list, tuple)) and len({isinstance(label, str) for label in y}) == 2:
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
    except TypeError:  # a list, a tuple of lists, a signalling NaN: no label of a class
        return -1


def _dtype(y: Any) -> Any:
    return getattr(y, "dtype", None)


def unknown_label_error(
    y: NDArray[Any], codes: NDArray[np.int64], classes: Any, *, droppable: bool
) -> Exception:
    """Build the error that names the first row whose label is outside the declared set."""
    row = int(np.argmin(codes >= 0))
    what = (
        f"row {row} has the label {y[row : row + 1].tolist()[0]!r}, which is not one of the "
        f"declared classes {classes.tolist()}."
    )
    if droppable:
        return UnknownLabelError(
            f"{what} Correct the row, declare the label, or pass invalid_rows='drop' to leave "
            "such rows out."
        )
    return GuaranteeError(
        f"{what} It cannot be dropped: its sample has its part in the features and the partitions, "
        "and a flipped label must not decide that. Correct the row or declare the label."
    )


def is_table(X: Any) -> bool:
    """Say whether `X` is a table of pandas, Polars or a like library."""
    return hasattr(X, "columns") and hasattr(X, "shape") and not isinstance(X, np.ndarray)


def _check_text(X: Any) -> Any:
    times = isinstance(X, np.ndarray) and X.dtype.kind in "mM"
    text = X if times else np.asarray(X, dtype=object)  # NumPy would make integers of nanoseconds
    if text.ndim == 0 or len(text) == 0:
        raise InvalidRowsError("Found no samples; at least one text is required.")
    return text
