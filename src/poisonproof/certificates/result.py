"""The result of certification: labels, radii, what they mean, and files that keep them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.certificates.threats import Threat
from poisonproof.exceptions import InvalidInputError, StoreError, UnknownLabelError, needing
from poisonproof.files import replacing
from poisonproof.strict import parse_json

if TYPE_CHECKING:
    import pandas as pd

_ACTS = {
    "plurality": "a vote",
    "finite_aggregation": "a vote, with shared buckets of rows,",
    "runoff": "a run-off election",
    "runoff_finite_aggregation": "a run-off election, with shared buckets of rows,",
    "row_votes": "a vote",
    "cluster_assignment": "an assignment of clusters to classes by the labels",
    "label_flips": "a vote, counting the labels behind each member,",
    "grid_rows": "a vote in two steps",
    "grid_features": "a vote in two steps",
    "grid_rows_runoff": "run-off elections and a vote",
    "grid_features_runoff": "run-off elections and a vote",
}
_ROWS_VOTE = ("row_votes", "cluster_assignment")
"""Methods in which training rows vote, and most of them say nothing about a test row."""
_GRID = {"rows": "row partition", "features": "feature block"}
"""The voters of a grid, by the side of it that votes last."""
_SHOWN = 20  # numbers of a staircase printed


@dataclass(frozen=True, eq=False, repr=False)
class Certificates:
    """Predictions with the size of attack that each is proved to withstand.

    Holds no test labels: it is what a deployed model hands out. Arrays are read-only. ``len``
    gives the number of predictions; indexing with an integer, slice, mask or index array gives
    the certificates of those rows.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Predicted class values, or class indices where `classes` is None.
    radius : ndarray of int, shape (n,)
        Largest certified attack, in units of `threat`; see `certify_votes`.
    runner_up : ndarray of shape (n,)
        The label closest to overtaking, in the form of `labels`.
    counts : ndarray of int, shape (n, C)
        Votes per class.
    threat : Threat
        What one unit of attack is and what is assumed.
    n_members : int
        Number of members that voted or abstained, k.
    classes : ndarray of shape (C,) or None
        Class values in the order of the columns of `counts`.
    target : ndarray of shape (n,) or None
        For targeted certificates the label aimed at, in the form of `labels`. The radius then
        says that this label does not win; other labels may.
    method : str
        How the members were aggregated: ``"plurality"``, ``"finite_aggregation"``, ``"runoff"`` or
        ``"runoff_finite_aggregation"``. In a run-off `counts` are first choices and `runner_up`
        is the other finalist. ``"row_votes"`` and ``"cluster_assignment"``: every training row is
        a member. ``"label_flips"``: the radius counts flipped labels, not changed members.
        ``"grid_rows"``, ``"grid_features"`` and both with ``"_runoff"``: the members are the row
        partitions or the feature blocks of a grid, whichever vote last; see `GridCertificates`.

    Guarantee
    ---------
    No attack of at most ``radius[i]`` units changes ``labels[i]`` (without `target`).

    Examples
    --------
    >>> from poisonproof.certificates import certify_votes
    >>> certificates = certify_votes([[0, 0, 1, -1], [1, 1, 1, 1]], n_classes=2)
    >>> print(certificates)
    2 predictions by a vote of 4 members over 2 classes, certified against rows inserted or deleted.
    Radius: smallest 0, median 0, largest 1.
    1 of 2 predictions (50.0 %) cannot be changed by 1 row inserted or deleted.
    >>> certificates.with_classes(["ham", "spam"]).labels
    array(['ham', 'spam'], dtype='<U4')
    """

    labels: NDArray[Any]
    radius: NDArray[np.int64]
    runner_up: NDArray[Any]
    counts: NDArray[Any]
    threat: Threat
    n_members: int
    classes: NDArray[Any] | None = None
    target: NDArray[Any] | None = None
    method: str = "plurality"

    def __post_init__(self) -> None:
        if self.method not in _ACTS:
            raise InvalidInputError(f"method is one of {', '.join(_ACTS)}. Got {self.method!r}.")
        for name in ("labels", "radius", "runner_up", "counts", "classes", "target"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _read_only(value))
        counts, radius = self.counts, self.radius
        if radius.ndim != 1 or counts.ndim != 2 or len(counts) != len(radius):
            raise InvalidInputError(
                f"radius has shape (n,) and counts (n, C). Got {radius.shape} and {counts.shape}."
            )
        for name in ("labels", "runner_up", "target"):
            value = getattr(self, name)
            if value is not None and value.shape != radius.shape:
                raise InvalidInputError(
                    f"{name} must have shape {radius.shape}. Got {value.shape}."
                )
        if radius.dtype.kind not in "iu" or counts.dtype.kind not in "iu":
            raise InvalidInputError(
                f"radius and counts are integers. Got dtypes {radius.dtype} and {counts.dtype}."
            )
        if self.classes is not None:
            check_classes(self.classes, self.n_classes)

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return int(self.counts.shape[1])

    @property
    def rows_vote(self) -> bool:
        """Whether training rows vote themselves, without members."""
        return self.method in _ROWS_VOTE

    def __len__(self) -> int:
        return len(self.radius)

    def __getitem__(self, rows: Any) -> Certificates:
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        return replace(self, **{name: array[chosen] for name, array in _arrays(self).items()})

    def equals(self, other: object) -> bool:
        """Return whether `other` has the same fields, values and dtypes."""
        if not isinstance(other, Certificates) or type(self) is not type(other):
            return False
        return all(
            _same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )

    def with_classes(self, classes: ArrayLike) -> Certificates:
        """Return the same certificates with class values in place of class indices.

        Parameters
        ----------
        classes : array-like of shape (C,)
            Distinct values; the one at position i takes the place of index i.
        """
        if self.classes is not None:
            raise InvalidInputError(f"The labels are class values already: {self.classes!r}.")
        values = check_classes(classes, self.n_classes)
        arrays = {name: values[array] for name, array in _arrays(self).items() if name in _LABELS}
        return replace(self, classes=values, **arrays)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with one row per prediction.

        The columns are ``label``, ``radius``, ``runner_up``, ``target`` (targeted certificates
        only) and ``votes_<class>`` for every class; ``frame.attrs["threat"]`` holds the threat.
        """
        with needing("pandas", "data"):
            import pandas as pd
        frame = pd.DataFrame(self.columns())
        frame.attrs["threat"] = self.threat.to_dict()
        return frame

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of `to_frame` by name, each of shape (n,)."""
        table: dict[str, NDArray[Any]] = {
            "label": self.labels,
            "radius": self.radius,
            "runner_up": self.runner_up,
        }
        if self.target is not None:
            table["target"] = self.target
        names = range(self.n_classes) if self.classes is None else self.classes.tolist()
        for column, name in enumerate(names):
            table[f"votes_{name}"] = self.counts[:, column]
        return table

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a ``.csv`` file, whole or not at all.

        It keeps everything, threat and classes included, and is read back by `load`: the first line
        is a comment that carries what the columns do not.
        """
        path = _checked_path(path)
        description = json.dumps(_describe(self))
        try:
            with replacing(path) as file:
                _write(file, self, description)
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from error

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Certificates:
        """Read certificates written by `save`."""
        path = _checked_path(path)
        try:
            with path.open("rb") as file:
                return _assemble(*_read(file))
        except FileNotFoundError as error:
            raise StoreError(f"There is no file {path}.") from error
        except (
            *(ValueError, LookupError, TypeError, AttributeError),
            *(OSError, OverflowError, csv.Error),
        ) as error:
            raise StoreError(f"{path} holds no readable certificates: {error}") from error

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {len(self):,} predictions, {self.n_members:,} members, "
            f"{self.n_classes} classes, threat {self.threat.code!r}, {self._spread()}>"
        )

    def __str__(self) -> str:
        n, threat = len(self), self.threat
        lines = [
            f"{n:,} prediction{'' if n == 1 else 's'} by {self._election()} over {self.n_classes} "
            f"class{'' if self.n_classes == 1 else 'es'}, certified against {threat.plural}."
        ]
        if n:
            lines.append(f"{self._spread().capitalize()}.")
            safe = int((self.radius >= 1).sum())
            what = "changed" if self.target is None else "turned into its target"
            lines.append(
                f"{safe:,} of {n:,} predictions ({100 * safe / n:.1f} %) cannot be {what} by "
                f"{threat.count(1)}."
            )
        lines += [f"Assumed: {sentence}." for sentence in threat.assumptions]
        return "\n".join(lines)

    def _election(self) -> str:
        if self.method == "label_flips" and self.n_members == 1:
            return "one vote of all training rows, counting labels,"
        voter = "training row" if self.rows_vote else "member"
        if self.method.startswith("grid_"):
            voter = _GRID[self.method.split("_")[1]]
        plural = "" if self.n_members == 1 else "s"
        return f"{_ACTS[self.method]} of {self.n_members:,} {voter}{plural}"

    def _spread(self) -> str:
        if not len(self):
            return "no radius"
        # The lower median is a radius that occurs, so no half units are printed.
        middle = np.sort(self.radius)[(len(self) - 1) // 2]
        return (
            f"radius: smallest {self.radius.min():,}, median {middle:,}, "
            f"largest {self.radius.max():,}"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GridCertificates(Certificates):
    """Predictions of a grid of members, with the rows *and* features each withstands together.

    Member (i, j) of the grid is trained on row partition i and sees feature block j only. All
    else is as in `Certificates`: `radius` is the certificate while no feature block differs, and
    `at` gives that of any other number of blocks.

    Attributes
    ----------
    rows : ndarray of int, shape (n, F + 1)
        For f = 0, ..., F feature blocks that differ, the largest certified attack in units of
        `threat`; -1 where nothing is certified. Never increasing in f.
    outer : {"rows", "features"}
        The side of the grid that votes last; see `certify_grid` for what that covers.
    n_blocks : int
        Number of feature blocks, B.

    Guarantee
    ---------
    No attack of at most f feature blocks and ``rows[i, f]`` units changes ``labels[i]`` (without
    `target`). The prediction depends on neither f nor the units.

    Examples
    --------
    >>> from poisonproof.certificates import certify_grid
    >>> certificates = certify_grid([[[0, 0, 0], [0, 0, 0], [0, 0, 1]]], n_classes=2)
    >>> certificates.rows
    array([[1, 0]])
    >>> print(certificates.at(1))
    1 prediction by a vote in two steps of 3 row partitions over 2 classes, certified against rows
    inserted or deleted.
    Radius: smallest 0, median 0, largest 0.
    0 of 1 predictions (0.0 %) cannot be changed by 1 row inserted or deleted.
    Assumed: at most 1 of 3 feature blocks of the test row differ.
    """

    rows: NDArray[np.int64]
    outer: str
    n_blocks: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outer not in _GRID:
            raise InvalidInputError(f"outer is one of {', '.join(_GRID)}. Got {self.outer!r}.")
        object.__setattr__(self, "rows", _read_only(self.rows))
        rows = self.rows
        fits = rows.ndim == 2 and 1 <= rows.shape[1] <= self.n_blocks + 1
        if rows.dtype.kind not in "iu" or not fits:
            raise InvalidInputError(
                f"rows are integers of shape (n, F + 1), F at most n_blocks={self.n_blocks}. "
                f"Got shape {rows.shape} of dtype {rows.dtype}."
            )
        if not np.array_equal(rows[:, 0], self.radius) or (rows[:, 1:] > rows[:, :-1]).any():
            raise InvalidInputError(
                "rows[:, 0] is the radius, and no other column of rows exceeds the one before it."
            )

    def at(self, f: int) -> Certificates:
        """Return the certificates against rows while at most `f` feature blocks differ.

        Parameters
        ----------
        f : int
            Number of feature blocks, from 0 to F.

        Returns
        -------
        Certificates
            With ``rows[:, f]`` as radius. What differs is an assumption of its threat.
        """
        last = self.rows.shape[1] - 1
        whole = isinstance(f, int | np.integer) and not isinstance(f, bool)
        if not whole or not 0 <= f <= last:
            raise InvalidInputError(
                f"f is a number of feature blocks that was certified, from 0 to {last}. Got {f!r}."
            )
        values = {field.name: getattr(self, field.name) for field in fields(Certificates)}
        values["radius"] = np.ascontiguousarray(self.rows[:, f])
        values["threat"] = self.threat.assuming(self._differing(int(f)))
        return Certificates(**values)

    def _differing(self, f: int) -> str:
        where = " of the test row" if self.outer == "rows" else ""
        if f == 0:
            return f"no feature block{where} differs"
        sentence = f"at most {f:,} of {self.n_blocks:,} feature blocks{where} differ"
        if where:
            return sentence
        return f"{sentence}, and the partition of a row for any other block ignores them"

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of `to_frame` by name, ``rows_0`` to ``rows_F`` last."""
        steps = {f"rows_{f}": self.rows[:, f] for f in range(self.rows.shape[1])}
        return super().columns() | steps

    def __str__(self) -> str:
        first, *rest = super().__str__().split("\n")
        if not len(self):
            return "\n".join([first, *rest])
        # Lower medians, as in the line above.
        middle = np.sort(self.rows, axis=0)[(len(self) - 1) // 2, :_SHOWN].tolist()
        steps = ", ".join(f"{radius:,}" for radius in middle)
        last = self.rows.shape[1] - 1
        return "\n".join(
            [
                first,
                rest[0],
                f"Medians while 0 to {last:,} of {self.n_blocks:,} feature blocks differ: {steps}"
                f"{', ...' * (last >= _SHOWN)}.",
                *rest[1:],
            ]
        )


def _read_only(value: ArrayLike) -> NDArray[Any]:
    array = np.asarray(value)
    if array.flags.writeable:  # somebody could still write to it
        array = array.copy()
        array.setflags(write=False)
    return array


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return type(left) is type(right) and bool(left == right)


def check_classes(classes: ArrayLike, n_classes: int) -> NDArray[Any]:
    """Return `classes` as an array of `n_classes` distinct values, or raise."""
    array = np.asarray(classes)
    if array.shape != (n_classes,):
        raise InvalidInputError(
            f"classes must list {n_classes} values, one per column of counts. "
            f"Got shape {array.shape}."
        )
    if len(set(array.tolist())) != n_classes:
        raise InvalidInputError(f"classes must be distinct. Got {array.tolist()!r}.")
    return array


def class_indices(
    values: ArrayLike, classes: NDArray[Any] | None, n_classes: int, name: str = "y_true"
) -> NDArray[np.int64]:
    """Return the index of every class value, or of every index where `classes` is None."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidInputError(f"{name} must have one dimension. Got shape {array.shape}.")
    known = list(range(n_classes)) if classes is None else classes.tolist()
    index = {value: i for i, value in enumerate(known)}
    found = np.fromiter((index.get(v, -1) for v in array.tolist()), np.int64, count=len(array))
    if len(found) and found.min() < 0:
        row = int(found.argmin())
        raise UnknownLabelError(
            f"{name}[{row}] is {array[row : row + 1].tolist()[0]!r}, which is none of the "
            f"{n_classes} classes: {', '.join(map(repr, known[:10]))}{', ...' * (n_classes > 10)}."
        )
    return found


# Certificates as CSV, lossless: the columns of `Certificates.columns`. A comment in the first line
# holds threat, classes, number of members and dtypes as JSON; ``pandas.read_csv(path, skiprows=1)``
# reads the rest.

_FORMAT = "poisonproof-certificates"
_VERSION = 1
_COMMENT = f"# {_FORMAT} "
_LABELS = {"labels": "label", "runner_up": "runner_up", "target": "target"}
"""Attributes that hold labels, and their columns in CSV."""

Read = tuple[dict[str, Any], dict[str, Any]]
"""The description, and arrays or lists by the name of their attribute."""


def _checked_path(path: str | os.PathLike[str]) -> Path:
    if Path(path).suffix.lower() != ".csv":
        raise InvalidInputError(
            f"Certificates are kept in files that end in .csv. Got {Path(path).name!r}."
        )
    return Path(path)


def _arrays(certificates: Certificates) -> dict[str, NDArray[Any]]:
    names = ("radius", "counts", *_LABELS, "rows")
    arrays = {name: getattr(certificates, name, None) for name in names}
    return {name: array for name, array in arrays.items() if array is not None}


def _describe(certificates: Certificates) -> dict[str, Any]:
    classes = certificates.classes
    dtypes = {name: array.dtype.str for name, array in _arrays(certificates).items()}
    grid: dict[str, Any] = {}
    if isinstance(certificates, GridCertificates):
        last = certificates.rows.shape[1] - 1
        grid = {"outer": certificates.outer, "n_blocks": certificates.n_blocks, "last": last}
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "threat": certificates.threat.to_dict(),
        "n_rows": len(certificates),
        "n_members": certificates.n_members,
        "method": certificates.method,
        "classes": None if classes is None else _json_values(classes),
        "dtypes": dtypes if classes is None else {**dtypes, "classes": classes.dtype.str},
        **grid,
    }


def _json_values(classes: NDArray[Any]) -> list[Any]:
    """Return classes as values that each format gives back as they are, or raise."""
    values: list[Any] = classes.tolist()
    kinds = {type(value) for value in values}
    text = "".join(values) if kinds == {str} else ""
    readable = len(kinds) <= 1 and kinds <= {bool, int, float, str}
    readable = readable and (kinds != {float} or bool(np.isfinite(values).all()))
    if not readable or any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
        raise InvalidInputError(
            "Only classes that are all text (without NUL and halves of surrogate pairs), integers, "
            f"finite floats or booleans can be saved. Got {str(values)[:80]!r}."
        )
    return values


def _assemble(description: dict[str, Any], read: dict[str, Any]) -> Certificates:
    if description["format"] != _FORMAT or description["version"] != _VERSION:
        raise ValueError(
            f"format {description['format']!r} version {description['version']!r}, "
            f"known is {_FORMAT!r} version {_VERSION}"
        )
    if len(read["radius"]) != description["n_rows"]:
        raise ValueError(f"{len(read['radius'])} rows, but {description['n_rows']} were saved")
    read["classes"] = description["classes"]
    dtypes = description["dtypes"]
    kind: Callable[..., Certificates] = Certificates
    grid: dict[str, Any] = {}
    if "rows" in read:
        grid = {"outer": description["outer"], "n_blocks": int(description["n_blocks"])}
        kind = GridCertificates
    certificates = kind(
        **{name: np.asarray(read[name]).astype(dtype) for name, dtype in dtypes.items()},
        threat=Threat.from_dict(description["threat"]),
        n_members=int(description["n_members"]),
        method=description["method"],
        **grid,
    )
    for name in _LABELS.keys() & dtypes.keys():
        values = getattr(certificates, name)
        class_indices(values, certificates.classes, certificates.n_classes, name=name)
    return certificates


def _write(file: IO[bytes], certificates: Certificates, description: str) -> None:
    columns = certificates.columns()
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    text.write(f"{_COMMENT}{description}\n")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    text.detach()


def _read(file: IO[bytes]) -> Read:
    with io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        first = text.readline()
        if not first.startswith(_COMMENT):
            raise ValueError(f"the first line does not begin with {_COMMENT.strip()!r}")
        header, *rows = csv.reader(text, strict=True)
    description = parse_json(first[len(_COMMENT) :])
    cells = list(zip(*rows, strict=True)) or [()] * len(header)
    columns: dict[str, Any] = dict(zip(header, cells, strict=True))
    n_classes = sum(name.startswith("votes_") for name in header)
    classes = range(n_classes) if description["classes"] is None else description["classes"]
    counts = [list(map(int, columns[f"votes_{value}"])) for value in classes]
    read = {"radius": list(map(int, columns["radius"])), "counts": np.array(counts).T}
    if "outer" in description:
        steps = range(int(description["last"]) + 1)
        read["rows"] = np.array([list(map(int, columns[f"rows_{f}"])) for f in steps]).T
    known = {str(value): value for value in classes}
    for name, column in _LABELS.items():
        read[name] = [known[cell] for cell in columns.get(column, ())]
    return description, read
