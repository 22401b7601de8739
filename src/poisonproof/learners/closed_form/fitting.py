"""From the rows of partitions to members, many at once; what one raises stands in its place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.learners.closed_form.lifts import sample_matrix
from poisonproof.learners.closed_form.parts import MemberParts
from poisonproof.learners.closed_form.rows import MemberRows, canonical_order, problems
from poisonproof.learners.machine_errors import is_machine_error
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.partition.values import take_canonical

__all__ = ["MemberFitter"]


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
