"""What imported datasets may be called."""

from __future__ import annotations

import re

from poisonproof.caches import cache_folder
from poisonproof.exceptions import InvalidInputError

__all__ = ["cache_folder", "checked_name"]

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def checked_name(name: str) -> str:
    """Return the name of a dataset if it can be the name of a folder everywhere."""
    if not NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} cannot name a dataset: use up to 64 of a-z, 0-9, '-' and '_', and begin "
            "with a letter or digit."
        )
    return name
