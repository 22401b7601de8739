"""What the fit of one member leaves behind."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.lapack import dposv

from poisonproof.exceptions import InvalidInputError, InvalidRowsError, StoreError
from poisonproof.members.member import is_machine_error
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.partition.values import take_canonical


@dataclass(frozen=True)
class MemberParts:
    """The arrays of one member, before they are stacked or cut out of the stack.

    Attributes
    ----------
    classes : ndarray of shape (p,)
        The classes this member can vote for, ascending. None of them: it abstains. One of them:
        it always votes for it.
    rows : mapping of str to ndarray of shape (r, ...)
        Arrays with one entry per row of the member.
    single : mapping of str to ndarray
        Arrays with one entry for the whole member.
    failure : str or None
        Why it abstains, if its learner raised.
    """

    classes: NDArray[np.int16]
    rows: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    single: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    failure: str | None = None

    @classmethod
    def without_rows(
        cls,
        settings: Mapping[str, Any],
        rows: Mapping[str, NDArray[Any]],
        single: Mapping[str, NDArray[Any]] | None = None,
    ) -> MemberParts:
        """Return a member of no rows: those of `ExactRows`, and the arrays of its kind."""
        dtype = np.float32 if settings["precision"] == "single" else np.float64
        exact = {
            "values": np.empty((0, settings["n_columns"]), dtype=dtype),
            "exponents": np.empty(0, dtype=np.int32),
        }
        return cls(np.empty(0, dtype=np.int16), {**exact, **rows}, single or {})

    def digest(self, head: bytes) -> str:
        """Return a digest of all of this, and of what is shared with other members."""
        sha = hashlib.sha256(head)
        sha.update(repr((self.classes.tolist(), self.failure)).encode())
        for group in (self.rows, self.single):
            for name, array in sorted(group.items()):
                sha.update(f"{name}{array.dtype.str}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, for `from_arrays`."""
        return (
            {"classes": self.classes}
            | {f"rows.{name}": array for name, array in self.rows.items()}
            | {f"single.{name}": array for name, array in self.single.items()}
        )

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], like: MemberParts, failure: str | None
    ) -> MemberParts:
        """Rebuild a member from a file; `like` has the names, shapes and types it must have."""
        rows = {name: _checked(arrays, f"rows.{name}", a) for name, a in like.rows.items()}
        single = {name: _checked(arrays, f"single.{name}", a) for name, a in like.single.items()}
        if len({len(array) for array in rows.values()}) > 1:
            sizes = {f"rows.{name}": len(array) for name, array in rows.items()}
            raise StoreError(f"The saved arrays of a member have different lengths: {sizes}.")
        return cls(_checked(arrays, "classes", like.classes), rows, single, failure)


def _checked(arrays: Mapping[str, NDArray[Any]], name: str, like: NDArray[Any]) -> NDArray[Any]:
    if name not in arrays:
        raise StoreError(f"A saved member lacks the array {name}.")
    found = arrays[name]
    if found.ndim != like.ndim or found.shape[1:] != like.shape[1:] or found.dtype != like.dtype:
        raise StoreError(
            f"The saved array {name} has shape {found.shape} and type {found.dtype}, but "
            f"{('n', *like.shape[1:])} and {like.dtype} belong to these members."
        )
    return found


# From a sample to the row that meets the weights: entry by entry, for every row alike.


def sample_matrix(X: Any) -> NDArray[Any]:
    """Return samples as numbers of shape (n, d), one row each, in the dtype they came in."""
    if sparse.issparse(X):
        raise InvalidRowsError(
            "Closed-form members need dense rows, but X is a sparse matrix. Use fewer columns "
            "and X.toarray(), for example HashedNGrams(n_features=1024)."
        )
    samples = np.asarray(X)
    if samples.dtype == object:
        if any(isinstance(cell, np.generic) and cell.dtype.kind in "mM" for cell in samples.flat):
            raise InvalidRowsError("Closed-form members take numbers only, and no dates.")
        try:
            samples = samples.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRowsError(
                f"Closed-form members take numbers only: {error}. Encode texts and categories "
                "inside the member, in a pipeline, or by a frozen schema."
            ) from None
    if samples.ndim < 2 or samples.dtype.kind not in "buif":
        raise InvalidRowsError(
            "Closed-form members take numbers of shape (n, d), but X has shape "
            f"{samples.shape} and dtype {samples.dtype}."
        )
    return samples.reshape(len(samples), int(np.prod(samples.shape[1:])))


