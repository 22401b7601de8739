"""Vectors of random views of images: mapped once per image, kept by the image's digest."""

from __future__ import annotations

import hashlib
import operator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.engines.torch.device import deterministic, require_device
from poisonproof.exceptions import InvalidInputError
from poisonproof.learners.torch.streams import philox, uniform
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.samples import as_images
from poisonproof.pretraining.views import LARGEST_RATIO, framed

__all__ = ["ViewTable", "vector_length", "whole_numbers"]

_DOMAIN = "poisonproof.views1"
_WORDS = 5
"""Words of an image's digest that address its draws: three of the counter, two of the key."""

_RATIO_BITS = 16


def vector_length(frozen: FrozenNetwork) -> int:
    """Return the length of a feature vector, refusing features that are no vectors.

    Raises
    ------
    InvalidInputError
        If the features are maps, which keep where things are in the image.
    """
    if type(frozen)._new_task is not FrozenNetwork._new_task or frozen.spec.method != "simclr":
        raise InvalidInputError(
            "Views are mapped to vectors by features of method 'simclr', got"
            f" {type(frozen).__name__} of method {frozen.spec.method!r}. Members on RotNet's maps"
            " are those of TailLearner."
        )
    return 8 * frozen.spec.width


def whole_numbers(views: Any, seed: Any) -> tuple[int, int]:
    """Return how many views of which seed, as plain integers.

    Other numbers are refused: 1.0 and True would find the table of seed 1, and make another.
    """
    for name, value in (("views", views), ("seed of views", seed)):
        if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
            raise InvalidInputError(f"{name} must be a whole number, got {value!r}.")
    if views < 1:
        raise InvalidInputError(f"views must be at least 1, got {views}.")
    return operator.index(views), operator.index(seed)


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
    were asked for before.
    """

    def __init__(self, frozen: FrozenNetwork, views: int = 32, seed: int = 0) -> None:
        self.frozen = frozen
        self.views, self.seed = whole_numbers(views, seed)
        self.length = vector_length(frozen)
        self._known: dict[bytes, NDArray[np.float16]] = {}

    def __len__(self) -> int:
        """Return how many different images are kept."""
        return len(self._known)

    def vectors(self, X: Any) -> NDArray[np.float16]:
        """Return the vectors of all views of images, rounded to float16.

        A value beyond float16 becomes infinite: members that see it abstain.

        Parameters
        ----------
        X : ndarray of uint8, shape (n, C, H, W) or (n, H, W)
            Images.

        Returns
        -------
        ndarray of float16, shape (n, views, d)
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


def _ratios() -> Tensor:
    """Return all shapes of frames, evenly spaced by their logarithms.

    From a table: a vectorised exponential may round differently at the end of a tensor, and the
    place of a view must not matter.
    """
    steps = (np.arange(2**_RATIO_BITS) + 0.5) / 2 ** (_RATIO_BITS - 1) - 1.0
    return torch.from_numpy(np.exp(steps * LARGEST_RATIO).astype(np.float32))
