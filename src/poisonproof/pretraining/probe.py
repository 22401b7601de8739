"""How good features are, for the eye only: nearest neighbours on rows whose labels are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.neighbors import KNeighborsClassifier

from poisonproof.pretraining.frozen import FrozenNetwork

__all__ = ["neighbour_probe"]


def neighbour_probe(
    frozen: FrozenNetwork, X: Any, y: ArrayLike, X_test: Any, y_test: ArrayLike, k: int = 5
) -> float:
    """Return the accuracy of `k` nearest neighbours (cosine) on frozen features.

    It takes a finished copy of the map and returns a number; nothing that trains, stops or
    chooses reads that number.

    Parameters
    ----------
    frozen : FrozenNetwork
        The map.
    X, y : arrays
        Images with labels to look among.
    X_test, y_test : arrays
        Images with labels to look up.
    k : int
        Neighbours that vote.
    """
    known, asked = frozen.transform(X), frozen.transform(X_test)
    neighbours = KNeighborsClassifier(k, metric="cosine").fit(known, np.asarray(y))
    return float(neighbours.score(asked, np.asarray(y_test)))
