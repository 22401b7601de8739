"""Where the platform keeps what can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]

VARIABLE = "POISONPROOF_CACHE"


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of imported datasets and of features that were computed before.

    Parameters
    ----------
    cache : path, optional
        Used as it is. Otherwise the environment variable ``POISONPROOF_CACHE`` counts, then the
        place where the platform keeps caches.

    Examples
    --------
    >>> cache_folder("data").name
    'data'
    """
    if cache is not None:
        return Path(cache)
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "poisonproof"
