"""Maps in front of the members: what they may see together, and which ones are refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from poisonproof.exceptions import GuaranteeError, InvalidRowsError
from poisonproof.features.base import FrozenTransformer, is_own_map, learns_nothing
from poisonproof.members.member import is_machine_error
from poisonproof.members.streams import give_one_worker, in_own_streams, restored_streams
from poisonproof.partition.containers import as_objects, is_sparse, n_rows
from poisonproof.partition.partitioned import Partition, PartitionedData
from poisonproof.partition.values import take_canonical

_TOLERANCE = 1e-3
"""Far above what another order of additions does to a float32, far below what mixing does."""


def refuse_mixing(features: Any, transform: Callable[[Any], Any], X: Any, mapped: Any) -> None:
    """Raise if the first, middle or last row alone is mapped to something else than among others.

    Three rows do not prove that a map never mixes rows, but they find scalers, ranks and
    normalisation over what is passed. `mapped` is what `transform` made of `X`; maps of this
    library need not be tried.
    """
    count = 0 if is_own_map(features) else n_rows(X)
    for row in sorted({0, count // 2, count - 1}) if count > 1 else ():
        rows = np.array([row])
        alone = _values(transform(take_canonical(X, rows)))
        among = _values(take_canonical(mapped, rows))
        if not _alike(alone, among):
            raise GuaranteeError(
                f"features maps row {row} differently alone than among the {count} rows that are "
                "mapped together, so a prediction would depend on what else is predicted. A map "
                "must treat every row by itself; what it learns, it must learn in fit."
            )


def _values(samples: Any) -> NDArray[Any]:
    return np.asarray(samples.toarray() if is_sparse(samples) else samples)


def _alike(first: NDArray[Any], second: NDArray[Any]) -> bool:
    if first.shape != second.shape:
        return False
    if first.dtype.kind not in "biuf" or second.dtype.kind not in "biuf":
        return bool(np.array_equal(first, second))
    if not first.size:
        return True
    finite = np.abs(second[np.isfinite(second)].astype(np.float64))
    scale = float(finite.max(initial=0.0))
    return bool(np.allclose(first, second, rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True))


def fresh_map(features: Any) -> Any:
    """Return an unfitted copy of a map, with one worker unless the map is the library's own."""
    copy = clone(features)
    if not is_own_map(copy):  # the library's own work row by row, on any number of threads
        give_one_worker(copy)
    return copy


@dataclass(frozen=True)
class MappedData(PartitionedData):
    """A training set in partitions, with samples as a user's map has made them.

    `X` holds all of them. `parts` holds what the map made of each partition, or what it raised.
    """

    parts: Mapping[int, Any] = field(default_factory=dict)

    def __getitem__(self, index: int) -> Partition:
        """Return partition `index`, or raise what the map raised on it."""
        part = self.parts.get(index)
        if part is None:
            return super().__getitem__(index)
        if isinstance(part, Exception):
            raise InvalidRowsError(f"the map of samples failed: {part}") from part
        rows = self.rows(index)
        return Partition(index, part, self.y[rows], self.weights_of(rows))


def map_partitions(features: Any, data: PartitionedData, seed: int) -> PartitionedData:
    """Apply a map about which nothing is known.

    It sees the rows of one partition at a time, in canonical values and order, so that other rows
    cannot reach the result by their values, container or dtype. An error silences that partition's
    member only. Random numbers come from the partition's own streams. Raises `GuaranteeError` if it
    returns different kinds of samples, or mixes the rows of every partition.
    """
    parts: dict[int, Any] = {}
    for index in np.flatnonzero(data.sizes).tolist():
        partition = None
        try:
            partition = data[index]
            parts[index] = _mapped(features, partition, seed)
        except Exception as error:
            unread = isinstance(error, OSError) and partition is None
            if unread or is_machine_error(error):
                raise
            parts[index] = error
    if not parts:
        return data
    back = np.empty_like(data.order)
    back[data.order] = np.arange(len(data.order))
    stacked = _joined(_filled(parts, data.sizes))
    return MappedData(
        X=stacked[back],
        y=data.y,
        order=data.order,
        offsets=data.offsets,
        sample_weight=data.sample_weight,
        digests=data.digests,
        parts=parts,
    )


