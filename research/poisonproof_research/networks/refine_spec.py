"""Everything that can change a bit of clusters refined without labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from poisonproof.exceptions import InvalidInputError
from poisonproof.members.member import Spec
from poisonproof.networks.pretraining.pretrain_spec import PRETRAINING, PretrainSpec

STAGES = ("agreement", "labels")
"""The stages that train the network, in their order."""


@dataclass(frozen=True)
class RefineSpec(Spec):
    """Settings of a refinement: with samples and first features they fix every bit.

    Attributes
    ----------
    n_clusters : int
        Number of clusters, K.
    n_neighbors : int
        Nearest images that shall share an image's cluster.
    graph_neighbors : int
        Neighbours joined in the graph whose spectral clusters are the first start.
    random_starts : int
        Further starts; of all, the one with the least loss is kept.
    head_epochs, head_batch, head_rate
        Adam on linear heads, features frozen.
    entropy_weight : float
        Weight of "all clusters are in use" against "neighbours agree". Large: equal sizes.
    agreement_epochs, agreement_batch
        First stage: the network learns that an image and a neighbour share a cluster.
    label_epochs, label_batch
        Second stage: images whose cluster is sure teach it to strong views of themselves.
    confidence : float
        Second stage: least probability of a sure cluster.
    label_entropy_weight : float
        Second stage: weight of "all clusters are in use".
    learning_rate, weight_decay : float
        Adam in both stages; the rate falls along a cosine in each.
    smallest_share : float
        A stage that leaves a cluster with less than this part of an equal share is discarded.
    seed : int
        Seed of all draws.

    Examples
    --------
    >>> spec = RefineSpec(10)
    >>> RefineSpec.from_json(spec.to_json()) == spec
    True
    """

    kind: ClassVar[str] = "refinement"

    n_clusters: int
    n_neighbors: int = 20
    graph_neighbors: int = 30
    random_starts: int = 9
    head_epochs: int = 50
    head_batch: int = 1024
    head_rate: float = 1e-3
    entropy_weight: float = 5.0
    agreement_epochs: int = 50
    agreement_batch: int = 256
    label_epochs: int = 200
    label_batch: int = 512
    confidence: float = 0.99
    label_entropy_weight: float = 1.0
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    smallest_share: float = 0.1
    seed: int = 0
    version: int = 1

    def __post_init__(self) -> None:
        problems = []
        if self.n_clusters < 2:
            problems.append(f"n_clusters must be at least 2, got {self.n_clusters!r}.")
        counts = ("n_neighbors", "graph_neighbors", "head_epochs", "head_batch")
        for name in (*counts, "agreement_epochs", "agreement_batch", "label_epochs", "label_batch"):
            if getattr(self, name) < 1:
                problems.append(f"{name} must be at least 1, got {getattr(self, name)!r}.")
        for name in ("head_rate", "learning_rate"):
            if not getattr(self, name) > 0:
                problems.append(f"{name} must be positive, got {getattr(self, name)!r}.")
        for name in ("random_starts", "entropy_weight", "label_entropy_weight", "weight_decay"):
            if not getattr(self, name) >= 0:
                problems.append(f"{name} must not be negative, got {getattr(self, name)!r}.")
        for name in ("confidence", "smallest_share"):
            if not 0 <= getattr(self, name) < 1:
                problems.append(f"{name} must be in [0, 1), got {getattr(self, name)!r}.")
        if problems:
            raise InvalidInputError("The refinement specification is wrong: " + " ".join(problems))

    def stage(self, network: PretrainSpec, name: str) -> PretrainSpec:
        """Return the spec of the loop for one stage, on the network that learned the features."""
        prefix = "label" if name == "labels" else name
        return replace(
            network,
            epochs=getattr(self, f"{prefix}_epochs"),
            batch_size=getattr(self, f"{prefix}_batch"),
            learning_rate=self.head_rate if name == "head" else self.learning_rate,
            momentum=0.9,
            nesterov=False,
            weight_decay=self.weight_decay,
            schedule="cosine",
            warmup_epochs=0,
            seed=self.seed,
        )


# Recipes of refinement; experiments/refined_clusters says what each number was taken from.

REFINEMENT: dict[str, dict[str, Any]] = {
    "clusters-cifar10": {"n_clusters": 10},
    # Signs are far from equally frequent, so equal sizes weigh less; images are larger.
    "clusters-gtsrb": {
        "n_clusters": 43,
        "entropy_weight": 2.0,
        "agreement_epochs": 30,
        "label_epochs": 80,
    },
}
"""Name to parameters."""


def refinement_recipe(name: str, **changes: Any) -> RefineSpec:
    """Return a recipe, with changes.

    Examples
    --------
    >>> refinement_recipe("clusters-cifar10").n_clusters
    10
    """
    if name not in REFINEMENT:
        raise InvalidInputError(f"There is no recipe {name!r}; known: {', '.join(REFINEMENT)}.")
    return RefineSpec(**{**REFINEMENT[name], **changes})


PUBLISHED: dict[str, dict[str, Any]] = {
    "rotnet-mnist": PRETRAINING["rotnet"],
    "simclr-cifar10": PRETRAINING["simclr"],
    "simclr-gtsrb": {
        **PRETRAINING["simclr"],
        "input_shape": (3, 48, 48),
        "batch_size": 256,
        "warmup_epochs": 0,
        "mean": (0.5, 0.5, 0.5),
        "std": (0.25, 0.25, 0.25),
        "flip": False,
    },
}
"""The published training of maps without labels, by method and dataset."""


def published(name: str, **changes: Any) -> PretrainSpec:
    """Return a published specification, with changes."""
    if name not in PUBLISHED:
        known = ", ".join(PUBLISHED)
        raise InvalidInputError(f"There is no published training {name!r}; known: {known}.")
    return PretrainSpec(**{**PUBLISHED[name], **changes})
