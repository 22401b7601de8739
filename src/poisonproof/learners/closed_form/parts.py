"""What the fit of one member leaves behind."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError

__all__ = ["MemberParts"]


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

    @classmethod
    def without_rows(
        cls,
        settings: Mapping[str, Any],
        rows: Mapping[str, NDArray[Any]],
        single: Mapping[str, NDArray[Any]] | None = None,
    ) -> MemberParts:
        """Return a member of no rows: those of `ExactRows`, and the arrays of its kind."""
        dtype = np.float32 if settings["precision"] == "single" else np.float64
        exact = {
            "values": np.empty((0, settings["n_columns"]), dtype=dtype),
            "exponents": np.empty(0, dtype=np.int32),
        }
        return cls(np.empty(0, dtype=np.int16), {**exact, **rows}, single or {})

    def digest(self, head: bytes) -> str:
        """Return a digest of all of this, and of what is shared with other members."""
        sha = hashlib.sha256(head)
        sha.update(repr((self.classes.tolist(), self.failure)).encode())
        for group in (self.rows, self.single):
            for name, array in sorted(group.items()):
                sha.update(f"{name}{array.dtype.str}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, for `from_arrays`."""
        return (
            {"classes": self.classes}
            | {f"rows.{name}": array for name, array in self.rows.items()}
            | {f"single.{name}": array for name, array in self.single.items()}
        )

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], like: MemberParts, failure: str | None
    ) -> MemberParts:
        """Rebuild a member from a file; `like` has the names, shapes and types it must have."""
        rows = {name: _checked(arrays, f"rows.{name}", a) for name, a in like.rows.items()}
        single = {name: _checked(arrays, f"single.{name}", a) for name, a in like.single.items()}
        if len({len(array) for array in rows.values()}) > 1:
            sizes = {f"rows.{name}": len(array) for name, array in rows.items()}
            raise StoreError(f"The saved arrays of a member have different lengths: {sizes}.")
        return cls(_checked(arrays, "classes", like.classes), rows, single, failure)


def _checked(arrays: Mapping[str, NDArray[Any]], name: str, like: NDArray[Any]) -> NDArray[Any]:
    if name not in arrays:
        raise StoreError(f"A saved member lacks the array {name}.")
    found = arrays[name]
    if found.ndim != like.ndim or found.shape[1:] != like.shape[1:] or found.dtype != like.dtype:
        raise StoreError(
            f"The saved array {name} has shape {found.shape} and type {found.dtype}, but "
            f"{('n', *like.shape[1:])} and {like.dtype} belong to these members."
        )
    return found
