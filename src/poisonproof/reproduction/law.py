"""The learner of a recipe, and the law its members are made under."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition import PartitionedData
from poisonproof.reproduction.recipe import Recipe
from poisonproof.reproduction.row_data import RowData

if TYPE_CHECKING:
    from poisonproof.engines.torch import TorchLearner
    from poisonproof.learners.torch import TorchSpec

__all__ = ["law_of", "make_learner", "resolve"]


def make_learner(recipe: Recipe, device: str) -> TorchLearner:
    """Return the learner of a recipe for one device."""
    from poisonproof.engines.torch import TorchLearner

    options = dict(recipe.learner)
    kind = options.pop("kind", None)
    if kind != "torch" or recipe.method != "dpa":
        raise InvalidInputError(
            f"{recipe.id}: rows of method 'dpa' with learners of kind 'torch' can be made, got "
            f"{recipe.method!r} with {kind!r}."
        )
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
    try:
        return TorchLearner(**options, device=device)
    except TypeError as error:
        raise InvalidInputError(f"{recipe.id}: the learner is wrong: {error}.") from error


def resolve(learner: TorchLearner, data: RowData) -> TorchSpec:
    """Return the full specification of a learner for some data."""
    from poisonproof.engines.torch.rows import input_shape

    return learner.resolve(input_shape(data.x_train, learner.image_shape), data.n_classes)


def law_of(
    recipe: Recipe, data: RowData, parts: PartitionedData, spec: TorchSpec
) -> dict[str, Any]:
    """Return everything that the bits of a row's members depend on, as JSON values."""
    from poisonproof.engines.torch.device import fingerprint, require_device

    require_device(spec)  # the fingerprint of a machine without it would mean nothing
    listed = "\n".join(parts.partition_digests())
    return {
        "row": recipe.id,
        "data": {"name": data.name, "sha256": data.digest},
        "partitioner": recipe.partitioner,
        "n_partitions": recipe.n_partitions,
        "partitions_sha256": hashlib.sha256(listed.encode()).hexdigest(),
        "seed": recipe.seed,
        "specification": spec.to_json(),
        "specification_sha256": spec.digest(),
        "machine": fingerprint(spec),
    }
