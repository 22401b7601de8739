"""How long work reports itself, without knowing who listens."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "Silent"]


class Progress(Protocol):
    """A listener that is told how much of a task is done."""

    def start(self, total: int, description: str) -> None:
        """Begin a task of `total` units."""

    def advance(self, amount: int = 1) -> None:
        """Say that `amount` more units are done."""

    def stop(self) -> None:
        """End the task, finished or not."""


class Silent:
    """The listener that says nothing."""

    def start(self, total: int, description: str) -> None:
        """Ignore the start."""

    def advance(self, amount: int = 1) -> None:
        """Ignore the step."""

    def stop(self) -> None:
        """Ignore the end."""
