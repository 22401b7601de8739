"""What besides data and specification can change a member's bits: software and processor."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

__all__ = ["fingerprint"]

_PACKAGES = ("poisonproof", "numpy", "scipy", "scikit-learn", "torch")


def fingerprint() -> dict[str, Any]:
    """Return library versions, the linear algebra in use and the processor's instruction set.

    >>> sorted(fingerprint())
    ['blas', 'instructions', 'machine', 'packages', 'python', 'system']
    """
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "blas": sorted(
            " ".join(str(library.get(key)) for key in ("internal_api", "version", "architecture"))
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ),
        "instructions": _instructions(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _instructions() -> list[str]:
    found = np.show_config(mode="dicts")["SIMD Extensions"]
    return sorted([*found.get("baseline", []), *found.get("found", [])])
