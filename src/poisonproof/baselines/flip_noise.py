"""How many changed labels a majority under random labels stands.

Every training label is kept with probability 1 - q and otherwise replaced by one of the other
C - 1, each alike. Let the classifier miss a label with probability at most e under this noise. If r
labels are changed before the noise, the law of the noisy labels moves: in the changed places two of
the C values swap their probabilities. How likely a miss can become is answered by the lemma of
Neyman and Pearson: it is made of the outcomes that the new law likes most against the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poisonproof.exceptions import InvalidInputError

__all__ = ["check_noise", "flip_radius", "largest_miss", "miss_limits"]


def check_noise(q: float, n_classes: int) -> None:
    """Raise unless a kept label is likelier than any other."""
    if not 0 < q < (n_classes - 1) / n_classes:
        raise InvalidInputError(
            f"q must lie between 0 and {(n_classes - 1) / n_classes:.3f} for {n_classes} classes, "
            f"got {q}."
        )


def largest_miss(miss: float, r: int, q: float, n_classes: int) -> float:
    """Return the largest probability, after `r` changed labels, of an event that had `miss`.

    Examples
    --------
    >>> round(largest_miss(0.1, 1, 0.25, 2), 4)
    0.3
    """
    old, new = next(islice(_laws(q, n_classes), r - 1, None))
    before = np.concatenate([[0.0], np.cumsum(old)])[:-1]
    # What is too unlikely under the old law for a float costs the attacker nothing.
    share = np.where(old > 0, np.clip((miss - before) / np.where(old > 0, old, 1.0), 0.0, 1.0), 1.0)
    return float((new * share).sum())


def _laws(q: float, n_classes: int) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield, for r = 1, 2, ..., old and new probabilities of all likelihood ratios.

    In a changed place a noisy label is the new one, one of the others (ratio 1), or the old one.
    The ratio of all places depends on how many are new minus how many are old; the largest ratio
    new / old comes first.
    """
    other = q / (n_classes - 1)
    old_step = np.array([other, q - other, 1.0 - q])
    old, new = np.ones(1), np.ones(1)
    while True:
        old, new = np.convolve(old, old_step), np.convolve(new, old_step[::-1])
        yield old, new


def miss_limits(
    smallest: float, q: float, n_classes: int, largest: int = 4096
) -> NDArray[np.float64]:
    """Return, for r = 1, 2, ..., the probability of a miss at which r changed labels do harm.

    Parameters
    ----------
    smallest : float
        Limits are returned until one is not larger than this.
    q : float
        Probability that a label is replaced.
    n_classes : int
        Number of classes.
    largest : int
        No larger r is looked at.
    """
    check_noise(q, n_classes)
    limits: list[float] = []
    for old, new in islice(_laws(q, n_classes), largest):
        reached = np.cumsum(new)
        place = int(np.searchsorted(reached, 0.5))
        short = 0.5 - (reached[place] - new[place])
        limit = float(old[:place].sum() + old[place] * short / new[place])
        limits.append(limit)
        if limit <= smallest:
            break
    return np.array(limits)


def flip_radius(miss: ArrayLike, q: float, n_classes: int) -> NDArray[np.int64]:
    """Return the most changed labels under which labels missed with `miss` keep a majority.

    Parameters
    ----------
    miss : array of float
        Upper bounds of the probability that noise leads to another label.
    q : float
        Probability that a label is replaced.
    n_classes : int
        Number of classes.

    Examples
    --------
    >>> flip_radius([0.5, 0.3, 0.1, 0.01], 0.25, 2)
    array([0, 0, 1, 5])
    """
    given = np.asarray(miss, dtype=np.float64)
    limits = miss_limits(float(given.min(initial=1.0)), q, n_classes)
    # Limits fall with r; a label stands r changes as long as its miss is below the limit.
    return np.searchsorted(-limits, -given, side="left").astype(np.int64)
