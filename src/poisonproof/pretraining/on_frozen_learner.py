"""What all learners on a frozen first part have in common: stacks behind one contract."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from poisonproof.engines.torch.device import deterministic, fingerprint, require_device
from poisonproof.engines.torch.rows import MemberRows, input_shape, partition_rows
from poisonproof.engines.torch.state import MemberState, failed
from poisonproof.exceptions import InvalidRowsError
from poisonproof.learners.base import BatchedLearner
from poisonproof.partition.partitioned import Partition, PartitionedData
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.on_frozen_ensemble import OnFrozenEnsemble
from poisonproof.pretraining.on_frozen_specification import OnFrozenSpec
from poisonproof.progress import Progress, reporting

__all__ = ["OnFrozenLearner"]

Spec = TypeVar("Spec", bound=OnFrozenSpec)
Fitted = TypeVar("Fitted", bound=OnFrozenEnsemble)


class OnFrozenLearner(ClassifierMixin, BaseEstimator, BatchedLearner, Generic[Spec, Fitted]):
    """Members that share a frozen first part, many at once."""

    features: FrozenNetwork
    ensemble_type: ClassVar[type[OnFrozenEnsemble]]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """How to read a sample as an image, channels first."""
        return self.features.spec.input_shape

    @abstractmethod
    def resolve(self, shape: tuple[int, ...], n_classes: int) -> Spec:
        """Return the full specification for samples of one shape and a label set's size."""

    @abstractmethod
    def _train(
        self, spec: Spec, group: list[MemberRows], seed: int, device: torch.device
    ) -> list[MemberState]:
        """Train at most `stack_width` members."""

    def _rows(self, partition: Partition, spec: Spec) -> MemberRows:
        """Return the rows of one partition; raise `InvalidRowsError` if they cannot be read."""
        return partition_rows(partition, spec.schedule)

    def specification(self) -> Mapping[str, Any]:
        """Return everything that can change a member's bits, the machine included."""
        spec = self.resolve(self.image_shape, 2)
        values = {key: v for key, v in spec.to_json().items() if key != "n_classes"}
        kind = self.ensemble_type.family
        return {
            "learner": kind,
            **values,
            "features": self.features.spec.to_json(),
            "machine": fingerprint(spec.schedule),
        }

    def fit_members(
        self,
        data: PartitionedData,
        which: Sequence[int],
        n_classes: int,
        seed: int,
        *,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> Fitted:
        """Train the members of the partitions `which`."""
        spec = self.resolve(input_shape(data.X, self.image_shape), n_classes)
        device = require_device(spec.schedule)
        done: dict[int, MemberState] = {}
        with (
            reporting(progress, len(which), "Training") as listener,
            deterministic(spec.schedule),
        ):
            waiting = self._waiting(spec, data, which, done)
            while group := list(islice(waiting, spec.stack_width)):
                for state in self._train(spec, group, seed, device):
                    done[state.index] = state
                listener.advance(len(group))
        return self.ensemble_type(spec, self.features, [done[index] for index in which])  # type: ignore[return-value]

    def _waiting(
        self, spec: Spec, data: PartitionedData, which: Sequence[int], done: dict[int, MemberState]
    ) -> Iterator[MemberRows]:
        """Yield the members to train; those without rows, or with none to read, are settled."""
        for index in dict.fromkeys(which):
            try:
                rows = self._rows(data[index], spec)
            except InvalidRowsError as error:  # this partition's own matter
                done[index] = failed(spec.schedule, index, error)
                continue
            if len(rows):
                yield rows
            else:
                done[index] = MemberState(index, {})
