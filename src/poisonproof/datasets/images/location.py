"""Where imported datasets lie, and what they may be called."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from poisonproof.exceptions import InvalidInputError

__all__ = ["cache_folder", "checked_name"]

VARIABLE = "POISONPROOF_CACHE"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of imported datasets.

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


def checked_name(name: str) -> str:
    """Return the name of a dataset if it can be the name of a folder everywhere."""
    if not NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot name a dataset: use up to 64 of a-z, 0-9, '-' and '_', and begin "
            "with a letter or digit."
        )
    return name
