"""skops, imported without what it does not need.

To know scikit-learn's estimators skops walks through all packages of scikit-learn, and two that
hold none are wrappers of torch and Dask, which take longer to import than a model to read.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["skops_io"]

_WRAPPERS = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask"))


def skops_io() -> Any:
    """Return the module ``skops.io``, which checks trees before it makes them."""
    if "skops.io" not in sys.modules:
        with _passed_over(_WRAPPERS):
            import_module("skops.io")
    skops = import_module("skops.io")  # waits, if another thread is importing it
    _check_trees_first()
    return skops


@cache
def _check_trees_first() -> None:
    """Let skops look at the parts of a tree: scikit-learn's C code takes their shapes for granted.

    A tree reads the length of its nodes, and the classes of so many outputs, from wherever they
    would lie; a file whose arrays have another number of dimensions ends the process.
    """
    from skops.io._audit import NODE_TYPE_MAPPING
    from skops.io._sklearn import TreeNode

    class CheckedTreeNode(TreeNode):
        def _construct(self) -> Any:
            _, n_classes, n_outputs = self.args.construct()
            state = self.attrs.construct()
            nodes, values = (np.asarray(state[name]) for name in ("nodes", "values"))
            if (
                not isinstance(n_outputs, int)
                or np.shape(n_classes) != (n_outputs,)
                or (nodes.ndim, values.ndim) != (1, 3)
            ):
                raise ValueError("the arrays of a tree have shapes that no tree has")
            return super()._construct()

    for key, kind in NODE_TYPE_MAPPING.items():
        if kind is TreeNode:
            NODE_TYPE_MAPPING[key] = CheckedTreeNode


@contextmanager
def _passed_over(names: tuple[str, ...]) -> Iterator[None]:
    """Let modules that are not there yet look as if they could not be imported."""
    absent = [name for name in names if name not in sys.modules]
    modules: dict[str, Any] = sys.modules
    modules.update(dict.fromkeys(absent))
    try:
        yield
    finally:
        for name in absent:
            modules.pop(name, None)
