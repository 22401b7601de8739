"""A learned map, frozen: one file with a digest, shared by all members."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.engines.torch.device import deterministic, require_device
from poisonproof.engines.torch.state import tensors_digest
from poisonproof.exceptions import InvalidRowsError, StoreError
from poisonproof.pretraining.checkpoint import Tensors, read_tensors, write_tensors
from poisonproof.pretraining.samples import as_images
from poisonproof.pretraining.specification import PretrainSpec
from poisonproof.pretraining.tasks import Task, make_task

__all__ = ["FEATURES", "FrozenNetwork", "load_features", "moved"]

FEATURES = "features.safetensors"
T = TypeVar("T")


class FrozenNetwork:
    """A map from images to features that no longer changes.

    Parameters
    ----------
    spec : PretrainSpec
        How it was learned; also decides how it is computed.
    tensors : dict of arrays
        Weights and running statistics. Through the map they cannot be written to: what it has
        computed and keeps would be another map's.
    law : mapping
        Specification, digest of the samples, and machine it was learned on.
    history : sequence of [loss, share]
        What each epoch came to.

    Guarantee
    ---------
    The features of an image do not depend on the images beside it.
    """

    def __init__(
        self,
        spec: PretrainSpec,
        tensors: Tensors,
        law: Mapping[str, Any],
        history: Sequence[Sequence[float]] = (),
    ) -> None:
        self.spec, self.tensors, self.law = spec, _locked(tensors), law
        self.history = [list(entry) for entry in history]
        self._task: Any = None
        self._kept: dict[tuple[Any, ...], Any] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the map itself: it never changes, and clones of a learner can share it."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be made again where it is needed."""
        return {**self.__dict__, "_task": None, "_kept": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Lock the weights again: a pickle does not say that they are."""
        self.__dict__.update(state, tensors=_locked(state["tensors"]))

    def kept(self, make: Callable[..., T], *key: Any) -> T:
        """Return ``make(self, *key)``, made once and kept as long as the map is.

        For what is costly and a function of the map and `key` alone.
        """
        if (make, *key) not in self._kept:
            self._kept[make, *key] = make(self, *key)
        found: T = self._kept[make, *key]
        return found

    def digest(self) -> str:
        """Return the SHA-256 of all weights."""
        return tensors_digest(self.tensors, None)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``features.safetensors`` into a folder."""
        path = Path(folder) / FEATURES
        about = {"law": json.dumps(self.law), "history": json.dumps(self.history)}
        write_tensors(path, self.tensors, about)
        return path

    def chunk(self, images: Tensor) -> Tensor:
        """Return the features of exactly `map_rows` images on the device.

        Parameters
        ----------
        images : float32 tensor of shape (map_rows, C, H, W)
            Pixels from 0 to 255.
        """
        task = self._on(images.device)
        with torch.no_grad():
            out: Tensor = task.features(task.pixels.normalised(images))
        return out

    def rows(self, images: Tensor) -> Tensor:
        """Return the features of images on the device, chunk by chunk.

        The last chunk is filled up, so that no shape depends on how many images there are.
        """
        size = self.spec.map_rows
        if not len(images):
            return self.chunk(images.new_zeros(size, *images.shape[1:]))[:0]
        parts = []
        for start in range(0, len(images), size):
            part = images[start : start + size].float()
            if len(part) < size:
                filled = torch.zeros(size, *part.shape[1:], device=part.device)
                filled[: len(part)] = part
                parts.append(self.chunk(filled)[: len(part)])
            else:
                parts.append(self.chunk(part))
        return torch.cat(parts)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of images as vectors, shape (n, d)."""
        images = as_images(X, self.spec.input_shape)
        device = require_device(self.spec.machine())
        if not len(images):
            raise InvalidRowsError("There are no images to map.")
        out = []
        size = self.spec.map_rows
        with deterministic(self.spec.machine()):
            for start in range(0, len(images), size):
                part = torch.from_numpy(images[start : start + size]).to(device)
                out.append(self.rows(part).float().flatten(1).cpu().numpy())
        return np.concatenate(out)

    def _new_task(self) -> Task:
        return make_task(self.spec)

    def _on(self, device: torch.device) -> Any:
        if self._task is None:
            task = self._new_task()
            module = task.module
            if device.type == "cuda":
                module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            known = {name: torch.from_numpy(np.array(v)) for name, v in self.tensors.items()}
            missing, unexpected = module.load_state_dict(known, strict=False)
            if unexpected or any(not name.endswith("num_batches_tracked") for name in missing):
                raise StoreError("These weights are not those of the network in the specification.")
            module.to(device).requires_grad_(False)
            task.pixels.to(device)
            self._task = task
        return self._task


def _locked(tensors: Tensors) -> Tensors:
    """Return views of arrays that cannot be written to."""
    views = {name: array.view() for name, array in tensors.items()}
    for view in views.values():
        view.setflags(write=False)
    return views


def load_features(folder: str | os.PathLike[str], *, device: str | None = None) -> FrozenNetwork:
    """Read a map that `FrozenNetwork.save` wrote.

    Parameters
    ----------
    folder : path
        Holds ``features.safetensors``.
    device : {"cpu", "cuda"}, optional
        Where to compute; by default where it was learned. Another device rounds differently.
    """
    path = Path(folder) / FEATURES
    if not path.is_file():
        raise StoreError(
            f"{folder} holds no {FEATURES}. Make it with: poisonproof features train RECIPE"
            " --out DIR."
        )
    tensors, about = read_tensors(path)
    try:
        law, history = json.loads(about["law"]), json.loads(about["history"])
        spec = PretrainSpec.from_json(law["specification"])
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path} does not say how it was made: {error}.") from error
    return FrozenNetwork(moved(spec, device), tensors, law, history)


def moved(spec: PretrainSpec, device: str | None) -> PretrainSpec:
    """Return the specification for another device; None keeps the one it has."""
    if device is None or device == spec.device:
        return spec
    on_cpu = {"dtype": "float32", "engine": "eager"} if device == "cpu" else {}
    return PretrainSpec.from_json({**spec.to_json(), "device": device, **on_cpu})
