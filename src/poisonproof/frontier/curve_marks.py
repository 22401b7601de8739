"""Where on its curve a number is written, so that nobody takes it for another curve's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["mark_places"]

Points = NDArray[np.float64]

_APART = 0.055
"""Wanted distance of a number from other numbers, in widths of the plot."""


def mark_places(
    curves: Sequence[Points], taken: Sequence[Points] = (), *, ratio: float = 0.6
) -> list[tuple[float, float]]:
    """Return a place on every curve that is far from the other curves and places.

    Parameters
    ----------
    curves : sequence of ndarray of shape (m, 2)
        Corners of each curve, both coordinates from 0 to 1.
    taken : sequence of ndarray of shape (2,)
        Places that are taken already.
    ratio : float
        Height of the plot over its width.

    Returns
    -------
    list of (float, float)
        One point per curve. Curves with the least room choose first.

    Examples
    --------
    >>> flat = np.array([[0.0, 0.2], [1.0, 0.2]])
    >>> steep = np.array([[0.0, 0.9], [0.5, 0.0]])
    >>> (x, y), _ = mark_places([flat, steep])
    >>> abs(x - 0.39) > 0.05, round(y, 6)  # they cross at 0.39
    (True, 0.2)
    """
    paths = [_walk(curve * [1.0, ratio]) for curve in curves]
    room = [
        _distance(path, [other for other in paths if other is not path]) - _outside(path, ratio)
        for path in paths
    ]
    order = sorted(range(len(paths)), key=lambda index: float(room[index].max()))
    occupied = [place[None] * [1.0, ratio] for place in taken]
    places: dict[int, Points] = {}
    for index in order:
        apart = _distance(paths[index], occupied)
        crowded = np.maximum(_APART - apart, 0.0) * 20
        places[index] = paths[index][int(np.argmax((room[index] - crowded).round(6)))]
        occupied.append(places[index][None])
    return [(float(x), float(y / ratio)) for x, y in (places[i] for i in range(len(paths)))]


def _walk(corners: Points, steps: int = 200) -> Points:
    """Return points at equal distances along the curve."""
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    at = np.linspace(0.0, length[-1], steps)
    return np.column_stack([np.interp(at, length, corners[:, axis]) for axis in (0, 1)])


def _distance(path: Points, others: Sequence[Points], far: float = 0.08) -> NDArray[np.float64]:
    """Return how far each point of a path is from the nearest of the others, at most `far`."""
    nearest = np.full(len(path), far)
    for other in others:
        gaps = np.hypot(*(path[:, None] - other[None]).transpose(2, 0, 1))
        nearest = np.minimum(nearest, gaps.min(axis=1))
    return nearest


def _outside(path: Points, ratio: float, margin: float = 0.03) -> NDArray[np.float64]:
    """Return how much a number at each point would lie on the frame."""
    inner = np.minimum(
        np.minimum(path[:, 0], 1.0 - path[:, 0]), np.minimum(path[:, 1], ratio - path[:, 1])
    )
    over: NDArray[np.float64] = np.maximum(margin - inner, 0.0) * 5
    return over
