"""Linear members on a frozen network, trained on random views of their images: heads."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks.augmentation import Purpose, below, philox, uniform
from poisonproof.networks.batches import (
    Lanes,
    MemberState,
    MemberTensors,
    TrainingStep,
    dummy_rows,
    partition_rows,
)
from poisonproof.networks.device import deterministic, require_device
from poisonproof.networks.ensemble import Block, score_blocks
from poisonproof.networks.lanes import train_stack
from poisonproof.networks.learner import TorchLearner
from poisonproof.networks.pretraining.frozen import FrozenNetwork, as_pixels
from poisonproof.networks.pretraining.tasks import LARGEST_RATIO, as_images, framed
from poisonproof.networks.specification import NetworkSpec
from poisonproof.partition.partitioned import Partition
from poisonproof_research.networks.on_frozen import OnFrozenEnsemble, OnFrozenLearner, OnFrozenSpec

_DOMAIN = "poisonproof.views1"
_WORDS = 5
"""Words of an image's digest that address its draws: three of the counter, two of the key."""

_RATIO_BITS = 16


def vector_length(frozen: FrozenNetwork) -> int:
    """Return the length of a feature vector, refusing features that are no vectors."""
    if type(frozen)._new_task is not FrozenNetwork._new_task or frozen.spec.method != "simclr":
        raise InvalidInputError(
            "Views are mapped to vectors by features of method 'simclr', got"
            f" {type(frozen).__name__} of method {frozen.spec.method!r}. Members on RotNet's maps"
            " are those of TailLearner."
        )
    return 8 * frozen.spec.width


class ViewTable:
    """Feature vectors of random views: a part of the image, mirrored where the features allow it.

    A view shows a frame of `smallest_view` to all of the image's area, as in SimCLR, in its own
    colours. View v is a function of the image's pixels, the seed and v.

    Parameters
    ----------
    frozen : FrozenNetwork
        The map, learned by SimCLR.
    views : int
        Views of every image.
    seed : int
        Of all draws; another seed means other views.

    Guarantee
    ---------
    The vectors of an image do not depend on the images beside it, their order, or which images
    were mapped before.
    """

    def __init__(self, frozen: FrozenNetwork, views: int = 32, seed: int = 0) -> None:
        self.frozen = frozen
        if views < 1:
            raise InvalidInputError(f"views must be at least 1, got {views}.")
        self.views, self.seed = operator.index(views), operator.index(seed)
        self.length = vector_length(frozen)
        self._known: dict[bytes, NDArray[np.float16]] = {}

    def __len__(self) -> int:
        """Return how many different images are kept."""
        return len(self._known)

    def vectors(self, X: Any) -> NDArray[np.float16]:
        """Return the vectors of all views of images, rounded to float16.

        A value beyond float16 becomes infinite: members that see it abstain.
        """
        images = as_images(X, self.frozen.spec.input_shape)
        digests = [self._digest(image) for image in images]
        places = dict(zip(digests, range(len(digests)), strict=False))
        new = [digest for digest in places if digest not in self._known]
        if new:
            found = self._mapped(images[[places[digest] for digest in new]], new)
            self._known.update(zip(new, found, strict=True))
        out = np.empty((len(images), self.views, self.length), np.float16)
        for row, digest in zip(out, digests, strict=True):
            row[:] = self._known[digest]
        return out

    def _digest(self, image: NDArray[np.uint8]) -> bytes:
        sha = hashlib.sha256(f"{_DOMAIN} {self.seed} {image.shape}\n".encode())
        sha.update(image.data)
        return sha.digest()

    def _mapped(self, images: NDArray[np.uint8], digests: list[bytes]) -> NDArray[np.float16]:
        """Return vectors of new images, shape (n, views, d), `map_rows` views per launch."""
        spec = self.frozen.spec
        device = require_device(spec.machine())
        size, total = spec.map_rows, len(images) * self.views
        words = np.frombuffer(b"".join(digests), dtype="<u4").reshape(len(images), -1)
        keys = torch.from_numpy(words[:, :_WORDS].astype(np.int64))
        ratios = _ratios().to(device)
        out = np.empty((total, self.length), np.float16)
        with deterministic(spec.machine()), torch.no_grad():
            for start in range(0, total, size):
                # The last launch is filled up with its last view: every shape is the same.
                pair = torch.arange(start, start + size).clamp(max=total - 1)
                image, view = pair // self.views, pair % self.views
                first, last = int(image[0]), int(image[-1])
                pixels = torch.from_numpy(images[first : last + 1]).to(device)
                key, view = keys[image].to(device), view.to(device)
                shown = self._shown(pixels[(image - first).to(device)], key, view, ratios)
                found = self.frozen.chunk(shown).half().cpu().numpy()
                out[start : start + size] = found[: total - start]
        return out.reshape(len(images), self.views, self.length)

    def _shown(self, images: Tensor, key: Tensor, view: Tensor, ratios: Tensor) -> Tensor:
        """Return one view of each image, pixels from 0 to 255."""
        spec = self.frozen.spec
        part = torch.arange(2, device=view.device)[:, None]
        counter = (2 * view + part, key[:, 0], key[:, 1], key[:, 2])
        frame, choice = philox(counter, (key[:, 3], key[:, 4]))
        share = uniform(frame)
        area = spec.smallest_view + (1.0 - spec.smallest_view) * share[:, 0]
        ratio = ratios[frame[:, 1] >> (32 - _RATIO_BITS)]
        mirrored = (uniform(choice[:, 0]) < 0.5) & spec.flip
        corner = (share[:, 2], share[:, 3])
        return 255.0 * framed(images.float() / 255.0, area, ratio, corner, mirrored)


