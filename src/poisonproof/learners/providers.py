"""Which installed packages a member's estimators come from: their versions decide bits too."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata
from typing import Any

__all__ = ["provider_versions"]

_RECORDED = {"poisonproof", "numpy", "scipy", "sklearn", "torch"}
"""Packages whose versions every model records."""


def provider_versions(estimator: Any) -> dict[str, str]:
    """Return the versions of the packages that an estimator and its parts are written in.

    Those that every model records anyway are left out, and so is what no package provides.

    >>> from sklearn.linear_model import LogisticRegression
    >>> provider_versions(LogisticRegression())
    {}
    """
    parts = [estimator, *estimator.get_params(deep=True).values()]
    modules = (getattr(part, "__module__", None) or type(part).__module__ for part in parts)
    roots = {str(module).split(".")[0] for module in modules}
    found: dict[str, str] = {}
    for root in roots - _RECORDED - sys.stdlib_module_names:
        found |= {name: metadata.version(name) for name in _distributions().get(root, ())}
    return dict(sorted(found.items()))


@cache
def _distributions() -> dict[str, tuple[str, ...]]:
    """Return which packages provide a module; looked up once, for it reads many files."""
    provided = metadata.packages_distributions()
    return {root: tuple(sorted(set(names))) for root, names in provided.items()}
