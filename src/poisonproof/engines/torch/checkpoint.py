"""Finished members on disk, so that a killed run goes on where it stopped.

One safetensors file per member, named by everything the member is a function of: specification,
code of a user's network, machine, seed, class count and the content of its partition. A file is
written beside its name and moved there, so it is whole or absent; its digest is checked when it is
read.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from poisonproof.engines.torch.device import fingerprint
from poisonproof.engines.torch.own_modules import code_digest
from poisonproof.engines.torch.rows import MemberRows
from poisonproof.engines.torch.state import MemberState
from poisonproof.exceptions import StoreError
from poisonproof.learners.torch.specification import TorchSpec
from poisonproof.replacing import OpenFolder
from poisonproof.strict import decode_tensors

__all__ = ["Checkpoints"]


class Checkpoints:
    """A folder of finished members of one law.

    Parameters
    ----------
    folder : path
        Made if absent; several laws may share it.
    spec : TorchSpec
        The law of the members.
    seed : int
        Seed of the ensemble.
    """

    def __init__(self, folder: str | os.PathLike[str], spec: TorchSpec, seed: int) -> None:
        code = code_digest(spec)
        own = [] if code is None else [code]
        law = json.dumps([spec.digest(), fingerprint(spec), seed, *own], sort_keys=True)
        self.law = hashlib.sha256(law.encode()).hexdigest()
        self.folder = Path(folder) / self.law[:16]

    def path(self, rows: MemberRows) -> Path:
        """Return where the member of `rows` is, or will be."""
        return self.folder / f"{rows.index:06d}-{rows.digest()[:16]}.safetensors"

    def load(self, rows: MemberRows) -> MemberState | None:
        """Return the finished member of these rows, or None if there is none yet."""
        path = self.path(rows)
        if not path.exists():
            return None
        try:
            found, about = decode_tensors(path.read_bytes(), "it")
        except (OSError, ValueError) as error:
            raise self._damaged(path, str(error)) from error
        tensors = {name: array.copy() for name, array in found.items() if name != "_"}
        state = MemberState(rows.index, tensors, about.get("failure") or None)
        if about.get("law") != self.law or about.get("digest") != state.digest():
            raise self._damaged(path, "its content does not have the digest it was stored with")
        return state

    def save(self, rows: MemberRows, state: MemberState) -> None:
        """Write one finished member, whole or not at all."""
        about = {"law": self.law, "digest": state.digest(), "failure": state.failure or ""}
        tensors = {name: np.ascontiguousarray(array) for name, array in state.tensors.items()}
        content = save(tensors or {"_": np.zeros(1, np.uint8)}, metadata=about)
        with OpenFolder(self.folder, owned=True) as folder:
            folder.write(self.path(rows).name, content)

    @staticmethod
    def _damaged(path: Path, reason: str) -> StoreError:
        return StoreError(
            f"The checkpoint {path} is damaged: {reason}. Delete this file; its member will be"
            " trained again, and all others are kept."
        )
