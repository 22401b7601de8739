"""One thread inside BLAS and OpenMP, one worker inside joblib: more may round differently.

Hand-written around threadpoolctl for four reasons. It takes milliseconds to find the libraries of a
process, longer than many small members take to vote, so they are remembered until another module is
imported. BLAS has one number of threads per process, and the first thread to finish must not undo
what the others rely on. A learner may import a library only when it is fitted; its first member is
then trained again on one thread. And a learner that names a backend of joblib gets it whatever
`parallel_config` says, so `joblib.Parallel` itself works in the calling thread here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import lru_cache, wraps
from typing import Any, TypeVar

from joblib import Parallel, parallel_config
from threadpoolctl import ThreadpoolController

Result = TypeVar("Result")


_limits = threading.local()  # the libraries limited in this thread by the innermost block
_lock = threading.Lock()
_inside: list[int] = []  # the threads of all blocks that have not ended
_before: dict[str, tuple[Any, int]] = {}  # the libraries they limit, and their threads before


@contextmanager
def one_thread(user_api: str | None = None) -> Iterator[None]:
    """Limit BLAS and OpenMP, or one of them, to one thread in the block.

    Without `user_api` joblib gets one worker, too. A library that was loaded before the block is
    limited until the block ends, whatever other threads of the process finish meanwhile; joblib is
    limited in the thread that entered the block and in no other.

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
        if user_api is None:
            stack.callback(setattr, _limits, "controller", _limited_here())
            _limits.controller = controller
            # For code that cuts its work into as many pieces as there are workers.
            stack.enter_context(parallel_config(backend="sequential", n_jobs=1))
        yield


def on_one_thread(work: Callable[[], Result]) -> Result:
    """Call `work` in `one_thread`, and once more if it has loaded a library that has threads."""
    while True:
        before = _controller()
        with nullcontext() if _alike(before, _limited_here()) else one_thread():
            try:
                result = work()
            except Exception:
                if _alike(before, _controller()):
                    raise
            else:
                if _alike(before, _controller()):
                    return result


def _limited_here() -> ThreadpoolController | None:
    """Return what the innermost `one_thread` of this thread limits; None outside of all."""
    found: ThreadpoolController | None = getattr(_limits, "controller", None)
    return found


def _loop(self: Any, iterable: Any) -> Any:
    """Do what `Parallel.__call__` is given in this thread, one after the other."""
    results = (function(*args, **options) for function, args, options in iterable)
    return results if self.return_generator else list(results)


def _limited(method: Any, within: Any) -> Any:
    """Return a method of `Parallel` that does something else within `one_thread`."""

    @wraps(method)
    def run(self: Any, *args: Any) -> Any:
        return (method if _limited_here() is None else within)(self, *args)

    return run


for _name, _within in {
    "__call__": _loop,
    "__enter__": lambda self: self,  # starts no workers
    "__exit__": lambda self, *error: None,
}.items():
    setattr(Parallel, _name, _limited(getattr(Parallel, _name), _within))


def _alike(one: ThreadpoolController, other: ThreadpoolController | None) -> bool:
    """Return whether both know the same libraries; mostly they are the same object."""
    if one is other or other is None:
        return one is other
    first, second = ({lib.filepath for lib in some.lib_controllers} for some in (one, other))
    return first == second


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
    """Return the libraries of the process, found anew when a module has been imported since."""
    return _found_among(len(sys.modules))


@lru_cache(maxsize=1)
def _found_among(n_modules: int) -> ThreadpoolController:
    return ThreadpoolController()
