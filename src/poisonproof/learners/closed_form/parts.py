"""What the fit of one member leaves behind."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError

__all__ = ["MemberParts", "check_arrays"]


@dataclass(frozen=True)
class MemberParts:
    """The arrays of one member, before they are stacked or cut out of the stack.

    Attributes
    ----------
    classes : ndarray of shape (p,)
        The classes this member can vote for, ascending. None of them: it abstains. One of them:
        it always votes for it.
    rows : mapping of str to ndarray of shape (r, ...)
        Arrays with one entry per row of the member.
    single : mapping of str to ndarray
        Arrays with one entry for the whole member.
    failure : str or None
        Why it abstains, if its learner raised.
    """

    classes: NDArray[np.int16]
    rows: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    single: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    failure: str | None = None

    def digest(self, head: bytes) -> str:
        """Return a digest of all of this, and of what is shared with other members."""
        sha = hashlib.sha256(head)
        sha.update(repr((self.classes.tolist(), self.failure)).encode())
        for group in (self.rows, self.single):
            for name, array in sorted(group.items()):
                sha.update(f"{name}{array.dtype.str}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()


def check_arrays(like: MemberParts, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise `StoreError` unless the arrays have the names, shapes and types of a stack."""
    wanted = {f"rows.{name}": array for name, array in like.rows.items()}
    wanted |= {f"single.{name}": array[np.newaxis] for name, array in like.single.items()}
    missing = {"offsets", "class_offsets", "classes", *wanted} - set(arrays)
    if missing:
        raise StoreError(f"The saved members lack the arrays {sorted(missing)}.")
    sizes = {"rows": int(arrays["offsets"][-1]), "single": len(arrays["offsets"]) - 1}
    for name, array in wanted.items():
        found = arrays[name]
        shape = (sizes[name.split(".")[0]], *array.shape[1:])
        if found.shape != shape or found.dtype != array.dtype:
            raise StoreError(
                f"The saved array {name} has shape {found.shape} and type {found.dtype}, but "
                f"{shape} and {array.dtype} belong to these members."
            )
    if arrays["class_offsets"][-1] != len(arrays["classes"]):
        raise StoreError("The saved members' classes are cut off.")
