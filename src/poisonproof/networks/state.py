"""One fitted deep member."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor

from poisonproof.exceptions import StoreError
from poisonproof.files import OpenFolder
from poisonproof.members.member import is_machine_error, reason_of
from poisonproof.networks.batches import MemberRows
from poisonproof.networks.device import fingerprint
from poisonproof.networks.modules import code_digest
from poisonproof.networks.specification import NetworkSpec
from poisonproof.strict import decode_tensors

DIVERGED = "the loss or the weights stopped being finite"


@dataclass(frozen=True)
class MemberState:
    """Weights, running statistics and normalisation of one member, on the host.

    Attributes
    ----------
    index : int
        Number of its partition.
    tensors : mapping of str to ndarray
        Empty for a member that abstains.
    failure : str or None
        Why it abstains; None for a trained member and for one without rows.
    """

    index: int
    tensors: Mapping[str, NDArray[np.generic]]
    failure: str | None = None

    @property
    def abstains(self) -> bool:
        """Whether the member gives no vote."""
        return not self.tensors

    def digest(self) -> str:
        """Return a digest of everything the member votes with."""
        return tensors_digest(self.tensors, self.failure)


def tensors_digest(tensors: Mapping[str, NDArray[np.generic]], failure: str | None) -> str:
    """Return the SHA-256 of named arrays and a failure text."""
    sha = hashlib.sha256((failure or "").encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        sha.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        sha.update(array.data)
    return sha.hexdigest()


def finished(
    index: int,
    tensors: Mapping[str, NDArray[np.generic]],
    *,
    diverged: bool,
    checked: bool = False,
) -> MemberState:
    """Apply the rule for members that diverged: no weights, and the reason.

    With `checked`, the caller has already looked for values that are not finite.
    """
    broken = not checked and any(
        not np.isfinite(array).all()
        for array in tensors.values()
        if np.issubdtype(array.dtype, np.floating)
    )
    if diverged or broken:
        return MemberState(index, {}, f"TrainingDiverged: {DIVERGED}")
    return MemberState(index, tensors)


def failed(spec: NetworkSpec, index: int, error: Exception) -> MemberState:
    """Return the abstention of a member whose network raised on its own rows, or raise again.

    torch refuses some rows with a ValueError (batch norm over one value); a user's module may
    raise anything.
    """
    own = spec.network == "custom" or isinstance(error, ValueError)
    if not own or is_machine_error(error):
        raise error
    return MemberState(index, {}, reason_of(error))


def host_tensors(state: Mapping[str, Tensor], rows: MemberRows) -> dict[str, NDArray[Any]]:
    """Return a module's state and the normalisation of its rows, on the host."""
    host = {name: value.detach().cpu().contiguous().numpy().copy() for name, value in state.items()}
    return {**host, "normalise.mean": rows.mean.numpy(), "normalise.std": rows.std.numpy()}


# Finished members on disk, so that a killed run goes on where it stopped.
#
# One safetensors file per member, named by everything the member is a function of: specification,
# code of a user's network, machine, seed, class count and the content of its partition. A file is
# written beside its name and moved there, so it is whole or absent; its digest is checked when it
# is
# read.


class Checkpoints:
    """A folder of finished members of one law.

    Parameters
    ----------
    folder : path
        Made if absent; several laws may share it.
    spec : NetworkSpec
        The law of the members.
    seed : int
        Seed of the ensemble.
    """

    def __init__(self, folder: str | os.PathLike[str], spec: NetworkSpec, seed: int) -> None:
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
