"""Products of stacked members, checked: no bit may depend on where in memory a lane lies.

Without its mode for reproducible results MKL does round by it on some processors, in about one in
twenty shapes (``benchmarks/lane_products.py``). `import poisonproof` asks for that mode, but MKL
hears it only before its first product.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from poisonproof.exceptions import GuaranteeError

__all__ = ["product_mode", "require_equal_lanes"]

# Odd sides put the lanes of a stack on every address that a number can have within a cache line.
_SIDES = (3, 10, 33, 43)
_LANES = 16


def require_equal_lanes() -> None:
    """Raise `GuaranteeError` if equal lanes of a stack have unequal products on this CPU."""
    if not _equal_lanes():
        raise GuaranteeError(
            "On this processor torch's products depend on where in memory a matrix lies, so a"
            " member would depend on its place in the stack. MKL stops that if it is told before"
            " its first product: import poisonproof before torch computes anything, or set"
            " MKL_CBWR=AUTO,STRICT before Python starts. execution='single' works as it is."
        )


@cache
def product_mode() -> int | None:
    """Return the mode in which MKL multiplies here, or None where torch does not say.

    The environment says what was asked for, maybe too late.
    """
    for library in (Path(torch.__file__).parent / "lib").glob("*torch_cpu.*"):
        try:
            return int(ctypes.CDLL(str(library)).mkl_serv_cbwr_get(-1))
        except (AttributeError, OSError):
            continue
    return None


@cache
def _equal_lanes() -> bool:
    stream = torch.Generator().manual_seed(0)

    def lanes(down: int, across: int, turned: bool) -> Tensor:
        shape = (across, down) if turned else (down, across)
        stack = torch.randn(shape, generator=stream).expand(_LANES, *shape).contiguous()
        return stack.transpose(1, 2) if turned else stack

    turns = product((False, True), repeat=2)
    for (left, right), (m, k, n) in product(list(turns), product(_SIDES, repeat=3)):
        found = torch.bmm(lanes(m, k, left), lanes(k, n, right))
        if not torch.equal(found, found[:1].expand_as(found)):
            return False
    return True
