"""Trees from a file are walked without bounds checks, so their bounds are checked here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.neighbors import BallTree, KDTree
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from poisonproof.exceptions import StoreError

__all__ = ["check_trees"]


def check_trees(value: Any, name: str) -> None:
    """Raise `StoreError` if a tree anywhere in `value` points outside itself.

    Decision trees, and the trees in which nearest neighbours are looked up.
    """
    for tree in _trees(value, set()):
        if isinstance(tree, Tree):
            _check_tree(tree, name)
        else:
            _check_neighbour_tree(tree, name)


def _check_tree(tree: Any, name: str) -> None:
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    nodes = np.arange(tree.node_count)
    inner = left != -1
    sound = (
        tree.node_count >= 1
        and np.array_equal(inner, right != -1)
        # A child always comes after its parent, so a walk ends.
        and np.all((left[inner] > nodes[inner]) & (left[inner] < tree.node_count))
        and np.all((right[inner] > nodes[inner]) & (right[inner] < tree.node_count))
        and np.all((feature[inner] >= 0) & (feature[inner] < tree.n_features))
    )
    if not sound:
        raise StoreError(f"{name} holds a decision tree whose nodes point outside the tree.")


def _check_neighbour_tree(tree: Any, name: str) -> None:
    data, order, nodes, bounds = (np.asarray(array) for array in tree.get_arrays())
    _, n_levels, n_nodes, *_ = tree.__getstate__()[4:]
    rows, width = data.shape
    number = np.arange(len(nodes))
    sound = (
        len(nodes) == n_nodes == 2**n_levels - 1
        and bounds.shape == (2 if isinstance(tree, KDTree) else 1, n_nodes, width)
        and order.shape == (rows,)
        and np.all((order >= 0) & (order < rows))
        and np.all((nodes["idx_start"] >= 0) & (nodes["idx_start"] <= nodes["idx_end"]))
        and np.all(nodes["idx_end"] <= rows)
        # The children of node i are 2 i + 1 and 2 i + 2, so the last level has none.
        and np.all((nodes["is_leaf"] != 0) | (2 * number + 2 < n_nodes))
    )
    if not sound:
        raise StoreError(f"{name} holds a neighbour tree whose nodes point outside the tree.")


def _trees(value: Any, seen: set[int]) -> Iterator[Any]:
    if isinstance(value, (Tree, KDTree, BallTree)):
        yield value
        return
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None))):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        parts: Any = value.values()
    elif isinstance(value, (list, tuple, set)):
        parts = value
    elif isinstance(value, np.ndarray):
        parts = value.ravel() if value.dtype.hasobject else ()
    else:
        if isinstance(value, BaseDecisionTree) and hasattr(value, "tree_"):
            _check_owner(value)
        parts = getattr(value, "__dict__", {}).values()
    for part in parts:
        yield from _trees(part, seen)


def _check_owner(estimator: Any) -> None:
    if estimator.tree_.n_features != estimator.n_features_in_:
        raise StoreError("a decision tree was built for another number of features than it takes.")
