"""Base classes of members on a frozen first part: spec, ensemble, learner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from poisonproof.exceptions import InvalidRowsError
from poisonproof.members.member import BatchedLearner, Spec
from poisonproof.networks.batches import (
    MemberState,
    MemberTensors,
    failed,
    input_shape,
    partition_rows,
)
from poisonproof.networks.device import deterministic, fingerprint, require_device
from poisonproof.networks.ensemble import TorchEnsemble
from poisonproof.networks.pretraining.frozen import FrozenNetwork
from poisonproof.networks.specification import NetworkSpec
from poisonproof.partition.partitioned import Partition, PartitionedData
from poisonproof.progress import Progress


@dataclass(frozen=True)
class OnFrozenSpec(Spec, ABC):
    """Everything a member's bits depend on, its partition and the seed apart.

    Attributes
    ----------
    schedule : NetworkSpec
        Input, epochs, optimiser, augmentation, precision, width of a stack.
    features_sha256 : str
        Digest of the frozen part.
    """

    network: ClassVar[str]
    """Name of the part that stands on the frozen one."""

    schedule: NetworkSpec
    features_sha256: str

    @property
    def execution(self) -> str:
        """Way of training: many members per launch."""
        return "stacked"

    @property
    def stack_width(self) -> int:
        """Members per launch."""
        return self.schedule.stack_width

    @property
    def device(self) -> str:
        """Device that trains the members."""
        return self.schedule.device

    @property
    def threads(self) -> int:
        """Threads inside one CPU operation."""
        return self.schedule.threads

    @property
    def n_classes(self) -> int:
        """Size of the declared label set."""
        return self.schedule.n_classes

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values."""
        return {
            **self.schedule.to_json(),
            "network": self.network,
            "execution": self.execution,
            "features_sha256": self.features_sha256,
        }


# The fitted members that share a frozen first part.


class OnFrozenEnsemble(TorchEnsemble):
    """Members of one specification on one frozen part, in the order of their partitions.

    Parameters
    ----------
    spec : OnFrozenSpec
        How they were trained, the frozen part included; it also decides how they vote.
    frozen : FrozenNetwork
        What they share.
    members : sequence of MemberState
        One per partition.
    """

    spec: OnFrozenSpec

    def __init__(
        self, spec: OnFrozenSpec, frozen: FrozenNetwork, members: Sequence[MemberState]
    ) -> None:
        super().__init__(spec, members)
        self.frozen = frozen

    @property
    def schedule(self) -> NetworkSpec:
        """Shape and scale of the samples, and the label set."""
        return self.spec.schedule

    def _features(self, samples: NDArray[np.float32]) -> Tensor:
        """Return what the frozen part makes of samples, on the device."""
        return self.frozen.rows(torch.from_numpy(samples).to(require_device(self.schedule)))

    def _with(self, members: Sequence[MemberState]) -> Self:
        return type(self)(self.spec, self.frozen, members)


# What all learners on a frozen first part have in common: stacks behind one contract.

OwnSpec = TypeVar("OwnSpec", bound=OnFrozenSpec)
Fitted = TypeVar("Fitted", bound=OnFrozenEnsemble)


class OnFrozenLearner(ClassifierMixin, BaseEstimator, BatchedLearner, Generic[OwnSpec, Fitted]):
    """Members that share a frozen first part, many at once."""

    features: FrozenNetwork
    ensemble_type: ClassVar[type[OnFrozenEnsemble]]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of a sample as an image, channels first."""
        return self.features.spec.input_shape

    @abstractmethod
    def resolve(self, shape: tuple[int, ...], n_classes: int) -> OwnSpec:
        """Return the full specification for samples of one shape and a label set's size."""

    @abstractmethod
    def _train(
        self, spec: OwnSpec, group: list[MemberTensors], seed: int, device: torch.device
    ) -> list[MemberState]:
        """Train at most `stack_width` members."""

    def _rows(self, partition: Partition, spec: OwnSpec) -> MemberTensors:
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
        with deterministic(spec.schedule):
            waiting = self._waiting(spec, data, which, done)
            while group := list(islice(waiting, spec.stack_width)):
                for state in self._train(spec, group, seed, device):
                    done[state.index] = state
                if progress is not None:
                    progress.advance(len(group))
        return self.ensemble_type(spec, self.features, [done[index] for index in which])  # type: ignore[return-value]

    def _waiting(
        self,
        spec: OwnSpec,
        data: PartitionedData,
        which: Sequence[int],
        done: dict[int, MemberState],
    ) -> Iterator[MemberTensors]:
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
