"""One thread inside BLAS and OpenMP: another number of threads may round differently.

Finding the libraries of a process takes threadpoolctl milliseconds, longer than many small members
take to vote. So they are remembered until the process loads or unloads another one.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]


class _Library(ctypes.Structure):
    """The beginning of ``struct dl_phdr_info`` in link.h."""

    _fields_ = (
        ("addr", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("n_headers", ctypes.c_uint16),
        ("adds", ctypes.c_ulonglong),
        ("subs", ctypes.c_ulonglong),
    )


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)
_known: tuple[tuple[int, int], ThreadpoolController] | None = None


def one_thread(user_api: str | None = None) -> AbstractContextManager[Any]:
    """Limit every library of the process, or those of one kind, to one thread in the block.

    Parameters
    ----------
    user_api : {"blas", "openmp"}, optional
        The kind. By default both.

    Guarantee
    ---------
    A library that was loaded before the block is limited in it, whenever that was.

    Examples
    --------
    >>> import numpy
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread():
    ...     {library["num_threads"] for library in threadpool_info()}
    {1}
    """
    limited: AbstractContextManager[Any] = _controller().limit(limits=1, user_api=user_api)
    return limited


def _controller() -> ThreadpoolController:
    global _known  # noqa: PLW0603 - the libraries belong to the process
    now = _loads_and_unloads()
    if now is None:
        return ThreadpoolController()
    if _known is None or _known[0] != now:
        _known = now, ThreadpoolController()
    return _known[1]


def _loads_and_unloads() -> tuple[int, int] | None:
    """Return how many libraries were ever loaded and unloaded, where the system counts them."""
    if sys.platform != "linux":
        return None
    found: list[tuple[int, int]] = []

    def first(library: Any, size: int, _: Any) -> int:
        if size >= ctypes.sizeof(_Library):  # else a libc from before there were counts
            found.append((library.contents.adds, library.contents.subs))
        return 1  # no more libraries: the counts are those of the process

    ctypes.CDLL(None).dl_iterate_phdr(_Visit(first), None)
    return found[0] if found else None
