"""Neighbourhoods measured along the graph of neighbours: diffusion coordinates, and who votes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from study import Dataset

from poisonproof.members.similarity import neighbor_graph
from poisonproof_research.methods.neighborhood_weights import diffusion_coordinates, unit_places

CLOSENESS = (0.5, 0.6, 0.7, 0.8, 0.9)
SLACK = (1, 2, 4, 8)


def graph_votes(
    near_train: NDArray[Any], near_test: NDArray[Any], labels: NDArray[Any], data: Dataset
) -> dict[float, NDArray[np.int64]]:
    """Count the labels of every test image's neighbourhood, for all sizes and all cosines.

    Parameters
    ----------
    near_train, near_test : ndarrays of int, shape (m, N) and (n, N)
        Nearest training rows.
    labels : ndarray of int, shape (m,)
        Labels of the training rows; which of them vote does not depend on them.
    data : Dataset
        Sizes of neighbourhoods, and how many eigenvectors.
    """
    train, test = places(near_train, near_test, data)
    n_classes, hoods = data.n_classes, data.hoods
    counts = {m: np.zeros((len(test), n_classes), dtype=np.int64) for m in (*hoods, *CLOSENESS)}
    for start in range(0, len(test), 250):
        here = slice(start, start + 250)
        cosines = test[here] @ train.T
        order = np.argsort(-cosines, axis=1, kind="stable")[:, : max(hoods)]
        near = {c: (cosines >= c).sum(axis=1).clip(min(hoods), max(hoods)) for c in CLOSENESS}
        sizes = {m: np.full(len(order), m) for m in hoods} | near
        for label in range(n_classes):
            up_to = np.cumsum(labels[order] == label, axis=1)
            for name, size in sizes.items():
                counts[name][here, label] = np.take_along_axis(up_to, size[:, None] - 1, axis=1)[
                    :, 0
                ]
    return counts


def sweep_votes(
    near_train: NDArray[Any], near_test: NDArray[Any], labels: NDArray[Any], data: Dataset
) -> dict[int, NDArray[np.int64]]:
    """Count the labels of neighbourhoods that end where the graph is thin, for every slack.

    The nearest rows of a test image are taken in order, and of all sizes from the smallest to the
    largest of `data` the first is kept whose rows have a share of arcs that leave them of at most
    `slack` times the smallest. Parameters are those of `graph_votes`.
    """
    graph = neighbor_graph(near_train)
    train, test = places(near_train, near_test, data)
    counts = {s: np.zeros((len(test), data.n_classes), dtype=np.int64) for s in SLACK}
    rank = np.full(len(train), max(data.hoods))
    for start in range(0, len(test), 250):
        cosines = test[start : start + 250] @ train.T
        for place, line in enumerate(cosines, start):
            order = np.argsort(-line, kind="stable")[: max(data.hoods)]
            rank[order] = np.arange(len(order))
            leaving = _leaving(graph, order, rank)[min(data.hoods) - 1 :]
            rank[order] = len(order)
            for slack, table in counts.items():
                size = min(data.hoods) + int(np.argmax(leaving <= slack * leaving.min()))
                table[place] = np.bincount(labels[order[:size]], minlength=data.n_classes)
    return counts


def _leaving(graph: Any, order: NDArray[Any], rank: NDArray[Any]) -> NDArray[np.float64]:
    """Return the share of arcs that leave the first rows in `order`, for all numbers of them."""
    arcs = graph[order]
    ends = rank[arcs.indices]
    last = np.maximum(ends, np.repeat(np.arange(len(order)), np.diff(arcs.indptr)))
    inside = np.cumsum(np.bincount(last, weights=arcs.data, minlength=len(order) + 1)[:-1])
    every = np.cumsum(np.asarray(arcs.sum(axis=1)).ravel())
    return 1.0 - inside / every


def places(
    near_train: NDArray[Any], near_test: NDArray[Any], data: Dataset
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where training and test images stand along the graph, as vectors of length one."""
    train = diffusion_coordinates(near_train, data.eigenvectors, 2 * data.n_classes)
    return unit_places(train), unit_places(train[near_test].mean(axis=1))
