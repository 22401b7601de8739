"""Whose error it is: the machine's, which stops a fit, or a member's own, which silences it.

Memory, disks and devices are shared: a member whose neighbour takes them all would abstain,
although its own partition did not change. So such an error must not become an abstention; the fit
stops and can be resumed. Everything else that a learner raises is a function of its rows.
"""

from __future__ import annotations

import errno
from concurrent.futures import BrokenExecutor
from math import prod
from typing import Any

import numpy as np

__all__ = ["ADDRESSES", "is_machine_error", "largest_cell", "reason_of"]

ADDRESSES = 2**47
"""Bytes that a process can address at most (128 TiB), however much memory a machine has."""

_OF_A_NAME = frozenset(
    getattr(errno, name)
    for name in (
        "EACCES",  # may not be opened, or lies in a directory that may not be entered
        "EBADF",
        "EEXIST",
        "EFBIG",
        "EILSEQ",
        "EINVAL",
        "EISDIR",
        "ELOOP",
        "ENAMETOOLONG",
        "ENODEV",
        "ENOENT",
        "ENOTDIR",
        "ENOTEMPTY",
        "ENOTSUP",
        "ENOTTY",
        "ENXIO",  # a pipe or device without another end
        "EOPNOTSUPP",
        "EOVERFLOW",
        "EPERM",
        "EROFS",
        "ESPIPE",
        "ETXTBSY",
        "EXDEV",
    )
)
"""What the system answers because of the name it was given, or of what lies there.

A row may hold that name. All other numbers are the machine's (no space, no memory, no quota, too
many open files, a broken disk or connection), and so is one that is not known.
"""

_SHARED = (BrokenExecutor, BlockingIOError, ChildProcessError, ConnectionError, TimeoutError)
"""Errors about workers and connections. joblib's `TerminatedWorkerError` is one of the first."""

_BEGINNINGS = (
    "[enforce fail at alloc_cpu",
    "CUDA ",
    "DefaultCPUAllocator",
    "Resource temporarily unavailable",
    "can't start new thread",
    "cuDNN error",
    "std::bad_alloc",
)
"""How torch and others that are not written in Python say that there was no memory, or no device.

Only the beginning is looked at: further on a message may quote a cell, which an attacker wrote.
"""

_NATIVE = frozenset({"catboost", "_catboost", "lightgbm", "torch", "xgboost"})
"""Packages whose own errors, of whatever class, carry the words of native code."""

_DEVICE = frozenset({"AcceleratorError", "OutOfMemoryError"})
"""Their classes that are about a device, whatever it says."""


def is_machine_error(error: BaseException) -> bool:
    """Return whether an error must stop the work instead of silencing the member that met it.

    An error that was raised from a machine's error is one, too. (What else was being handled then
    may be the caller's: a fit that is tried again after an error trains the same members.)

    >>> is_machine_error(MemoryError()), is_machine_error(ValueError("no such class"))
    (True, False)
    >>> is_machine_error(OSError(28, "No space left")), is_machine_error(FileNotFoundError(2, ""))
    (True, False)
    >>> is_machine_error(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    """
    seen: list[BaseException] = []
    behind: BaseException | None = error
    while behind is not None and not any(behind is one for one in seen):
        if _is_of_machine(behind):
            return True
        seen.append(behind)
        behind = behind.__cause__
    return False


def _is_of_machine(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return not _is_impossible(error)
    if isinstance(error, _SHARED):
        return True
    if isinstance(error, OSError):  # a library that raises one itself has no number for it
        return error.errno is not None and error.errno not in _OF_A_NAME
    native = type(error).__module__.split(".")[0] in _NATIVE
    if native and type(error).__name__ in _DEVICE:
        return True
    return (native or isinstance(error, RuntimeError)) and _text(error).startswith(_BEGINNINGS)


def _is_impossible(error: MemoryError) -> bool:
    """Say whether an array was asked for that is larger than what a process can address.

    Such a request fails everywhere and always, so it is a property of the rows that made a learner
    ask, as any other exception is. A smaller request may fail here and succeed elsewhere.

    Examples
    --------
    >>> try:
    ...     np.empty(2**50)
    ... except MemoryError as error:
    ...     _is_impossible(error)
    True
    >>> _is_impossible(MemoryError())
    False
    """
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is None or dtype is None:
        return False
    return bool(prod(map(int, shape)) * np.dtype(dtype).itemsize >= ADDRESSES)


def reason_of(error: BaseException) -> str:
    """Return an error in words, as a member that abstains keeps them.

    >>> reason_of(ZeroDivisionError("by zero"))
    'ZeroDivisionError: by zero'
    """
    return f"{type(error).__name__}: {_text(error)}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # it quotes an object that cannot be shown
        return ""


def largest_cell(X: Any) -> str:
    """Return in words the largest number of some rows, which may be why so much was asked for.

    >>> largest_cell(np.array([[1.0, 2.0], [-1e15, 3.0]]))
    ' (its largest value is -1e+15, in column 0)'
    >>> largest_cell(["a text"])
    ''
    """
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "iuf" or X.ndim != 2 or not X.size:
        return ""
    sizes = np.nan_to_num(np.abs(X.astype(np.float64)), nan=-1.0)
    row, column = np.unravel_index(int(np.argmax(sizes)), X.shape)
    return f" (its largest value is {X[row, column]:g}, in column {int(column)})"
