"""Randomized ablation against disjoint partitions (appendix C of the paper).

A base classifier sees s of m labels. If they are drawn at random for every classifier, r flipped
labels poison a share of all classifiers that can be computed; with m / s disjoint partitions they
poison at most r of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from poisonproof.exceptions import InvalidInputError, needing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def poisoned_share_random(m: int, s: int, r: ArrayLike) -> NDArray[np.float64]:
    """Return the probability that a random subset of `s` of `m` labels meets one of `r` flips.

    Examples
    --------
    >>> round(float(poisoned_share_random(60000, 50, 200)), 3)
    0.154
    """
    flips = _checked(m, s, r)
    left = np.maximum(m - flips, s)
    # C(m - r, s) / C(m, s) as a ratio of factorials; no subset is left if r > m - s.
    log_ratio = gammaln(left + 1) - gammaln(left - s + 1) - gammaln(m + 1) + gammaln(m - s + 1)
    return np.where(m - flips < s, 1.0, -np.expm1(log_ratio))


def poisoned_share_disjoint(m: int, s: int, r: ArrayLike) -> NDArray[np.float64]:
    """Return the largest share of disjoint partitions of `s` labels that `r` flips can reach.

    Examples
    --------
    >>> round(float(poisoned_share_disjoint(60000, 50, 200)), 3)
    0.167
    """
    return np.minimum(1.0, _checked(m, s, r) * s / m)


def _checked(m: int, s: int, r: ArrayLike) -> NDArray[np.int64]:
    flips = np.asarray(r, dtype=np.int64)
    if not 1 <= s <= m or (flips < 0).any() or (flips > m).any():
        raise InvalidInputError(f"Need 1 <= s <= m and 0 <= r <= m; got m={m}, s={s}, r={flips}.")
    return flips


def plot_poisoned_shares(m: int = 60000, s: int = 50, largest: int = 1000, ax: Any = None) -> Axes:
    """Draw both shares against the number of flipped labels."""
    with needing("matplotlib", "report"):
        from matplotlib.figure import Figure
    if ax is None:
        ax = Figure(figsize=(6.4, 4.2), layout="constrained").subplots()
    flips = np.arange(largest + 1)
    ax.plot(flips, 100 * poisoned_share_disjoint(m, s, flips), label="disjoint partitions")
    ax.plot(flips, 100 * poisoned_share_random(m, s, flips), "--", label="random subsets")
    ax.set_xlabel("flipped labels")
    ax.set_ylabel("poisoned base classifiers (%)")
    ax.set_title(f"{s:,} of {m:,} labels per base classifier", loc="left")
    ax.legend(edgecolor="none")
    axes: Axes = ax
    return axes
