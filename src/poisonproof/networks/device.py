"""The machine under the networks: torch's settings, and what must be pinned or recorded.

A default dtype, an outer autocast, coarser products or a forgotten ``no_grad`` would train other
members. Some settings belong to a thread, the others to the process: the last thread that relies on
them gives them back.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.networks.specification import NetworkSpec

_lock = threading.Lock()
_undo = ExitStack()
"""Restores the settings of the process."""
_inside = 0
"""Number of blocks that rely on them."""


def use_onednn() -> None:
    """Let torch try oneDNN again: where it fails once, torch turns it off for the process."""
    onednn: Any = torch.backends.mkldnn
    if not onednn.enabled:
        onednn.enabled = True


@contextmanager
def _of_the_process() -> Iterator[None]:
    global _inside  # noqa: PLW0603 - settings of a process have bookkeeping of a process
    with _lock:
        if not _inside:
            _fix_process(_undo)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _undo.close()


def _fix_process(stack: ExitStack) -> None:
    """Set full precision, and kernels that always give the same bits, none chosen by timing."""

    def put(owner: Any, name: str, value: bool) -> None:
        stack.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, value)

    stack.callback(torch.set_default_dtype, torch.get_default_dtype())
    torch.set_default_dtype(torch.float32)
    mkldnn: Any = torch.backends.mkldnn
    put(mkldnn, "enabled", True)
    matmul: Any = torch.backends.cuda.matmul
    for operation in (matmul, mkldnn.matmul, mkldnn.conv, mkldnn.rnn):
        stack.callback(setattr, operation, "fp32_precision", operation.fp32_precision)
    # Whoever has set precisions by operation has none for all of them, and reading it raises.
    with suppress(RuntimeError):
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    torch.set_float32_matmul_precision("highest")
    for operation in (mkldnn.conv, mkldnn.rnn):
        operation.fp32_precision = "ieee"
    algorithms = torch.are_deterministic_algorithms_enabled()
    warning = torch.is_deterministic_algorithms_warn_only_enabled()
    stack.callback(torch.use_deterministic_algorithms, algorithms, warn_only=warning)
    torch.use_deterministic_algorithms(True)
    # Nothing here reads memory before writing it, and filling it costs time.
    put(torch.utils.deterministic, "fill_uninitialized_memory", False)
    cudnn = torch.backends.cudnn
    put(cudnn, "benchmark", False)  # the load of the machine would pick the kernel
    put(cudnn, "deterministic", True)
    put(cudnn, "allow_tf32", False)


# Products of stacked members, checked: no bit may depend on where in memory a lane lies. Without
# its mode for reproducible results MKL does round by it on some processors, in about one in twenty
# shapes (``benchmarks/lane_products.py``). `import poisonproof` asks for that mode, but MKL hears
# it only before its first product.

# Odd sides put the lanes of a stack on every address that a number can have within a cache line.
_SIDES = (3, 10, 33, 43)
_LANES = 16


@cache
def product_mode() -> int | None:
    """Return the mode in which MKL really multiplies, or None where torch does not say."""
    for library in (Path(torch.__file__).parent / "lib").glob("*torch_cpu.*"):
        try:
            return int(ctypes.CDLL(str(library)).mkl_serv_cbwr_get(-1))
        except (AttributeError, OSError):
            continue
    return None


@cache
def require_equal_lanes() -> None:
    """Raise `GuaranteeError` if equal lanes of a stack have unequal products on this CPU."""
    stream = torch.Generator().manual_seed(0)

    def lanes(down: int, across: int, turned: bool) -> Tensor:
        shape = (across, down) if turned else (down, across)
        stack = torch.randn(shape, generator=stream).expand(_LANES, *shape).contiguous()
        return stack.transpose(1, 2) if turned else stack

    turns = product((False, True), repeat=2)
    for (left, right), (m, k, n) in product(list(turns), product(_SIDES, repeat=3)):
        found = torch.bmm(lanes(m, k, left), lanes(k, n, right))
        if not torch.equal(found, found[:1].expand_as(found)):
            raise GuaranteeError(
                "On this CPU, torch's matrix products depend on memory addresses, so a member would"
                " depend on its place in the stack. To prevent it, import poisonproof before torch"
                " computes anything, or set MKL_CBWR=AUTO,STRICT before Python starts."
                " execution='single' needs neither."
            )


# The machine under the members: what must be pinned, and what must be recorded.

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_VARIABLES = (
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
)
"""Environment variables that make oneDNN and MKL round differently."""


def require_device(spec: NetworkSpec) -> torch.device:
    """Return the device of a specification, or raise if it is missing."""
    if spec.device == "cuda":
        if not torch.cuda.is_available():
            raise InvalidInputError(
                "device='cuda' was requested, but torch finds no CUDA device. Use device='cpu',"
                " which is another model: its members have other bits."
            )
        # Several streams share one workspace unless its size is fixed before cuBLAS starts.
        wanted = os.environ.setdefault(_WORKSPACE, ":4096:8")
        if wanted not in (":4096:8", ":16:8"):
            raise GuaranteeError(
                f"{_WORKSPACE}={wanted!r} makes cuBLAS depend on scheduling; unset it or use"
                " ':4096:8'."
            )
    return torch.device(spec.device)


@contextmanager
def autocast(spec: NetworkSpec) -> Iterator[None]:
    """Compute a forward pass in the specification's dtype, and remember no weights in it.

    A step that found old copies, which a user's module may cache, would continue with another
    member's.
    """
    half = spec.dtype == "bfloat16"
    torch.clear_autocast_cache()
    try:
        with torch.autocast(spec.device, torch.bfloat16, enabled=half, cache_enabled=False):
            yield
    finally:
        torch.clear_autocast_cache()


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Return host values on the device, without waiting for the work queued there."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def fingerprint(spec: NetworkSpec) -> dict[str, str | int]:
    """Return what else decides bits: library versions, processor, threads."""
    found: dict[str, str | int] = {"torch": torch.__version__, "threads": spec.threads}
    if spec.device == "cuda" and torch.cuda.is_available():
        found["processor"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    else:
        found["processor"] = platform.machine()
        found["instructions"] = str(torch.backends.cpu.get_cpu_capability())
        if (mode := product_mode()) is not None:
            found["mkl"] = mode
        found |= {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if spec.execution == "fused":
        found["triton"] = version("triton")
    return found


@contextmanager
def deterministic(spec: NetworkSpec) -> Iterator[None]:
    """Pin threads, dtype, precision, kernels and gradients, then restore the caller's."""
    with ExitStack() as stack:
        # OpenMP keeps the number of threads per calling thread.
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(spec.threads)
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(_of_the_process())
        flushed = bool(torch.tensor(2.0**-140, dtype=torch.float32) * 1.0 == 0.0)
        stack.callback(torch.set_flush_denormal, flushed)
        torch.set_flush_denormal(False)
        for kind in sorted({"cpu", spec.device}):
            stack.enter_context(torch.autocast(kind, enabled=False, cache_enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if spec.device == "cpu" and spec.shares_launches:
            require_equal_lanes()
        yield
