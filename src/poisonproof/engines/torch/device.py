"""The machine under the members: what must be pinned, and what must be recorded."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version

import torch
from torch import Tensor

from poisonproof.engines.torch.alignment import product_mode, require_equal_lanes
from poisonproof.engines.torch.settings import fixed_settings
from poisonproof.exceptions import GuaranteeError, InvalidInputError
from poisonproof.learners.torch.specification import TorchSpec

__all__ = ["autocast", "deterministic", "fingerprint", "require_device", "sent"]

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_INSTRUCTIONS = "ONEDNN_MAX_CPU_ISA"
_VARIABLES = (
    "DNNL_MAX_CPU_ISA",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
)
"""More of the environment that makes oneDNN and MKL round differently."""
_TRIAL = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"


def require_device(spec: TorchSpec) -> torch.device:
    """Return the device of a specification, or say that it is missing."""
    if spec.device == "cuda":
        if not torch.cuda.is_available():
            raise InvalidInputError(
                "device='cuda' was asked, but torch sees no CUDA device. Use device='cpu', which"
                " is another model: its members have other bits."
            )
        # Several streams share one workspace unless its size is fixed before cuBLAS starts.
        wanted = os.environ.setdefault(_WORKSPACE, ":4096:8")
        if wanted not in (":4096:8", ":16:8"):
            raise GuaranteeError(
                f"{_WORKSPACE}={wanted!r} makes cuBLAS depend on scheduling; unset it or use"
                " ':4096:8'."
            )
    elif spec.dtype == "bfloat16" and not _multiplies_bfloat16():
        raise InvalidInputError(
            "dtype='bfloat16' was asked on device='cpu', but torch dies there when it multiplies"
            " bfloat16 matrices: the processor names instructions that this machine does not"
            f" allow. Use dtype='float32', or set {_INSTRUCTIONS}=AVX512_CORE_BF16 before the"
            " start; each is another model."
        )
    return torch.device(spec.device)


@cache
def _multiplies_bfloat16() -> bool:
    """Return whether torch survives a product in bfloat16 on this CPU.

    Virtual machines may show AMX instructions and forbid them; the first one then ends the
    process, so the trial has a process of its own.
    """
    trial = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False)
    return trial.returncode == 0


@contextmanager
def autocast(spec: TorchSpec) -> Iterator[None]:
    """Compute a forward pass in the specification's dtype.

    Nothing is remembered: torch forgets its copies of weights in half precision only where the
    outermost autocast ends, and a graph or a step that found old ones would go on with another
    member's. A user's module may ask for copies all the same; they end here.
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


def fingerprint(spec: TorchSpec) -> dict[str, str | int]:
    """Return what else decides bits: library versions, processor, threads."""
    found: dict[str, str | int] = {"torch": torch.__version__, "threads": spec.threads}
    if spec.device == "cuda" and torch.cuda.is_available():
        found["processor"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    else:
        found["processor"] = platform.machine()
        found["instructions"] = str(torch.backends.cpu.get_cpu_capability())
        if _INSTRUCTIONS in os.environ:  # convolutions and products in bfloat16 obey it
            found["onednn"] = os.environ[_INSTRUCTIONS]
        if (mode := product_mode()) is not None:
            found["mkl"] = mode
        found |= {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if spec.execution == "fused":
        found["triton"] = version("triton")
    return found


@contextmanager
def deterministic(spec: TorchSpec) -> Iterator[None]:
    """Pin threads and kernels while members are trained or asked, then restore the caller's."""
    threads = torch.get_num_threads()  # OpenMP keeps this number per calling thread
    torch.set_num_threads(spec.threads)
    try:
        with fixed_settings(spec.device):
            if spec.device == "cpu" and spec.shares_launches:
                require_equal_lanes()
            yield
    finally:
        torch.set_num_threads(threads)
