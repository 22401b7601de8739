"""skops, imported without what it does not need.

To know scikit-learn's estimators skops walks through all packages of scikit-learn, and two that
hold none are wrappers of torch and Dask, which take longer to import than a model to read.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["skops_io"]

_WRAPPERS = tuple(f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask"))


def skops_io() -> Any:
    """Return the module ``skops.io``."""
    if "skops.io" not in sys.modules:
        with _passed_over(_WRAPPERS):
            import_module("skops.io")
    return import_module("skops.io")  # waits, if another thread is importing it


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
