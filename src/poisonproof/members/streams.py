"""Random streams keyed by (seed, partition index), and one worker: nothing two members share."""

from __future__ import annotations

import hashlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import numpy as np

from poisonproof.threads import on_one_thread

WORKERS: Mapping[str, int] = {
    "n_jobs": 1,
    "n_threads": 1,
    "nthread": 1,
    "nthreads": 1,
    "num_thread": 1,
    "num_threads": 1,
    "num_workers": 0,  # torch loads batches in its own process then
    "thread_count": 1,
}
"""Parameters that set workers or threads, and the value that means one; they decide no vote."""


def stream_seed(seed: int, index: int, name: str = "") -> int:
    """Return a 31-bit seed that belongs to one stream of one member."""
    key = f"{seed} {index} {name}".encode()
    digest = hashlib.blake2b(key, digest_size=4, person=b"poisonproof-seed").digest()
    return int.from_bytes(digest, "little") >> 1


def nested_random_states(estimator: Any) -> list[str]:
    """Return the names of every ``random_state`` of a scikit-learn estimator, however deep."""
    return [
        name
        for name in estimator.get_params(deep=True)
        if name == "random_state" or name.endswith("__random_state")
    ]


def seed_nested(estimator: Any, seed: int, index: int, names: Sequence[str] | None = None) -> None:
    """Set every ``random_state`` of an estimator for one member, those in `names` if given."""
    names = nested_random_states(estimator) if names is None else names
    seeds = {name: stream_seed(seed, index, name) for name in names}
    if "random_state" in seeds:
        estimator.random_state = seeds.pop("random_state")  # as set_params does, but faster
    if seeds:
        estimator.set_params(**seeds)


def give_one_worker(estimator: Any) -> None:
    """Set every parameter of an estimator that sets workers or threads, however deep, to one."""
    found = estimator.get_params(deep=True)
    parts = {"": estimator} | {
        f"{name}__": part for name, part in found.items() if hasattr(part, "set_params")
    }
    names = list(found)
    for prefix, part in parts.items():  # get_params of CatBoost leaves out what was not set
        if not isinstance(part, type):
            names += [f"{prefix}{name}" for name in inspect.signature(type(part)).parameters]
    ones = {name: WORKERS[last] for name in names if (last := name.split("__")[-1]) in WORKERS}
    if any(found.get(name, ...) != one for name, one in ones.items()):
        estimator.set_params(**ones)


_restoring = False


@contextmanager
def restored_streams() -> Iterator[None]:
    """Restore the global streams at the end of the block, once for all members in it."""
    global _restoring  # noqa: PLW0603 - global streams have global bookkeeping
    before = _restoring
    numpy_state = np.random.get_state()  # noqa: NPY002 - the legacy stream is what is isolated
    python_state = random.getstate()
    torch = sys.modules.get("torch")
    torch_state = None if torch is None else torch.random.get_rng_state()
    _restoring = True
    try:
        yield
    finally:
        _restoring = before
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        if torch is not None and torch_state is not None:
            torch.random.set_rng_state(torch_state)


@contextmanager
def isolated_streams(seed: int, index: int) -> Iterator[None]:
    """Give the block its own global streams, and let nothing drawn in it reach other code."""
    with nullcontext() if _restoring else restored_streams():
        own = stream_seed(seed, index, "global")
        np.random.seed(own)  # noqa: NPY002
        random.seed(own)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.random.default_generator.manual_seed(own)
            if _has_cuda():
                torch.cuda.manual_seed_all(own)
        yield


@cache
def _has_cuda() -> bool:
    """Return whether torch, which is loaded, has streams on other devices."""
    return bool(sys.modules["torch"].cuda.is_available())


Result = TypeVar("Result")


def in_own_streams(seed: int, index: int, work: Callable[[], Result]) -> Result:
    """Call `work` within `isolated_streams`, and once more if it was the first to load torch.

    torch's stream cannot be seeded before torch is loaded, so the first member of a process would
    draw from another stream, and an attack that silences it would make another member the first.
    For the same reason `work` runs on one thread, even if it loads a library that has several.
    """

    def once() -> Result:
        with isolated_streams(seed, index):
            return work()

    torch_was_there = "torch" in sys.modules
    try:
        result = on_one_thread(once)
    except Exception:
        if torch_was_there or "torch" not in sys.modules:
            raise
    else:
        if torch_was_there or "torch" not in sys.modules:
            return result
    return on_one_thread(once)
