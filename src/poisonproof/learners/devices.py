"""torch on a device, for computations that have the same result without it."""

from __future__ import annotations

from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.extras import needing

__all__ = ["torch_on"]


def torch_on(device: str | None, dtype: str = "float32") -> Any:
    """Return torch, if it can hold numbers of this type on the device and send them back."""
    with needing("torch", "torch"):
        import torch
    try:
        torch.zeros(1, dtype=getattr(torch, dtype), device=device).cpu()
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InvalidInputError(
            f"torch cannot compute with {dtype} on device={device!r}: {reason}. Use device=None, "
            "which computes the same with NumPy."
        ) from error
    return torch
