"""What a worker does: train the members of the partitions it was sent, and encode them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from poisonproof.engines.portions import train_portions
from poisonproof.estimators.description import Recipe
from poisonproof.exceptions import ClusterError
from poisonproof.learners.base import Ensemble
from poisonproof.partition.shards import Shard, gathered
from poisonproof.progress import Silent
from poisonproof.store import Item, encode_members, fingerprint, shared_of

__all__ = ["Trained", "describe_worker", "surroundings_of", "train_block"]

_one_at_a_time = threading.Lock()
"""Members may draw from random streams of the process, and the number of BLAS threads is its own;
so a worker process with several threads uses one of them."""


@dataclass(frozen=True)
class Trained:
    """Members as a store keeps them, what they share, how long they took, and where."""

    items: Sequence[Item]
    shared: tuple[str, dict[str, Any], dict[str, NDArray[Any]]]
    seconds: float
    surroundings: dict[str, Any]


def describe_worker() -> dict[str, Any]:
    """Return the software and the processor of this worker."""
    return fingerprint()


def train_block(recipe: Recipe, shards: Mapping[int, Shard], digests: Mapping[int, str]) -> Trained:
    """Train the members of some partitions.

    Parameters
    ----------
    recipe : Recipe
        What members are.
    shards : mapping of int to Shard
        The rows of each partition.
    digests : mapping of int to str
        The digest that each partition must have.
    """
    start = time.monotonic()
    with _one_at_a_time:
        if not recipe.mapped:
            _check(shards, digests)
        indices: list[int] = []
        parts: list[Ensemble] = []

        def _collect(which: Sequence[int], members: Ensemble) -> None:
            indices.extend(which)
            parts.append(members)

        with recipe.settings():
            data = gathered(shards, recipe.n_partitions)
            task = recipe.classifier._task(data, sorted(shards))
            train_portions(*task, n_jobs=1, progress=Silent(), finished=_collect)
        items: list[Item] = []
        for members in parts:
            which = indices[len(items) : len(items) + len(members)]
            items += encode_members(members, which, digests)
        seconds = time.monotonic() - start
        return Trained(items, shared_of(parts[0]), seconds, surroundings_of(recipe.classifier))


def surroundings_of(classifier: Any) -> dict[str, Any]:
    """Return what of this process a learner names: versions of its own packages, its processor."""
    named = classifier._learner().specification()
    return {key: named[key] for key in ("machine", "packages") if key in named}


def _check(shards: Mapping[int, Shard], digests: Mapping[int, str]) -> None:
    """Raise if the rows are not those that were to be sent."""
    for index, shard in shards.items():
        if not shard.is_intact() or shard.digest() != digests[index]:
            raise ClusterError(
                f"The rows of partition {index} that reached a worker are not those of the "
                "training set. If the arrays given to `fit_into` were changed meanwhile, fit again."
            )
