"""Learned maps and the runs that learn them, on disk; `LearnedFeatures` for pipelines."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from poisonproof.exceptions import InvalidRowsError, StoreError
from poisonproof.files import OpenFolder, write_bytes
from poisonproof.networks.batches import tensors_digest
from poisonproof.networks.device import deterministic, require_device
from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec
from poisonproof.networks.pretraining.tasks import Task, as_images, make_task
from poisonproof.strict import decode_tensors

Tensors = dict[str, NDArray[Any]]
FEATURES = "features.safetensors"


def write_tensors(path: Path, tensors: Tensors, about: dict[str, str]) -> None:
    """Write named arrays with their digest, whole or not at all."""
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    content = save(tensors, metadata={**about, "digest": tensors_digest(tensors, None)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.") from error
    write_bytes(path, content)


def read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read what `write_tensors` wrote, and check its digest."""
    try:
        tensors, about = decode_tensors(path.read_bytes(), str(path))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}.") from error
    tensors = {name: array.copy() for name, array in tensors.items()}  # to be written to
    if about.get("digest") != tensors_digest(tensors, None):
        raise StoreError(f"{path} is damaged: its content does not have the recorded digest.")
    return tensors, about


class RunFolder:
    """The folder of one run, and of no other: a file with weights and momentum after an epoch."""

    def __init__(self, folder: Path, origin: dict[str, Any]) -> None:
        self.folder = folder
        self._origin = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()

    def load(self) -> tuple[Tensors, NDArray[Any], list[list[float]]] | None:
        """Return weights, momentum and history ([loss, share] of each epoch), or None."""
        path = max(self.folder.glob("state-*.safetensors"), default=None)
        if path is None:
            return None
        tensors, about = read_tensors(path)
        if about.get("origin") != self._origin:
            raise StoreError(
                f"{self.folder} holds another run (of other samples, parameters or machine)."
                " Choose another folder, or delete this one."
            )
        weights = {k.removeprefix("weights/"): v for k, v in tensors.items() if k != "momentum"}
        return weights, tensors["momentum"], json.loads(about["history"])

    def save(self, weights: Tensors, momentum: NDArray[Any], history: list[list[float]]) -> None:
        """Write a state, and delete older ones and no other file that someone may keep there."""
        about = {"origin": self._origin, "history": json.dumps(history)}
        name = f"state-{len(history):06d}.safetensors"
        tensors = {f"weights/{key}": array for key, array in weights.items()}
        write_tensors(self.folder / name, {**tensors, "momentum": momentum}, about)
        with OpenFolder(self.folder, owned=True) as folder:
            for found in folder.names():
                if found != name and re.fullmatch(r"state-\d+\.safetensors", found):
                    folder.remove(found)


class FrozenNetwork:
    """A map from images to features that no longer changes.

    Parameters
    ----------
    spec : PretrainSpec
        How it was learned; also decides how it is computed.
    tensors : dict of arrays
        Weights and running statistics, which cannot be written to through the map.
    law : mapping
        Its origin: specification, digest of the samples, and machine. (The name is part of the
        digest of every member that holds a map, so it stays.)
    history : sequence of [loss, share]
        Of each epoch.

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

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the map itself: it never changes, and clones of a learner can share it."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the network, which is made again where it is needed."""
        return {**self.__dict__, "_task": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Lock the weights again: a pickle does not say that they are."""
        self.__dict__.update(state, tensors=_locked(state["tensors"]))

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
        """Return the features of images on the device; the last chunk is filled up."""
        size = self.spec.map_rows
        if not len(images):
            return self.chunk(images.new_zeros(size, *images.shape[1:]))[:0]
        parts = []
        for start in range(0, len(images), size):
            part = images[start : start + size].float()
            filled = part
            if len(part) < size:
                filled = torch.zeros(size, *part.shape[1:], device=part.device)
                filled[: len(part)] = part
            parts.append(self.chunk(filled)[: len(part)])
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
            f"{folder} holds no {FEATURES}. Make it with: poisonproof features train METHOD"
            " --images PATH --out DIR."
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


class LearnedFeatures(TransformerMixin, BaseEstimator):
    """Images to the features of a finished map; nothing is learned here.

    Use it as ``SSDPAClassifier(RidgeClassifier(), LearnedFeatures(DIR), n_partitions=250)``.

    Parameters
    ----------
    folder : path
        Holds ``features.safetensors``, as `FrozenNetwork.save` writes it.
    device : {"cpu", "cuda"}, optional
        Where to compute; by default where it was learned.

    Guarantee
    ---------
    The features of an image are a function of that image and the map.

    Assumes
    -------
    Samples are trusted if the map was learned from them.
    """

    def __init__(self, folder: str | os.PathLike[str], device: str | None = None) -> None:
        self.folder = folder
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the map; neither samples nor labels change it."""
        self.frozen_ = load_features(self.folder, device=self.device)
        self.n_features_in_ = int(np.prod(self.frozen_.spec.input_shape))
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return features, shape (n, d), of images or flat rows of integer pixels from 0 to 255."""
        check_is_fitted(self)
        return self.frozen_.transform(as_pixels(X, self.frozen_.spec.input_shape))


def as_pixels(X: Any, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Return images, or flat rows of them, as integer pixels of shape (n, C, H, W)."""
    pixels = np.asarray(X)
    with np.errstate(invalid="ignore"):  # what does not fit differs, and is refused below
        whole = pixels.astype(np.uint8) if pixels.dtype.kind in "iuf" else None
    if whole is None or not np.array_equal(whole, pixels):
        raise InvalidRowsError(
            "Learned features take integer pixels from 0 to 255; got"
            f" {'other values' if whole is not None else pixels.dtype}."
        )
    if whole.ndim == 2 and whole.shape[1] == int(np.prod(shape)):
        whole = whole.reshape(len(whole), *shape)
    return as_images(whole, shape)
