"""One thread inside BLAS and OpenMP: another number of threads may round differently.

Finding the libraries of a process takes threadpoolctl milliseconds, longer than many small members
take to vote. So they are remembered until the process loads or unloads another one.

BLAS has one number of threads for the whole process. Where a server asks a model from several of
its threads, the first to finish must not give the number back that the others still rely on.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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


_lock = threading.Lock()
_inside: list[int] = []
"""The threads of all blocks that have not ended."""
_before: dict[str, tuple[Any, int]] = {}
"""Each library that they limit, and how many threads it had before the first of them."""


@contextmanager
def one_thread(user_api: str | None = None) -> Iterator[None]:
    """Limit every library of the process, or those of one kind, to one thread in the block.

    Parameters
    ----------
    user_api : {"blas", "openmp"}, optional
        The kind. By default both.

    Guarantee
    ---------
    A library that was loaded before the block is limited in it, whenever that was, and until the
    block ends, whatever other threads of the process finish meanwhile.

    Examples
    --------
    >>> import numpy
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread():
    ...     {library["num_threads"] for library in threadpool_info()}
    {1}
    """
    controller = _controller()
    with ExitStack() as stack:
        if user_api != "openmp":
            stack.enter_context(_one_for_all(controller))
        if user_api != "blas":  # OpenMP keeps a number for every thread
            own = controller.select(user_api="openmp")
            stack.enter_context(own.limit(limits=1))
        yield


@contextmanager
def _one_for_all(controller: ThreadpoolController) -> Iterator[None]:
    """Limit BLAS; a thread that leaves while others are inside leaves the undoing to the last."""
    libraries = [lib for lib in controller.lib_controllers if lib.user_api == "blas"]
    me = threading.get_ident()
    with _lock:
        found = [(library, library.get_num_threads()) for library in libraries]
        for library, number in found:
            _before.setdefault(library.filepath, (library, number))
            _set(library, 1)
        _inside.append(me)
    try:
        yield
    finally:
        with _lock:
            _inside.remove(me)
            if not _inside:
                found = list(_before.values())
                _before.clear()
            if set(_inside) <= {me}:
                for library, number in found:
                    _set(library, number)


def _set(library: Any, number: int) -> None:
    """Set a number of threads, also where threadpoolctl thinks that another thread owns BLAS."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(number)


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
