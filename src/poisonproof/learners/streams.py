"""Random streams keyed by (seed, partition index): no stream is shared by two members."""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["isolated_streams", "seed_nested", "stream_seed"]


def stream_seed(seed: int, index: int, name: str = "") -> int:
    """Return a 31-bit seed that belongs to one stream of one member.

    >>> stream_seed(0, 3) == stream_seed(0, 3)
    True
    >>> stream_seed(0, 3) == stream_seed(0, 4)
    False
    """
    words = np.random.SeedSequence([seed, index, zlib.crc32(name.encode())]).generate_state(1)
    return int(words[0] >> 1)


def seed_nested(estimator: Any, seed: int, index: int) -> None:
    """Set every ``random_state`` of a scikit-learn estimator, however deep, for one member."""
    names = [
        name
        for name in estimator.get_params(deep=True)
        if name == "random_state" or name.endswith("__random_state")
    ]
    estimator.set_params(**{name: stream_seed(seed, index, name) for name in names})


@contextmanager
def isolated_streams(seed: int, index: int) -> Iterator[None]:
    """Give the block its own global streams (NumPy, `random`, torch if loaded), then restore them.

    A learner that draws from a global stream would otherwise carry the draws of one member into
    the next.
    """
    numpy_state = np.random.get_state()  # noqa: NPY002 - the legacy stream is what is isolated
    python_state = random.getstate()
    torch = sys.modules.get("torch")
    torch_state = None if torch is None else torch.random.get_rng_state()
    own = stream_seed(seed, index, "global")
    np.random.seed(own)  # noqa: NPY002
    random.seed(own)
    if torch is not None:
        torch.random.default_generator.manual_seed(own)
    try:
        yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        if torch is not None and torch_state is not None:
            torch.random.set_rng_state(torch_state)
