"""torch on a device, for computations that have the same result without it."""

from __future__ import annotations

from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.extras import needing

__all__ = ["torch_on"]


def torch_on(device: str | None) -> Any:
    """Return torch, if it can compute on the device."""
    with needing("torch", "torch"):
        import torch
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidInputError(
            f"torch cannot compute on device={device!r}: {str(error).splitlines()[0]} Use "
            "device=None, which computes the same with NumPy."
        ) from error
    return torch
