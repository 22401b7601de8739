"""`HeadLearner`: linear members on frozen features, trained on views of their images."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from poisonproof.engines.torch.learner import TorchLearner
from poisonproof.engines.torch.perceptron import perceptron_gradients
from poisonproof.engines.torch.rows import MemberRows, dummy_rows, partition_rows
from poisonproof.engines.torch.stacked import train_stack
from poisonproof.engines.torch.state import MemberState
from poisonproof.partition.partitioned import Partition
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.head_ensemble import HeadEnsemble
from poisonproof.pretraining.head_specification import HeadSpec
from poisonproof.pretraining.on_frozen_ensemble import OnFrozenEnsemble
from poisonproof.pretraining.on_frozen_learner import OnFrozenLearner
from poisonproof.pretraining.transformer import as_pixels
from poisonproof.pretraining.view_lanes import ViewLanes
from poisonproof.pretraining.view_table import ViewTable, vector_length, whole_numbers

__all__ = ["HeadLearner"]


class HeadLearner(OnFrozenLearner[HeadSpec, HeadEnsemble]):
    """Linear layers on SimCLR's frozen features, trained on random views, many at once.

    In every epoch a member sees one view of each of its images: a random frame, mirrored where
    the features were learned so. Every image has `views` of them, drawn once from its pixels
    alone and mapped once; members vote on images as they are.

    Use it as ``SSDPAClassifier(HeadLearner(features), n_partitions=250)``.

    Parameters
    ----------
    features : FrozenNetwork
        Learned by SimCLR, from samples alone. It keeps the views that were mapped, for other
        learners that ask for them.
    views : int
        Views of every image; their vectors are rounded to float16.
    epochs, batch_size, learning_rate, momentum, nesterov, weight_decay, milestones, gamma
        Training; by default as for linear members of the paper's SS-DPA.
    seed_rule : {"partition", "shared"}
        Whether members draw from streams of their own.
    stack_width : int
        Members per launch.
    tile_rows : int
        Rows of a member's batch per launch.
    vote_rows : int
        Samples per launch when voting.
    view_seed : int
        Of the views, whatever the seed of the ensemble.

    Guarantee
    ---------
    A member is a function of its partition, the label set, the seed and the features, given the
    specification and the machine. Labels of other partitions do not reach it.

    Assumes
    -------
    Samples are trusted: the features have seen them all.
    """

    ensemble_type: ClassVar[type[OnFrozenEnsemble]] = HeadEnsemble

    def __init__(
        self,
        features: FrozenNetwork,
        *,
        views: int = 32,
        epochs: int = 100,
        batch_size: int = 512,
        learning_rate: float = 1.0,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        milestones: tuple[int, ...] = (60, 75, 90),
        gamma: float = 0.2,
        seed_rule: str = "partition",
        stack_width: int = 50,
        tile_rows: int = 64,
        vote_rows: int = 128,
        view_seed: int = 0,
    ) -> None:
        self.features = features
        self.views = views
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self.milestones = milestones
        self.gamma = gamma
        self.seed_rule = seed_rule
        self.stack_width = stack_width
        self.tile_rows = tile_rows
        self.vote_rows = vote_rows
        self.view_seed = view_seed

    def resolve(self, shape: tuple[int, ...], n_classes: int) -> HeadSpec:
        """Return the full specification for samples of one shape and a label set's size."""
        params = self.get_params(deep=False)
        views, seed = whole_numbers(params.pop("views"), params.pop("view_seed"))
        law = params.pop("features").spec
        deep = TorchLearner(
            "linear", **params, normalize="none", device=law.device, threads=law.threads
        )
        return HeadSpec(
            deep.resolve(shape, n_classes),
            self.features.digest(),
            smallest_view=law.smallest_view,
            flip=law.flip,
            vector_length=vector_length(self.features),
            views=views,
            view_seed=seed,
        )

    def _rows(self, partition: Partition, spec: HeadSpec) -> MemberRows:
        """Return the rows of one partition, images as whole pixels."""
        rows = partition_rows(partition, spec.schedule)
        pixels = torch.from_numpy(as_pixels(rows.X.numpy(), self.image_shape))
        return replace(dummy_rows(spec.linear), index=rows.index, X=pixels, y=rows.y)

    def _train(
        self, spec: HeadSpec, group: list[MemberRows], seed: int, device: torch.device
    ) -> list[MemberState]:
        images = np.concatenate([rows.X.numpy() for rows in group])
        table = self.features.kept(ViewTable, spec.views, spec.view_seed)
        own = np.split(table.vectors(images), np.cumsum([len(rows) for rows in group])[:-1])
        seen = [
            replace(rows, X=torch.from_numpy(views)) for rows, views in zip(group, own, strict=True)
        ]
        return train_stack(spec.linear, seen, seed, device, perceptron_gradients, layout=ViewLanes)