@lru_cache(maxsize=1)
def view_table(frozen: FrozenNetwork, views: int, seed: int) -> ViewTable:
    """Return the views of a map's images: the same table, for as long as no other is asked for."""
    return ViewTable(frozen, views, seed)


def _ratios() -> Tensor:
    """Return all shapes of frames, evenly spaced by their logarithms.

    From a table: a vectorised exponential may round differently at the end of a tensor, and the
    place of a view must not matter.
    """
    steps = (np.arange(2**_RATIO_BITS) + 0.5) / 2 ** (_RATIO_BITS - 1) - 1.0
    return torch.from_numpy(np.exp(steps * LARGEST_RATIO).astype(np.float32))


# The views of a whole stack's rows on the device, and batches of one view per row.


class ViewLanes(Lanes):
    """Lanes whose rows are float16 tensors of shape (m, views, d).

    In every epoch each row shows one of its views, drawn from its member's own stream.
    """

    def batch(self, step: TrainingStep, width: int) -> tuple[Tensor, Tensor]:
        """Return one view per row as float32, shape (S, width, d), and label distributions."""
        place = self._places(step, width)
        words = self.stream.words(Purpose.VIEW, step.epoch, step.rows[:, :width])
        chosen = (place - 1) * self._views + below(words[..., 0], self._views) + 1
        return self.X[torch.where(place > 0, chosen, 0)].float(), self.targets[place]

    def _table(self, lanes: Sequence[MemberTensors]) -> Tensor:
        """Return the views of all lanes, one after the other, behind a blank one.

        Lane by lane: a joined copy on the host would hold everything once more.
        """
        filled = [lane.X for lane in lanes if len(lane)]
        _, self._views, length = filled[0].shape
        rows = sum(len(views) for views in filled)
        table = torch.zeros(1 + rows * self._views, length, dtype=torch.float16, device=self.device)
        start = 1
        for views in filled:
            stop = start + len(views) * self._views
            table[start:stop].copy_(views.flatten(0, 1))
            start = stop
        return table


# The spec of linear members that are trained on views of their images.

_OWN = ("views", "view_seed", "smallest_view", "flip", "vector_length")


@dataclass(frozen=True)
class HeadSpec(OnFrozenSpec):
    """Everything a member's bits depend on, its partition and the seed apart.

    Attributes
    ----------
    schedule, features_sha256
        As in `OnFrozenSpec`; members take images.
    views, view_seed : int
        Views of every image, and the seed of their draws.
    smallest_view : float
        Least share of the image that a view shows.
    flip : bool
        Whether views may be mirrored.
    vector_length : int
        Length of the vectors that the frozen part makes of images.
    """

    network: ClassVar[str] = "linear-on-views"

    views: int
    view_seed: int
    smallest_view: float
    flip: bool
    vector_length: int

    def __post_init__(self) -> None:
        if self.views < 1:
            raise InvalidInputError(f"views must be at least 1, got {self.views}.")

    @property
    def linear(self) -> NetworkSpec:
        """The spec of the linear layers alone, which take vectors."""
        return replace(self.schedule, input_shape=(self.vector_length,))

    def to_json(self) -> dict[str, Any]:
        """Return the specification as JSON values."""
        return {**super().to_json(), **{name: getattr(self, name) for name in _OWN}}


# The fitted linear members on a frozen network.


class HeadEnsemble(OnFrozenEnsemble):
    """Members of a `HeadSpec`, which vote on images as they are; see `OnFrozenEnsemble`."""

    family: ClassVar[str] = "head"
    spec: HeadSpec

    def _blocks(self, samples: NDArray[np.float32]) -> Iterator[Block]:
        with deterministic(self.schedule):
            vectors = self._features(samples).float().cpu().numpy()
        return score_blocks(self.spec.linear, self.members, vectors, {})


# `HeadLearner`: linear members on frozen features, trained on views of their images.


class HeadLearner(OnFrozenLearner[HeadSpec, HeadEnsemble]):
    """Linear layers on SimCLR's frozen features, trained on random views, many at once.

    In every epoch a member sees one view of each of its images: a random frame, mirrored where
    the features were learned so. Every image has `views` of them, drawn once from its pixels
    alone and mapped once; members vote on images as they are.

    Use it as ``SSDPAClassifier(HeadLearner(features), n_partitions=250)``.

    Parameters
    ----------
    features : FrozenNetwork
        Learned by SimCLR, from samples alone. The views that were mapped last are kept.
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
        views, seed = (operator.index(params.pop(name)) for name in ("views", "view_seed"))
        features = params.pop("features").spec
        deep = TorchLearner(
            "linear", **params, normalize="none", device=features.device, threads=features.threads
        )
        return HeadSpec(
            deep.resolve(shape, n_classes),
            self.features.digest(),
            smallest_view=features.smallest_view,
            flip=features.flip,
            vector_length=vector_length(self.features),
            views=views,
            view_seed=seed,
        )

    def _rows(self, partition: Partition, spec: HeadSpec) -> MemberTensors:
        """Return the rows of one partition, images as whole pixels."""
        rows = partition_rows(partition, spec.schedule)
        pixels = torch.from_numpy(as_pixels(rows.X.numpy(), self.image_shape))
        return replace(dummy_rows(spec.linear), index=rows.index, X=pixels, y=rows.y)

    def _train(
        self, spec: HeadSpec, group: list[MemberTensors], seed: int, device: torch.device
    ) -> list[MemberState]:
        images = np.concatenate([rows.X.numpy() for rows in group])
        table = view_table(self.features, spec.views, spec.view_seed)
        own = np.split(table.vectors(images), np.cumsum([len(rows) for rows in group])[:-1])
        seen = [
            replace(rows, X=torch.from_numpy(views)) for rows, views in zip(group, own, strict=True)
        ]
        return train_stack(spec.linear, seen, seed, device, ViewLanes)
