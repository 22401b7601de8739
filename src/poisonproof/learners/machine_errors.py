"""Errors that say something about the machine, and nothing about a partition."""

from __future__ import annotations

__all__ = ["is_machine_error"]

_BEGINNINGS = ("[enforce fail at alloc_cpu", "DefaultCPUAllocator", "CUDA ", "std::bad_alloc")
"""How torch and others that are not written in Python say that there was no memory, or no device.

Only the beginning is looked at: further on a message may quote a cell, which an attacker wrote.
"""


def is_machine_error(error: BaseException) -> bool:
    """Return whether an error must stop training instead of silencing the member that met it.

    Memory is shared: a member whose neighbour takes it all would abstain, although its own
    partition did not change. Not every library raises `MemoryError` then.

    >>> is_machine_error(MemoryError()), is_machine_error(ValueError("no such class"))
    (True, False)
    >>> is_machine_error(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    """
    if isinstance(error, (MemoryError, OSError)):
        return True
    return isinstance(error, RuntimeError) and str(error).startswith(_BEGINNINGS)