def map_alone(transform: Callable[[Any], Any], X: Any) -> Any:
    """Map canonical samples one by one, so that what is mapped together cannot meet."""
    with restored_streams():
        return _joined(
            [
                take_canonical(transform(take_canonical(X, np.array([row]))))
                for row in range(n_rows(X))
            ]
        )


def _mapped(features: Any, partition: Partition, seed: int) -> Any:
    def transform(X: Any) -> Any:
        mapped = in_own_streams(seed, partition.index, partial(features.transform, X))
        return take_canonical(mapped)

    samples = transform(partition.X)
    if n_rows(samples) != len(partition):
        raise InvalidRowsError(f"{n_rows(samples)} samples were made of {len(partition)}")
    if not isinstance(features, FrozenTransformer):  # those are tried where they predict
        refuse_mixing(features, transform, partition.X, samples)
    return samples


def _filled(parts: Mapping[int, Any], sizes: NDArray[np.intp]) -> list[Any]:
    """Return the parts in order, NaN for what failed; if all failed, the first reason is raised."""
    made = [part for part in parts.values() if not isinstance(part, Exception)]
    if not made:
        raise next(iter(parts.values()))
    missing: Any = np.full((1, *np.shape(made[0])[1:]), np.nan)
    kind = sparse.csr_array if is_sparse(made[0]) else np.asarray
    return [
        kind(np.repeat(missing, sizes[index], axis=0)) if isinstance(part, Exception) else part
        for index, part in parts.items()
    ]


def _joined(parts: Sequence[Any]) -> Any:
    """Join what a map made of each partition, so that every partition keeps its own values."""
    shapes = {np.shape(part)[1:] for part in parts}
    if len(shapes) > 1 or len({is_sparse(part) for part in parts}) > 1:
        raise GuaranteeError(
            "features returns samples of different shapes, or sparse ones for some partitions and "
            "dense ones for others, so no test row could suit all members. A map must return one "
            f"kind of samples whatever the rows hold; it returned the shapes {sorted(shapes)}."
        )
    if is_sparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    if all(isinstance(part, np.ndarray) and part.dtype == np.float64 for part in parts):
        return np.concatenate(parts)
    return np.concatenate([as_objects(part) for part in parts])


_FRAMES = 100
"""Frames to search above a `fit` for its pipeline: searches, decorators, nested pipelines."""


def refuse_steps_in_front(classifier: Any) -> None:
    """Raise `GuaranteeError` if a pipeline that fits `classifier` has a step that mixes rows.

    A scaler fitted on the whole training set carries every row into every partition. A map that
    learns nothing still sees all rows in one container, where one float64 row makes it compute in
    float64 for all; only the maps of `poisonproof.features` do not depend on that.

    scikit-learn does not tell an estimator which pipeline it ends, so the callers are searched: a
    pipeline whose `fit` is running, and whose `_fit` is not, has come to its last step.
    """
    frame = sys._getframe(1)
    learning: set[int] = set()
    for _ in range(_FRAMES):
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline):
            if frame.f_code.co_name == "_fit":
                learning.add(id(owner))
            elif frame.f_code.co_name.startswith("fit") and id(owner) not in learning:
                _refuse_steps_of(owner, type(classifier).__name__)
        if frame.f_back is None:
            return
        frame = frame.f_back


def _refuse_steps_of(pipeline: Pipeline, classifier: str) -> None:
    for name, step in pipeline.steps[:-1]:
        if step in (None, "passthrough") or is_own_map(step):
            continue
        kind = type(step).__name__
        inside = f"Put the step inside the member: {classifier}(make_pipeline({kind}(), ...))"
        if learns_nothing(step, stateless=True):
            raise GuaranteeError(
                f"Pipeline step {name!r} ({kind}) maps all training rows together before "
                f"{classifier} partitions them: one row of another type changes what the others "
                f"become. {inside}, or give it to the ensemble, which shows it canonical values: "
                f"{classifier}(..., features={kind}())."
            )
        raise GuaranteeError(
            f"Pipeline step {name!r} ({kind}) learns from all training rows before "
            f"{classifier} partitions them, so one poisoned row could reach every member. "
            f"{inside}."
        )
