"""torch's global settings: the same for every member, whatever the caller has chosen.

A default dtype, an outer autocast, coarser products or a forgotten ``no_grad`` would train other
members, and a later update would mix them with the first ones. Some settings belong to a thread, so
that they would even make the number of workers matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

__all__ = ["fixed_settings", "use_onednn"]

_SUBNORMAL = 2.0**-140


def use_onednn() -> None:
    """Let torch try oneDNN again.

    Where oneDNN fails once, torch turns it off for the whole process: the members that follow
    would be computed by other kernels because of the rows of one.
    """
    onednn: Any = torch.backends.mkldnn
    if not onednn.enabled:
        onednn.enabled = True


@contextmanager
def fixed_settings(device: str) -> Iterator[None]:
    """Fix what decides dtype, precision and gradients in this thread, then restore it all.

    Examples
    --------
    >>> torch.set_default_dtype(torch.float64)
    >>> with fixed_settings("cpu"), torch.no_grad():
    ...     torch.zeros(1).dtype
    torch.float32
    >>> torch.get_default_dtype()
    torch.float64
    >>> torch.set_default_dtype(torch.float32)
    """
    with ExitStack() as stack:
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        _numbers(stack)
        _precision(stack)
        for kind in sorted({"cpu", device}):
            stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


def _numbers(stack: ExitStack) -> None:
    stack.callback(torch.set_default_dtype, torch.get_default_dtype())
    torch.set_default_dtype(torch.float32)
    flushed = bool(torch.tensor(_SUBNORMAL, dtype=torch.float32) * 1.0 == 0.0)
    stack.callback(torch.set_flush_denormal, flushed)
    torch.set_flush_denormal(False)


def _precision(stack: ExitStack) -> None:
    """Full precision in products and convolutions; oneDNN wherever it works."""
    mkldnn: Any = torch.backends.mkldnn
    stack.callback(setattr, mkldnn, "enabled", mkldnn.enabled)
    mkldnn.enabled = True
    matmul: Any = torch.backends.cuda.matmul
    for operation in (matmul, mkldnn.matmul, mkldnn.conv, mkldnn.rnn):
        stack.callback(setattr, operation, "fp32_precision", operation.fp32_precision)
    # Whoever has set precisions by operation has none for all of them, and asking raises.
    with suppress(RuntimeError):
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    torch.set_float32_matmul_precision("highest")
    for operation in (mkldnn.conv, mkldnn.rnn):
        operation.fp32_precision = "ieee"
