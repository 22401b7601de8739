"""A grid of members: partitions of rows times blocks of features, certified against both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

from poisonproof.certificates.grid import certify_grid, certify_grid_scores
from poisonproof.certificates.plurality import ABSTAIN, certify_votes
from poisonproof.certificates.result import GridCertificates
from poisonproof.certificates.threats import Threat
from poisonproof.data.columns import ArrayColumn, ImageColumn
from poisonproof.data.schema import refuse_repeated
from poisonproof.estimators.certifying import ensemble_scores, input_tags
from poisonproof.estimators.checked_table import NO_ROW, array_of_rows
from poisonproof.estimators.dpa import DPAClassifier
from poisonproof.exceptions import GuaranteeError, InvalidInputError, InvalidRowsError
from poisonproof.members.scikit import largest_value
from poisonproof.partition.blocks import canonical_csr
from poisonproof.partition.cells import NoCanonicalFormError, canonical_cell, nearest_float
from poisonproof.partition.containers import (
    as_container,
    as_objects,
    frame_columns,
    from_tensor,
    inexact,
    is_frame,
    is_sparse,
    n_rows,
    pandas,
)
from poisonproof.partition.grids import Blocks, Grid
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.partition.partitioners import Partitioner
from poisonproof.partition.values import take_canonical
from poisonproof.progress import Silent, make_progress, reporting

_CHANNELS = (1, 3, 4)
_SCORES = 1 << 26
"""Scores that are kept at once, in a run-off."""


class GridClassifier(DPAClassifier):
    """A classifier that withstands poisoned training rows and changed features at once.

    Features are cut into B blocks and rows into k partitions; one member is trained for each of the
    k x B cells, on the rows of its partition, of which it sees the features of its block alone. Two
    elections follow, one inside the other. A prediction comes with a staircase: for every number f
    of changed features the largest number r of poisoned training rows that it withstands as well.

    Parameters
    ----------
    estimator : classifier, optional
        What a member is. By default `ScaledKernelClassifier`.
    n_partitions : int, optional
        Number of partitions, k. By default that of the partitioner, or 50.
    blocks : int, str or list of lists, default=16
        The blocks of features: their number, or kind and number. ``"columns:8"`` deals out columns
        by a hash, ``"lattice:16"``, ``"pixels:36"`` and ``"bands:7"`` are blocks of images (see
        `poisonproof.partition.Blocks`), ``"words:8"`` of texts, ``"words:8:2"`` of pairs of words.
        A number alone takes what suits the samples. Lists declare the columns of every block, by
        name or number.
    outer : {"rows", "features"}, default="rows"
        ``"rows"``: the certificate holds against r rows and any f features of the test row.
        ``"features"``: against r rows and the same f features, rewritten in all training rows and
        in the test row. Rows are then partitioned block by block, by that block's content.
    image_shape : tuple of int, optional
        Height, width and perhaps channels, where images come as flat rows; (3, height, width) where
        all numbers of a colour come before those of the next one.
    partitioner : {"content", "pixel_sum", "group"} or partitioner, default="content"
        Which partition a row falls into.
    features : transformer, optional
        A fixed map, applied inside every block.
    classes, schema, invalid_rows, n_jobs, random_state, verbose
        As in `DPAClassifier`. A cell that is invalid or missing costs its row one block, unless the
        members take missing values.

    Notes
    -----
    With ``outer="features"`` and partitions by content, `update` looks for the blocks of a row to
    remove one by one: it cannot tell a row from one that was put together from blocks of others.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = GridClassifier(n_partitions=10, blocks="lattice:4", classes=range(10))
    >>> certificates = clf.fit(X[:1500], y[:1500]).certify(X[1500:])
    >>> certificates.rows.shape  # for f = 0, 1 and 2 changed pixels
    (297, 3)
    """

    blanks_cells: ClassVar[bool] = True

    def __init__(
        self,
        estimator: Any = None,
        n_partitions: int | None = None,
        blocks: Any = 16,
        outer: str = "rows",
        *,
        image_shape: tuple[int, ...] | None = None,
        partitioner: Any = "content",
        classes: Any = None,
        features: Any = None,
        schema: Any = None,
        invalid_rows: str | None = None,
        n_jobs: int | None = None,
        random_state: int = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            estimator,
            n_partitions,
            partitioner=partitioner,
            classes=classes,
            features=features,
            schema=schema,
            invalid_rows=invalid_rows,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.blocks = blocks
        self.outer = outer
        self.image_shape = image_shape

    @classmethod
    def plain_parameters(cls) -> list[str]:
        """Leave out what the partitioner keeps."""
        kept = {"blocks", "outer", "image_shape"}
        return [name for name in super().plain_parameters() if name not in kept]

    # Blocks are resolved once, when the rows to train on are known.

    def _prepare(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> PartitionedData:
        self._shape, self._channels_first = self._image_shape(X)
        rule, schema = self.partitioner, self.schema
        everywhere = (rule if isinstance(rule, Grid) else self).outer == "features"
        splits = schema is not None and schema.test_share and schema.unit in ("row", "source")
        if everywhere and splits:
            raise GuaranteeError(
                "The schema holds out rows by a hash of all their columns. With outer='features' a "
                "column that is changed in all rows would move rows of every block. Declare "
                "test_share=0 and keep test rows apart, or declare groups."
            )
        data = super()._prepare(X, y, groups, sample_weight)
        if not data.n_rows:
            raise InvalidRowsError("no row of X has a block in which all cells are numbers.")
        return data

    def _image_shape(self, X: Any) -> tuple[tuple[int, ...] | None, bool]:
        """Return height, width and perhaps channels of an image, and whether channels come first.

        A side of 1, 3 or 4 numbers tells; those of a schema's images come first in doubt.
        """
        first = next(iter(() if self.schema is None else self.schema.columns), None)
        shape = self.image_shape
        if shape is None and isinstance(first, (ArrayColumn, ImageColumn)):
            shape = first.shape if len(first.shape) in (2, 3) else None
        elif shape is None and first is None and getattr(X, "ndim", 2) > 2:
            shape = np.shape(X)[1:]
        if shape is None or len(shape) != 3:
            return None if shape is None else tuple(map(int, shape)), False
        front, *sides, back = map(int, shape)
        if front in _CHANNELS and (back not in _CHANNELS or isinstance(first, ImageColumn)):
            return (*sides, back, front), True
        return (front, *sides, back), False

    def _declared_partitioner(self) -> Partitioner:
        base = super()._declared_partitioner()
        return base.base if isinstance(base, Grid) else base

    def _placed(self, partitioner: Partitioner, X: Any) -> Partitioner:
        if isinstance(self.partitioner, Grid):
            return self.partitioner
        missing = bool(input_tags(self._sees_samples_first()).allow_nan)
        return Grid(
            base=partitioner, blocks=self._blocks(X), outer=self.outer, takes_missing=missing
        )

    def _blocks(self, X: Any) -> Blocks:
        """Return the blocks of these samples."""
        wanted = self.blocks
        if isinstance(wanted, Blocks):
            return wanted
        texts = not is_sparse(X) and getattr(X, "ndim", 1) == 1
        if isinstance(wanted, (list, tuple)):
            return self._declared_blocks(wanted, X)
        kind, number, ngram = _parse(wanted)
        if kind is None:
            kind = "words" if texts else "columns" if self._shape is None else "lattice"
        if texts != (kind == "words"):
            raise InvalidInputError(
                f"Blocks of {kind} do not suit these samples. Texts take 'words:{number}', tables "
                f"'columns:{number}', images 'lattice:{number}', 'pixels:{number}' or "
                f"'bands:{number}'."
            )
        if kind == "words":
            return Blocks(n_blocks=number, kind=kind, ngram=ngram)
        widths = self._widths(X)
        if kind == "columns":
            _check_number(number, len(widths), "columns")
            return Blocks(n_blocks=number, widths=widths)
        first = None if self.schema_ is None else self.schema_.columns[0]
        if isinstance(first, ImageColumn) and first.encoder != "pixels":
            raise GuaranteeError(
                f"The schema makes features ({first.encoder}) of whole images, so that a pixel "
                "would reach several blocks. Declare the encoder 'pixels'."
            )
        shape = self._shape or _square(X.shape[1])
        if math.prod(shape) != X.shape[1] or len(shape) not in (2, 3):
            raise InvalidInputError(
                f"image_shape is (height, width) or (height, width, channels). {shape} has "
                f"{math.prod(shape)} pixels, but the rows of X have {X.shape[1]}."
            )
        _check_number(number, shape[0] if kind == "bands" else shape[0] * shape[1], "pixels")
        return Blocks(
            n_blocks=number,
            kind=kind,
            image_shape=shape,
            channels_first=self._channels_first and shape == self._shape,
        )

    def _widths(self, X: Any) -> tuple[int, ...]:
        """Return how many numbers each column became."""
        if self.schema_ is None or self.schema_.keeps_numbers:
            return (1,) * int(X.shape[1])
        columns = self.schema_.columns
        if isinstance(columns[0], ArrayColumn):
            return (1,) * columns[0].n_features
        return tuple(column.n_features for column in columns)

    def _declared_blocks(self, wanted: Sequence[Any], X: Any) -> Blocks:
        widths = self._widths(X)
        schema, names = self.schema_, getattr(self, "feature_names_in_", None)
        if schema is not None and not schema.keeps_numbers:
            names = [column.name for column in schema.columns]
        place = {name: i for i, name in enumerate([] if names is None else names)}
        place |= {i: i for i in range(len(widths)) if i not in place}
        flat = [name for block in wanted for name in block]
        unknown = [name for name in flat if name not in place]
        if unknown or len(set(flat)) != len(flat) or not all(len(block) for block in wanted):
            raise InvalidInputError(
                "blocks lists the columns of every block, each once, by name or number. "
                + (f"There is no column {unknown[0]!r}." if unknown else f"Got {wanted!r:.200}.")
            )
        declared = tuple(tuple(place[name] for name in block) for block in wanted)
        return Blocks(n_blocks=len(declared), declared=declared, widths=widths)

    # Cells that are no numbers are missing.

    def read_training(
        self, X: Any, y: Any, groups: Any, weight: Any, *, reset: bool
    ) -> tuple[Any, Any, Any, Any, int]:
        """Return training rows; a cell that no member could take is missing."""
        X, y, groups, weight, n_left_out = super().read_training(X, y, groups, weight, reset=reset)
        X = self._cells(X, largest_value(self._template()), reset=reset, drop=True)
        return X, y, groups, weight, n_left_out

    def encoded(self, X: Any) -> Any:
        """Return samples as the schema makes them; a cell that is no number is missing."""
        return self._cells(super().encoded(X), math.inf, reset=False, drop=False)

    def _cells(self, X: Any, limit: float, *, reset: bool, drop: bool) -> Any:
        X = from_tensor(X)
        if self.__sklearn_tags__().input_tags.string and not is_sparse(X):
            return _texts(X)
        rows = isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype.kind == "O")
        if rows and getattr(X, "ndim", 1) == 1 and not all(isinstance(row, str) for row in X):
            drop = drop and self.drops_invalid_rows
            X = array_of_rows(self, list(X), reset=reset, drop=drop)
        return _numbers(X, limit)

    def _types_observed(self) -> bool:
        if self.schema_ is not None:
            return not self.schema_.frozen
        return hasattr(self, "feature_names_in_") and self._takes_numbers_alone()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = False
        return tags

    def _thin_partitions(self, sizes: NDArray[np.intp]) -> list[str]:
        grid = self._grid
        by_block = sizes.reshape(grid.blocks.n_blocks, grid.k)
        fullest = by_block[by_block.sum(axis=1).argmax()]
        return super()._thin_partitions(fullest) or grid.thin_blocks(sizes)

    # Votes.

    def grid_votes(self, X: Any) -> NDArray[np.int16]:
        """Return the vote of every cell.

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or sequence of texts, shape (n, ...)
            Samples.

        Returns
        -------
        ndarray of shape (n, k, B)
            Indices into ``classes_``, -1 where a member abstains.
        """
        samples, grid = self._checked(X), self._grid
        votes = np.full((n_rows(samples), grid.k, grid.blocks.n_blocks), ABSTAIN, dtype=np.int16)
        with reporting(make_progress(self.verbose), grid.blocks.n_blocks, "Voting") as progress:
            for block, rows, part, members in self._asked(samples):
                found = members.votes(part, n_jobs=self.n_jobs, progress=Silent())
                votes[rows, :, block] = found
                progress.advance()
        return votes

    def _asked(self, samples: Any) -> Any:
        """Yield for every block the rows it can be asked about, what it sees, and its members."""
        grid = self._grid
        ensemble = getattr(self.ensemble_, "loaded", self.ensemble_)
        for block, seen in enumerate(grid.blocks.split(samples)):
            rows = np.flatnonzero(grid.usable(seen))
            if not len(rows):
                continue
            part = take_canonical(seen, None if len(rows) == n_rows(seen) else rows)
            if self.features_ is not None:
                part = take_canonical(self._mapped_samples(part), None)
            yield block, rows, part, ensemble.part(range(block * grid.k, (block + 1) * grid.k))

    @property
    def _grid(self) -> Grid:
        assert isinstance(self.partitioner_, Grid)
        return self.partitioner_

    def votes(self, X: Any) -> NDArray[np.int16]:
        """Return the votes of the outer election.

        Returns
        -------
        ndarray of shape (n, k) or, with ``outer="features"``, (n, B)
            The label that each partition (each block) has elected; -1 where all its cells abstain.
        """
        return self._inner_labels(self.grid_votes(X))

    def _inner_labels(self, votes: NDArray[np.int16]) -> NDArray[np.int16]:
        n, k, n_blocks = votes.shape
        inner = votes if self._grid.outer == "rows" else votes.transpose(0, 2, 1)
        table = np.ascontiguousarray(inner).reshape(-1, inner.shape[2])
        labels = certify_votes(table, len(self.classes_)).labels.astype(np.int16)
        labels[(table == ABSTAIN).all(axis=1)] = ABSTAIN
        return labels.reshape(n, k if self._grid.outer == "rows" else n_blocks)

    def _certified(self, X: Any, threat: Threat, target: int | None) -> GridCertificates:
        return certify_grid(
            self.grid_votes(X),
            len(self.classes_),
            outer=self._grid.outer,
            threat=threat,
            target=target,
            shared_rows=self._grid.by_group,
        )

    def certified_runoff(self, X: Any, threat: Threat, target: int | None) -> GridCertificates:
        """Return certificates of run-off elections inside and a plurality outside."""
        samples = self._checked(X)
        return certify_grid_scores(
            self._grid_scores(samples), outer=self._grid.outer, threat=threat, target=target
        )

    def _grid_scores(self, samples: Any) -> Iterator[NDArray[np.float64]]:
        """Yield every cell's scores, shape (h, k, B, C), for some of the samples at a time."""
        grid, n_classes = self._grid, len(self.classes_)
        shape = grid.k, grid.blocks.n_blocks, n_classes
        height = max(1, _SCORES // math.prod(shape))
        for top in range(0, n_rows(samples), height):
            some = _safe_indexing(samples, np.arange(top, min(top + height, n_rows(samples))))
            scores = np.full((n_rows(some), *shape), np.nan)
            for block, rows, part, members in self._asked(some):
                scores[rows, :, block] = ensemble_scores(members, part, n_classes, self.n_jobs)
            yield scores


def _parse(wanted: Any) -> tuple[str | None, int, int]:
    """Return kind, number and words per feature, from 16, "lattice:16" or "words:8:2"."""
    kind, *numbers = str(wanted).split(":")
    if kind.isdigit():
        kind, numbers = "", [kind, *numbers]
    try:
        number, *more = map(int, numbers)
        ngram = more[0] if more else 1
        good = number > 0 and ngram > 0 and len(more) <= (kind == "words")
    except ValueError:
        good = False
    if isinstance(wanted, bool) or not good:
        raise InvalidInputError(
            "blocks is a number, a kind and a number such as 'columns:8', 'lattice:16', 'words:8', "
            f"or a list of lists of columns. Got {wanted!r}."
        )
    return kind or None, number, ngram


def _check_number(n_blocks: int, most: int, what: str) -> None:
    if n_blocks > most:
        raise InvalidInputError(
            f"{n_blocks} blocks need at least as many {what}, but there are {most}."
        )


def _square(width: int) -> tuple[int, ...]:
    side = math.isqrt(width)
    if side * side != width:
        raise InvalidInputError(
            f"Rows of {width} numbers are no square images. Set image_shape=(height, width) or "
            "(height, width, channels)."
        )
    return (side, side)


def _texts(X: Any) -> Any:
    """Return texts; what is none has no words."""
    if getattr(X, "ndim", 1) != 1 or not hasattr(X, "__len__"):
        return X  # the usual checks say what it is
    return [text if isinstance(text, str) else "" for text in X]


def _numbers(X: Any, limit: float) -> Any:
    """Return samples as numbers that float64 holds; what is none, or beyond `limit`, is NaN.

    Every cell is read by itself: neither other rows nor the type of a container has a say in it.
    """
    if is_sparse(X):
        matrix = canonical_csr(as_container(X))
        data = _finite(matrix.data, limit)
        if data is not matrix.data:
            matrix = type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)
        return matrix
    if is_frame(X) and hasattr(X, "columns"):
        refuse_repeated([str(name) for name in X.columns], "X")
        X = as_container(X)
        cells = [_column(column, limit) for column in frame_columns(X)]
        return pandas().DataFrame(dict(zip(X.columns, cells, strict=True)))
    if not isinstance(X, np.ndarray) or isinstance(X, np.ma.MaskedArray) or X.ndim < 2:
        return X  # the usual checks say what it is
    return _column(X, limit)


