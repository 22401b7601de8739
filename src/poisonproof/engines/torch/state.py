"""One fitted deep member."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from poisonproof.engines.torch.rows import MemberRows
from poisonproof.learners.machine_errors import is_machine_error, reason_of
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["MemberState", "failed", "finished", "host_tensors", "tensors_digest"]

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


def failed(spec: TorchSpec, index: int, error: Exception) -> MemberState:
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