def lifted_columns(n_features: int, settings: Mapping[str, Any]) -> int:
    """Return the width of a lifted row."""
    return 2 * n_features if settings["lift"] == "squares" else n_features


def lift(rows: NDArray[np.float64], settings: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the rows as they are, with their squares beside them, or as zeros and ones."""
    if settings["lift"] == "squares":
        with np.errstate(over="ignore"):  # infinite squares are refused where rows are rounded
            return np.concatenate([rows, rows * rows], axis=1)
    if settings["lift"] == "binary":
        # NaN compares false; a row that holds one must not slip through as zeros.
        return np.where(np.isnan(rows), np.nan, rows > settings["threshold"])
    return rows


# Training rows before they are fitted: checked, put in order and cut into blocks, row by row.

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
_BLOCK_ROWS = 4096
_BLOCK_CELLS = 2**22


@dataclass(frozen=True)
class MemberRows:
    """The training rows of one member, in canonical order.

    Attributes
    ----------
    rows : array or object of m rows
        What the learner prepared.
    y : ndarray of shape (m,)
        Class indices.
    weight : ndarray of shape (m,)
        Weights, all positive.
    present : ndarray of shape (p,)
        The classes among `y`, ascending.
    """

    rows: Any
    y: NDArray[np.int64]
    weight: NDArray[np.float64]
    present: NDArray[np.intp]

    @property
    def classes(self) -> NDArray[np.int16]:
        """The classes this member can vote for, shape (p,)."""
        return self.present.astype(np.int16)

    @property
    def positions(self) -> NDArray[np.intp]:
        """The place of each row's class in `classes`, shape (m,)."""
        return self.present.searchsorted(self.y)


def problems(
    X: NDArray[np.float64],
    weights: NDArray[np.float64],
    owner: NDArray[np.intp],
    *,
    allow_missing: bool = False,
) -> dict[int, Exception]:
    """Return why members cannot be fitted whose rows or weights are no numbers."""
    found: dict[int, Exception] = {}
    # Sums and products of weights far outside this range are rounded to zero or overflow.
    good = (weights == 0) | ((weights >= LEAST_WEIGHT) & (weights <= LARGEST_WEIGHT))
    for member in np.unique(owner[~good]).tolist():
        found[member] = InvalidInputError(
            f"sample_weight must be 0 or lie between {LEAST_WEIGHT:g} and {LARGEST_WEIGHT:g}, but "
            f"is {weights[~good & (owner == member)][0]:g} in one row. Multiply all weights by a "
            "fixed number"
        )
    bad = np.isinf(X) if allow_missing else ~np.isfinite(X)
    what = "infinity" if allow_missing else "NaN or infinity"
    for member in np.unique(owner[bad.any(axis=1)]).tolist():
        found[member] = InvalidRowsError(f"the partition holds {what}")
    return found


def canonical_order(
    X: NDArray[np.float64],
    y: NDArray[Any],
    weights: NDArray[np.float64],
    owner: NDArray[np.intp],
) -> NDArray[np.intp]:
    """Return the rows member after member, in an order that depends on their values only.

    Rows of a member that tie are equal in every bit, so their order cannot matter.
    """
    record = np.concatenate(
        [X, y.astype(np.float64)[:, np.newaxis], weights[:, np.newaxis]], axis=1
    )
    as_bytes = record.view(np.dtype((np.void, record.shape[1] * record.itemsize)))
    by_value = np.argsort(as_bytes[:, 0], kind="stable")
    return by_value[np.argsort(owner[by_value], kind="stable")]


def n_features(X: Any) -> int:
    """Return how many numbers a sample has, whatever its shape."""
    return int(np.prod(np.shape(X)[1:]))


def blocks(data: PartitionedData, which: Sequence[int]) -> Iterator[list[int]]:
    """Group partitions so that a few thousand rows, fewer of wide ones, are gathered at once."""
    block: list[int] = []
    rows = 0
    enough = min(_BLOCK_ROWS, _BLOCK_CELLS // max(1, n_features(data.X)))
    sizes = data.sizes
    for index in which:
        block.append(int(index))
        rows += int(sizes[index])
        if rows >= enough:
            yield block
            block, rows = [], 0
    if block:
        yield block


# From the rows of partitions to members, many at once; what one raises stands in its place.


class MemberFitter(ABC):
    """Fits members on the rows of their partitions, given how one member is fitted."""

    _takes_missing: ClassVar[bool] = False

    @abstractmethod
    def _fit_rows(self, member: MemberRows, settings: dict[str, Any]) -> MemberParts:
        """Fit one member on prepared rows of two or more classes."""

    def _prepare(self, X: NDArray[np.float64], settings: dict[str, Any]) -> Any:
        """Return what `_fit_rows` needs of each row: a function of that row, cut with slices."""
        return X

    def _fit_block(
        self, data: PartitionedData, settings: dict[str, Any], block: Sequence[int]
    ) -> list[MemberParts]:
        """Fit the members of a few partitions; those that cannot be fitted abstain."""
        try:
            return self._fit_gathered(data, settings, block)
        except InvalidRowsError as error:
            if len(block) == 1:
                return [_abstaining(error)]
            # A row that is no row of numbers is the matter of its own member.
            return [self._fit_block(data, settings, [index])[0] for index in block]

    def _fit_gathered(
        self, data: PartitionedData, settings: dict[str, Any], block: Sequence[int]
    ) -> list[MemberParts]:
        numbers = [data.rows(index) for index in block]
        rows = np.concatenate(numbers)
        weight = None if data.sample_weight is None else data.sample_weight[rows]
        fitted = self._fit_partitions(
            _gathered(data.X, numbers),
            data.y[rows],
            weight,
            np.repeat(np.arange(len(block)), [len(some) for some in numbers]),
            len(block),
            settings,
        )
        return [_abstaining(one) if isinstance(one, Exception) else one for one in fitted]

    def _fit_partitions(
        self,
        samples: NDArray[Any],
        y: NDArray[np.int64],
        weight: NDArray[np.float64] | None,
        owner: NDArray[np.intp],
        n_members: int,
        settings: dict[str, Any],
    ) -> list[MemberParts | Exception]:
        """Fit member ``owner[j]`` on its rows j; what a member raises stands in its place.

        What is done for all rows at once is done row by row: checks, sorting, rounding.
        """
        X = np.array(samples, dtype=np.float64, order="C") + 0.0
        if self._takes_missing:
            X[np.isnan(X)] = np.nan  # one NaN
        weights = np.ones(len(y)) if weight is None else np.array(weight, dtype=np.float64)
        failed = problems(X, weights, owner, allow_missing=self._takes_missing)
        order = canonical_order(X, y, weights, owner)
        weightless = set(np.unique(owner[weights == 0]).tolist())
        order = order[(weights[order] > 0) & ~np.isin(owner[order], list(failed))]
        X, y, weights, owner = X[order], y[order], weights[order], owner[order]
        ends = np.cumsum(np.bincount(owner, minlength=n_members)).tolist()
        with np.errstate(all="ignore"):
            prepared = self._prepared_or_none(X, settings)
            results: dict[int, MemberParts | Exception] = dict(failed)
            alike: dict[tuple[int, int], dict[int, MemberRows]] = {}
            for member, (start, stop) in enumerate(pairwise([0, *ends])):
                if member in failed:
                    continue
                here = slice(start, stop)
                if start == stop and member in weightless:
                    results[member] = InvalidInputError("all weights of the partition are zero")
                    continue
                present = np.bincount(y[here]).nonzero()[0]
                if len(present) < 2:
                    results[member] = MemberParts(present.astype(np.int16))
                    continue
                try:
                    rows = self._prepare(X[here], settings) if prepared is None else prepared[here]
                except InvalidRowsError as error:
                    results[member] = error
                    continue
                part = MemberRows(rows, y[here], weights[here], present)
                alike.setdefault((stop - start, len(present)), {})[member] = part
            for group in alike.values():
                fitted = self._fit_alike(list(group.values()), settings)
                results.update(zip(group, fitted, strict=True))
        return [results[member] for member in range(n_members)]

    def _prepared_or_none(self, X: NDArray[np.float64], settings: dict[str, Any]) -> Any:
        """Prepare all rows at once, or None if one of them cannot be: then member by member."""
        try:
            return self._prepare(X, settings)
        except InvalidRowsError:
            return None

    def _fit_alike(
        self, members: Sequence[MemberRows], settings: dict[str, Any]
    ) -> list[MemberParts | Exception]:
        """Fit members with equally many rows and classes; what one raises stands in its place."""
        fitted: list[MemberParts | Exception] = []
        for member in members:
            try:
                fitted.append(self._fit_rows(member, settings))
            except Exception as error:
                if is_machine_error(error):
                    raise
                # One partition the learner cannot take must not stop the others.
                fitted.append(error)
        return fitted


def _gathered(X: Any, numbers: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
    """Return the rows of several partitions as numbers.

    Numbers are gathered together. What else a container holds is read partition by partition: what
    a column is must not be decided by the rows of others.
    """
    if type(X) is np.ndarray and X.dtype.kind in "biuf":
        return sample_matrix(take_canonical(X, np.concatenate(numbers)))
    parts = [some for some in numbers if len(some)] or [np.concatenate(numbers)]
    return np.concatenate([sample_matrix(take_canonical(X, some)) for some in parts])


def _abstaining(error: Exception) -> MemberParts:
    reason = f"{type(error).__name__}: {error}"
    return MemberParts(np.empty(0, dtype=np.int16), failure=reason)


# Ridge systems of one member: solved on its own matrix, in its own shape, on one thread.

OVERFLOW = (
    "values are so large that products of them overflow. Scale the features, or bound them by a "
    "schema"
)
"""What a member says that abstains because of one huge cell."""


def positive_solve(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``matrix^-1 right`` for a symmetric positive definite matrix (Cholesky)."""
    _, solution, info = dposv(matrix, right, lower=1)
    if info != 0 or not np.isfinite(solution).all():
        if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
            raise FloatingPointError(OVERFLOW)
        raise np.linalg.LinAlgError("the ridge system is not positive definite")
    found: NDArray[np.float64] = solution
    return found


def ridge_weights(
    rows: NDArray[np.float64], targets: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Return the weights (d, p) that minimise ``|rows w - targets|^2 + alpha |w|^2``.

    Of the two equivalent systems, the one with fewer unknowns is solved.
    """
    n, d = rows.shape
    if n <= d:
        gram = rows @ rows.T
        gram[np.diag_indices(n)] += alpha
        weights: NDArray[np.float64] = rows.T @ positive_solve(gram, targets)
        return weights
    scatter = rows.T @ rows
    scatter[np.diag_indices(d)] += alpha
    return positive_solve(scatter, rows.T @ targets)


def best_alpha(
    gram: NDArray[np.float64],
    targets: NDArray[np.float64],
    alphas: Sequence[float],
    leverage: NDArray[np.float64] | float = 0.0,
) -> float:
    """Return the ridge with the smallest squared leave-one-out error.

    With H the matrix that maps targets to fitted values, the error at a row left out is its
    residual divided by ``1 - H_jj``, so no second fit is needed.

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        Inner products of the (centred, weighted) rows.
    targets : ndarray of shape (m, p)
        What they should map to, centred and weighted in the same way.
    alphas : sequence of float
        Candidates; of equally good ones the first wins.
    leverage : ndarray of shape (m,) or float
        What an unpenalised constant adds to the diagonal of H.
    """
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    turned = vectors.T @ targets
    errors = []
    for alpha in alphas:
        shrink = values / (values + alpha)
        residual = targets - vectors @ (shrink[:, np.newaxis] * turned)
        free = 1.0 - leverage - (vectors * vectors) @ shrink
        # A row that fits itself entirely says nothing about rows left out.
        free = np.maximum(free, 1e-10)
        errors.append(float(np.square(residual / free[:, np.newaxis]).sum()))
    return float(alphas[int(np.argmin(errors))])