def _column(cells: NDArray[Any], limit: float) -> NDArray[Any]:
    if cells.dtype.kind in "biuf":
        return _finite(cells, limit)
    listed = as_objects(cells).ravel()
    numbers = np.fromiter(map(_number, listed), np.float64, cells.size).reshape(cells.shape)
    found = _finite(numbers, limit)
    odd = np.fromiter((cell is NO_ROW for cell in listed), np.bool_, cells.size)
    if odd.any():
        objects = found.astype(object)
        objects.ravel()[odd] = NO_ROW  # a view, for it was just made
        return objects
    return found


def _finite(cells: NDArray[Any], limit: float) -> NDArray[Any]:
    """Return numbers, rounded to float64 where they are not among its, NaN for what is too large.

    Where nothing is to be done they come back as they are.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if inexact(cells).any():
            cells = cells.astype(np.float64)
        if limit == math.inf and (cells.dtype.kind != "f" or np.isfinite(cells.sum(dtype=float))):
            return cells
        good = np.isfinite(cells) & (np.abs(cells.astype(np.float64)) <= limit)
    return cells if good.all() else np.where(good, cells.astype(np.float64), np.nan)


def _number(cell: Any) -> float:
    try:
        plain = cell if type(cell) is float else canonical_cell(cell)
    except NoCanonicalFormError:
        return math.nan
    return nearest_float(plain) if isinstance(plain, (int, float)) else math.nan
