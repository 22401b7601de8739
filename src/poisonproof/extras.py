"""Imports of what only an extra installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from poisonproof.exceptions import MissingExtraError

__all__ = ["needing"]


@contextmanager
def needing(package: str, extra: str) -> Iterator[None]:
    """Name the extra to install if what is imported inside is not there.

    >>> with needing("levitation", "magic"):
    ...     import levitation
    Traceback (most recent call last):
    poisonproof.exceptions.MissingExtraError: levitation is not installed. Install it with: ...
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(package, extra) from error
