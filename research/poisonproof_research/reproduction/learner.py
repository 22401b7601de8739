"""The learner of a recipe, and everything that its members' bits depend on."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition.partitioned import PartitionedData
from poisonproof_research.reproduction.recipe import Recipe
from poisonproof_research.reproduction.row_data import RowData

if TYPE_CHECKING:
    from poisonproof.networks.learner import TorchLearner
    from poisonproof.networks.pretraining.frozen import FrozenNetwork
    from poisonproof.networks.specification import NetworkSpec
    from poisonproof_research.networks.heads import HeadLearner
    from poisonproof_research.networks.on_frozen import OnFrozenSpec
    from poisonproof_research.networks.tails import TailLearner

    Learner = TorchLearner | HeadLearner | TailLearner
    Spec = NetworkSpec | OnFrozenSpec

_KINDS = {"dpa": ("torch",), "ss-dpa": ("head", "tail", "torch")}
"""Methods, and the kinds of learners that make their rows."""


def make_learner(recipe: Recipe, device: str, frozen: FrozenNetwork | None = None) -> Learner:
    """Return the learner of a recipe for one device, on `frozen` features if it shares some."""
    options = dict(recipe.learner)
    kind = options.pop("kind", None)
    if kind not in _KINDS.get(recipe.method, ()):
        raise InvalidInputError(
            f"{recipe.id}: rows of method 'dpa' with learners of kind 'torch' can be made, and "
            f"'ss-dpa' with 'head', 'tail' or 'torch'; got {recipe.method!r} with {kind!r}."
        )
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
    try:
        if kind == "torch":
            from poisonproof.networks.learner import TorchLearner

            return TorchLearner(**options, device=device)
        from poisonproof_research.networks.heads import HeadLearner
        from poisonproof_research.networks.tails import TailLearner

        assert frozen is not None
        options.pop("network")  # named for whoever compares results with recipes
        if kind == "head":
            return HeadLearner(frozen, **options)
        return TailLearner(frozen, **options, lane_rows=_lane_rows(recipe))
    except TypeError as error:
        raise InvalidInputError(f"{recipe.id}: the learner is wrong: {error}.") from error


def _lane_rows(recipe: Recipe) -> int:
    """Return how many rows a member has in a launch: the published size, not the data's."""
    largest = recipe.partition_sizes[1]
    return min(int(recipe.learner["batch_size"]), -(-largest // 8) * 8)


class FeatureFolder:
    """A folder of learned features, one folder each.

    Those last read are kept, with the views of images that were mapped by them: the next row on
    the same features finds both.

    Parameters
    ----------
    path : Path
        The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: tuple[tuple[str, str], FrozenNetwork] | None = None

    def load(self, name: str, device: str) -> FrozenNetwork:
        """Return the features ``path/name`` for one device."""
        from poisonproof.networks.pretraining.frozen import load_features

        if self._last is None or self._last[0] != (name, device):
            self._last = None  # not two at once
            self._last = (name, device), load_features(self.path / name, device=device)
        return self._last[1]


def features_of(
    recipe: Recipe, data: RowData, source: FeatureFolder | Path | FrozenNetwork | None, device: str
) -> FrozenNetwork | None:
    """Return the features that a row's members share, learned from the row's own samples.

    They are those of that name if `source` is a folder, else `source` itself.
    """
    if not recipe.features:
        return None
    from poisonproof.networks.pretraining.tasks import samples_digest, sorted_images

    if source is None:
        raise InvalidInputError(
            f"{recipe.id} needs the features {recipe.features}: name their folder with --features."
        )
    if isinstance(source, Path):
        source = FeatureFolder(source)
    if isinstance(source, FeatureFolder):
        name = str(source.path / recipe.features)
        frozen = source.load(recipe.features, device)
    else:
        name, frozen = recipe.features, source
    own = samples_digest(sorted_images(data.x_train, frozen.spec.input_shape))
    if frozen.law.get("samples_sha256") != own:
        raise InvalidInputError(
            f"The features {name} were learned from other samples than those of "
            f"{recipe.data.name}. Train them again: python -m poisonproof_research features train "
            f"{recipe.features}."
        )
    return frozen


def resolve(learner: Learner, samples: NDArray[Any], n_classes: int) -> Spec:
    """Return the full specification of a learner for some samples."""
    from poisonproof.networks.batches import input_shape

    return learner.resolve(input_shape(samples, learner.image_shape), n_classes)


def member_samples(
    recipe: Recipe, data: RowData, parts: PartitionedData, frozen: FrozenNetwork | None
) -> tuple[PartitionedData, NDArray[Any]]:
    """Return what members are trained and vote on: images, or features where those are frozen.

    Members of kind ``"tail"`` and ``"head"`` take images, because they change them before the
    frozen part.
    """
    if frozen is None or recipe.learner["kind"] in ("head", "tail"):
        return parts, data.x_test
    return replace(parts, X=frozen.transform(data.x_train)), frozen.transform(data.x_test)


def origin_of(
    recipe: Recipe,
    data: RowData,
    parts: PartitionedData,
    spec: Spec,
    frozen: FrozenNetwork | None = None,
) -> dict[str, Any]:
    """Return everything that the bits of a row's members depend on, as JSON values."""
    from poisonproof.networks.device import fingerprint, require_device
    from poisonproof.networks.specification import NetworkSpec

    machine = spec if isinstance(spec, NetworkSpec) else spec.schedule
    require_device(machine)  # the fingerprint of a machine without it would mean nothing
    listed = "\n".join(parts.partition_digests())
    origin = {
        "row": recipe.id,
        "data": {"name": data.name, "sha256": data.digest},
        "partitioner": recipe.partitioner,
        "n_partitions": recipe.n_partitions,
        "partitions_sha256": hashlib.sha256(listed.encode()).hexdigest(),
        "seed": recipe.seed,
        "specification": spec.to_json(),
        "specification_sha256": spec.digest(),
        "machine": fingerprint(machine),
    }
    if recipe.degree > 1:
        origin["degree"] = recipe.degree
    if frozen is not None:
        origin["threat"] = "label_flip"
        origin["features"] = {
            "name": recipe.features,
            "sha256": frozen.digest(),
            "epochs": len(frozen.history),
            **frozen.law,
        }
    return origin
