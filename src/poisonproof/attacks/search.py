"""How large an attack of one kind must be before a prediction changes, by real retraining."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import certify_votes

__all__ = ["Trace", "first_change", "ladder", "votes_to_turn"]


@dataclass(frozen=True)
class Trace:
    """Attack sizes that were tried on one prediction.

    Attributes
    ----------
    tried : tuple of int
        Sizes, in the order in which they were tried; one retraining each.
    changed : tuple of bool
        Whether each changed the prediction.
    """

    tried: tuple[int, ...]
    changed: tuple[bool, ...]

    @property
    def first(self) -> int | None:
        """The smallest size found that changes the prediction; None if none did."""
        return min((s for s, c in zip(self.tried, self.changed, strict=True) if c), default=None)

    @property
    def largest(self) -> int:
        """The largest size tried."""
        return max(self.tried, default=0)

    def within(self, radius: int) -> tuple[int, int]:
        """Return how many tried sizes are at most `radius`, and how many of those changed."""
        inside = [c for s, c in zip(self.tried, self.changed, strict=True) if s <= radius]
        return len(inside), sum(inside)


def first_change(changes: Callable[[int], bool], radius: int, limit: int) -> Trace:
    """Try growing sizes until one changes the prediction, then close in on the first one.

    Parameters
    ----------
    changes : callable
        Retrains on an attack of the given size and says whether the prediction changed.
    radius : int
        Certified size; it and the next one are always tried, if no smaller one succeeds.
    limit : int
        Largest size to try.

    Notes
    -----
    A larger attack need not succeed where a smaller one does. The first change is the smallest one
    found: between it and the largest smaller size that failed nothing is left untried.

    Examples
    --------
    >>> trace = first_change(lambda size: size >= 12, radius=7, limit=100)
    >>> trace.first, trace.within(7)
    (12, (5, 0))
    """
    results: dict[int, bool] = {}
    kept = 0
    for size in ladder(radius, limit):
        results[size] = changes(size)
        if results[size]:
            break
        kept = size
    else:
        return Trace(tuple(results), tuple(results.values()))
    turned = size
    while turned - kept > 1:
        middle = (kept + turned) // 2
        results[middle] = changes(middle)
        kept, turned = (kept, middle) if results[middle] else (middle, turned)
    return Trace(tuple(results), tuple(results.values()))


def ladder(radius: int, limit: int) -> list[int]:
    """Return growing attack sizes up to `limit`, the radius and the next one among them.

    Examples
    --------
    >>> ladder(radius=7, limit=40)
    [1, 2, 3, 5, 7, 8, 13, 21, 34, 40]
    """
    sizes = {limit, min(radius, limit), min(radius + 1, limit)}
    step, following = 1, 2
    while step <= limit:
        sizes.add(step)
        step, following = following, step + following
    return sorted(size for size in sizes if size > 0)


def votes_to_turn(votes: NDArray[Any], n_classes: int, goal: int) -> int | None:
    """Return how many members must change their vote before the label changes: the worst case.

    Votes are moved from the winner to `goal`, one by one, and counted again each time.

    Examples
    --------
    >>> votes_to_turn(np.array([0, 0, 0, 0, 0, 1, 1]), n_classes=2, goal=1)
    2
    """
    turned = votes.copy()
    label = int(certify_votes(turned[None, :], n_classes).labels[0])
    for count, member in enumerate(np.flatnonzero(votes == label), start=1):
        turned[member] = goal
        if int(certify_votes(turned[None, :], n_classes).labels[0]) != label:
            return count
    return None
