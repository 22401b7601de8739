"""torch's global settings: the same for every member, whatever the caller has chosen.

A default dtype, an outer autocast, coarser products or a forgotten ``no_grad`` would train other
members, and a later update would mix them with the first ones. Some settings belong to a thread, so
that they would even make the number of workers matter; the others belong to the process, and the
last thread that relies on them gives them back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch

__all__ = ["fixed_settings", "use_onednn"]

_SUBNORMAL = 2.0**-140

_lock = threading.Lock()
_undo = ExitStack()
"""How the settings of the process become what they were."""
_inside = 0
"""How many blocks rely on them."""


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
    """Fix what decides dtype, precision, kernels and gradients, then restore it all.

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
        stack.enter_context(_of_the_process())
        flushed = bool(torch.tensor(_SUBNORMAL, dtype=torch.float32) * 1.0 == 0.0)
        stack.callback(torch.set_flush_denormal, flushed)
        torch.set_flush_denormal(False)
        for kind in sorted({"cpu", device}):
            stack.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield


@contextmanager
def _of_the_process() -> Iterator[None]:
    global _inside  # noqa: PLW0603 - settings of a process have bookkeeping of a process
    with _lock:
        if not _inside:
            _undo.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float32)
            _precision(_undo)
            _kernels(_undo)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _undo.close()


def _kernels(stack: ExitStack) -> None:
    """Kernels that always give the same bits, and none that are chosen by timing."""
    algorithms = torch.are_deterministic_algorithms_enabled()
    warning = torch.is_deterministic_algorithms_warn_only_enabled()
    stack.callback(torch.use_deterministic_algorithms, algorithms, warn_only=warning)
    torch.use_deterministic_algorithms(True)
    memory, cudnn = torch.utils.deterministic, torch.backends.cudnn
    fixed: list[tuple[Any, str, bool]] = [
        # Nothing here reads memory before writing it, and filling it costs time.
        (memory, "fill_uninitialized_memory", False),
        # Timing-based choices would let the load of the machine pick the kernel.
        (cudnn, "benchmark", False),
        (cudnn, "deterministic", True),
        (cudnn, "allow_tf32", False),
    ]
    for owner, name, value in fixed:
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)


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
