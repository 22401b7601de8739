"""A run that was stopped, on disk: weights and momentum after a whole epoch.

Two safetensors files, each whole or absent: ``weights`` and ``momentum``. Both name the law, the
epoch and the digest of their content, so that a pair that does not belong together is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from poisonproof.engines.torch.state import tensors_digest
from poisonproof.exceptions import StoreError
from poisonproof.replacing import OpenFolder, write_bytes
from poisonproof.strict import decode_tensors

__all__ = ["Checkpoint", "RunFolder", "read_tensors", "write_tensors"]

Tensors = dict[str, NDArray[Any]]

_STATE = re.compile(r"(weights|momentum)-\d+\.safetensors")
"""How the files of a run are called."""


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


class Checkpoint:
    """The state of a run after `epoch` epochs.

    Parameters
    ----------
    epoch : int
        Epochs done.
    weights : dict of arrays
        Parameters and running statistics of the network.
    momentum : ndarray
        The optimiser's vector.
    history : list of [loss, share]
        What each epoch came to.
    """

    def __init__(
        self, epoch: int, weights: Tensors, momentum: NDArray[Any], history: list[list[float]]
    ) -> None:
        self.epoch, self.weights = epoch, weights
        self.momentum, self.history = momentum, history


class RunFolder:
    """The folder of one run.

    Parameters
    ----------
    folder : Path
        Made when the first checkpoint is written.
    law : dict
        What the run depends on; a checkpoint of another law is refused.
    """

    def __init__(self, folder: Path, law: dict[str, Any]) -> None:
        self.folder = folder
        text = json.dumps(law, sort_keys=True)
        self.law = hashlib.sha256(text.encode()).hexdigest()

    def load(self) -> Checkpoint | None:
        """Return the newest state of which both files are there, or None."""
        for path in sorted(self.folder.glob("weights-*.safetensors"), reverse=True):
            other = path.with_name(path.name.replace("weights-", "momentum-"))
            if not other.exists():
                continue
            weights, about = read_tensors(path)
            momentum, also = read_tensors(other)
            for found in (about, also):
                if found.get("law") != self.law:
                    raise StoreError(
                        f"{self.folder} holds a run of another law (other samples, parameters or"
                        " machine). Choose another folder, or take it away."
                    )
            history = json.loads(about["history"])
            return Checkpoint(int(about["epoch"]), weights, momentum["momentum"], history)
        return None

    def save(self, state: Checkpoint) -> None:
        """Write a state; older ones go once both of its files are there."""
        about = {"law": self.law, "epoch": str(state.epoch), "history": json.dumps(state.history)}
        name = f"{state.epoch:06d}.safetensors"
        write_tensors(self.folder / f"momentum-{name}", {"momentum": state.momentum}, about)
        write_tensors(self.folder / f"weights-{name}", state.weights, about)
        self._remove(lambda found: not found.endswith(name))

    def clear(self) -> None:
        """Take all states away."""
        self._remove(lambda _found: True)

    def _remove(self, which: Callable[[str], bool]) -> None:
        """Delete states, and none of the other files that someone may keep there."""
        with OpenFolder(self.folder, owned=True) as folder:
            for name in filter(_STATE.fullmatch, folder.names()):
                if which(name):
                    folder.remove(name)
