"""What besides data and specification can change a member's bits: software and processor."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

ELSEWHERE = "elsewhere"
"""Where an environment lists the others that trained some of the members."""

_PARTS = {"numpy.libs", "scipy.libs", "numpy", "scipy"}
_PACKAGES = ("poisonproof", "numpy", "scipy", "scikit-learn", "torch")


def fingerprint() -> dict[str, Any]:
    """Return library versions, the linear algebra in use and the processor's instruction set.

    >>> sorted(fingerprint())
    ['blas', 'instructions', 'machine', 'packages', 'python', 'system']
    """
    return deepcopy(_found())


@cache
def _found() -> dict[str, Any]:
    """Look once: nothing of this changes while a process runs."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": {name: installed_version(name) for name in _PACKAGES},
        "blas": sorted(
            {
                " ".join(str(library.get(k)) for k in ("internal_api", "version", "architecture"))
                for library in threadpool_info()
                # Others come and go with what a process happens to import.
                if library["user_api"] == "blas" and _PARTS & set(Path(library["filepath"]).parts)
            }
        ),
        "instructions": _instructions(),
    }


def differences(other: Mapping[str, Any]) -> list[str]:
    """Name everything in which this machine is not the one that `other` describes.

    >>> differences(fingerprint())
    []
    >>> differences({**fingerprint(), "python": "2.7"})[0].startswith("python 2.7 (here ")
    True
    """
    here = fingerprint()
    found = []
    for key in sorted({*here, *other} - {"packages", "instructions", ELSEWHERE}):
        if here.get(key) != other.get(key):
            found.append(f"{key} {other.get(key)} (here {here.get(key)})")
    packages, theirs = here["packages"], other.get("packages") or {}
    for name in sorted({*packages, *theirs}):
        if packages.get(name) != theirs.get(name):
            found.append(f"{name} {theirs.get(name)} (here {packages.get(name)})")
    missing = sorted(set(other.get("instructions") or ()) ^ set(here["instructions"]))
    if missing:
        found.append(f"the instruction set (not on both machines: {', '.join(missing)})")
    for group in other.get(ELSEWHERE) or ():
        found.append(f"{len(group['members']):,} members trained by workers of another kind")
    return found


def with_elsewhere(
    environment: Mapping[str, Any], elsewhere: Mapping[int, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return an environment that lists who else trained which members.

    >>> with_elsewhere({}, {3: {"python": "3.12"}, 1: {"python": "3.12"}})
    {'elsewhere': [{'environment': {'python': '3.12'}, 'members': [1, 3]}]}
    """
    groups: dict[str, list[int]] = {}
    for index in sorted(elsewhere):
        groups.setdefault(json.dumps(elsewhere[index], sort_keys=True), []).append(index)
    listed = [{"environment": json.loads(text), "members": groups[text]} for text in sorted(groups)]
    return {**environment, ELSEWHERE: listed} if listed else dict(environment)


def installed_version(package: str) -> str | None:
    """Return the version of a distribution, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _instructions() -> list[str]:
    found = np.show_config(mode="dicts")["SIMD Extensions"]
    return sorted([*found.get("baseline", []), *found.get("found", [])])
