"""`TailLearner`: members that share a frozen first part, behind the scikit-learn contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sklearn.base import BaseEstimator, ClassifierMixin

from poisonproof.engines.torch.device import deterministic, fingerprint, require_device
from poisonproof.engines.torch.learner import TorchLearner
from poisonproof.engines.torch.rows import MemberRows, input_shape, partition_rows
from poisonproof.engines.torch.state import MemberState, failed
from poisonproof.exceptions import InvalidRowsError
from poisonproof.learners.base import BatchedLearner
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.tail_ensemble import TailEnsemble
from poisonproof.pretraining.tail_network import third_block
from poisonproof.pretraining.tail_specification import TailSpec
from poisonproof.pretraining.tail_training import check_sizes, train_stack
from poisonproof.progress import Progress, Silent

__all__ = ["TailLearner"]


class TailLearner(ClassifierMixin, BaseEstimator, BatchedLearner):
    """The third block of Network in Network on the frozen first two, many members at once.

    Use it as ``SSDPAClassifier(TailLearner(features, ...), n_partitions=1200)``.

    Parameters
    ----------
    features : FrozenNetwork
        Learned by RotNet, from samples alone.
    epochs, batch_size, learning_rate, momentum, nesterov, weight_decay, milestones, gamma
        Training; by default as published for MNIST.
    augmentation : None, str, dict or Augmentation
        Changes of images before the frozen part.
    seed_rule : {"partition", "shared"}
        Whether members draw from streams of their own.
    stack_width, lane_rows : int
        Members per launch, and rows per member in it; None takes `batch_size`.
    vote_rows : int
        Samples per launch when voting.
    dtype : {None, "float32", "bfloat16"}
        None takes that of the features.
    first_weights : {"uniform", "normal"}
        Within +-1/sqrt(fan-in), or normal with variance 2/fan-out and no bias, as published;
        members with few rows do better with the first, whose last layer begins small.

    Guarantee
    ---------
    A member is a function of its partition, the label set, the seed and the features, given the
    specification and the machine. Labels of other partitions do not reach it.

    Assumes
    -------
    Samples are trusted: the features have seen them all.
    """

    def __init__(
        self,
        features: FrozenNetwork,
        *,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 0.1,
        momentum: float = 0.9,
        nesterov: bool = True,
        weight_decay: float = 5e-4,
        milestones: tuple[int, ...] = (36, 71, 86),
        gamma: float = 0.2,
        augmentation: Any = "crop",
        seed_rule: str = "partition",
        stack_width: int = 32,
        lane_rows: int | None = None,
        vote_rows: int = 128,
        dtype: str | None = None,
        first_weights: str = "uniform",
    ) -> None:
        self.features = features
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self.milestones = milestones
        self.gamma = gamma
        self.augmentation = augmentation
        self.seed_rule = seed_rule
        self.stack_width = stack_width
        self.lane_rows = lane_rows
        self.vote_rows = vote_rows
        self.dtype = dtype
        self.first_weights = first_weights

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """How to read a sample as an image, channels first."""
        return self.features.spec.input_shape

    def resolve(self, shape: tuple[int, ...], n_classes: int) -> TailSpec:
        """Return the full specification for samples of one shape and a label set's size."""
        params = self.get_params(deep=False)
        frozen, lane_rows = params.pop("features"), params.pop("lane_rows")
        first = params.pop("first_weights")
        params["dtype"] = params["dtype"] or frozen.spec.dtype
        deep = TorchLearner(
            third_block,
            **params,
            execution="vmap",
            normalize="none",
            device=frozen.spec.device,
            threads=frozen.spec.threads,
        )
        schedule = deep.resolve(shape, n_classes)
        return TailSpec(schedule, frozen.digest(), lane_rows or self.batch_size, first)

    def specification(self) -> Mapping[str, Any]:
        """Return everything that can change a member's bits, the machine included."""
        spec = self.resolve(self.image_shape, 2)
        values = {key: v for key, v in spec.to_json().items() if key != "n_classes"}
        return {"learner": "tail", **values, "machine": fingerprint(spec.schedule)}

    def fit_members(
        self,
        data: PartitionedData,
        which: Sequence[int],
        n_classes: int,
        seed: int,
        *,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> TailEnsemble:
        """Train the members of the partitions `which`."""
        spec = self.resolve(input_shape(data.X, self.image_shape), n_classes)
        device = require_device(spec.schedule)
        done: dict[int, MemberState] = {}
        listener = progress or Silent()
        listener.start(len(which), "Training")
        try:
            with deterministic(spec.schedule):
                waiting = _waiting(spec, data, which, done)
                while group := list(islice(waiting, spec.stack_width)):
                    check_sizes(spec, group)
                    for state in train_stack(spec, self.features, group, seed, device):
                        done[state.index] = state
                    listener.advance(len(group))
        finally:
            listener.stop()
        return TailEnsemble(spec, self.features, [done[index] for index in which])


def _waiting(
    spec: TailSpec, data: PartitionedData, which: Sequence[int], done: dict[int, MemberState]
) -> Iterator[MemberRows]:
    """Yield the members to train; those without rows, or with none to read, are settled here."""
    for index in dict.fromkeys(which):
        try:
            rows = partition_rows(data[index], spec.schedule)
        except InvalidRowsError as error:  # this partition's own matter
            done[index] = failed(spec.schedule, index, error)
            continue
        if len(rows):
            yield rows
        else:
            done[index] = MemberState(index, {})
