"""`TailLearner`: members that share a frozen first part, behind the scikit-learn contract."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from poisonproof.engines.torch.learner import TorchLearner
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.state import MemberState
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.on_frozen_ensemble import OnFrozenEnsemble
from poisonproof.pretraining.on_frozen_learner import OnFrozenLearner
from poisonproof.pretraining.tail_ensemble import TailEnsemble
from poisonproof.pretraining.tail_network import third_block
from poisonproof.pretraining.tail_specification import TailSpec
from poisonproof.pretraining.tail_training import check_sizes, train_stack

__all__ = ["TailLearner"]


class TailLearner(OnFrozenLearner[TailSpec, TailEnsemble]):
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

    ensemble_type: ClassVar[type[OnFrozenEnsemble]] = TailEnsemble

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

    def _train(
        self, spec: TailSpec, group: list[MemberRows], seed: int, device: torch.device
    ) -> list[MemberState]:
        check_sizes(spec, group)
        return train_stack(spec, self.features, group, seed, device)
