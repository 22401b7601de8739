"""Progress of long work, reported to a listener."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from poisonproof.exceptions import needing


class Progress:
    """A listener that hears how much of a task is done; this one ignores it."""

    def start(self, total: int, description: str) -> None:
        """Begin a task of `total` units."""

    def advance(self, amount: int = 1) -> None:
        """Count `amount` more units as done."""

    def stop(self) -> None:
        """End the task, finished or not."""


class Silent(Progress):
    """The listener that says nothing."""


class RichProgress(Progress):
    """A bar with count, elapsed time, rate and time left, drawn by rich on a terminal."""

    def __init__(self) -> None:
        with needing("rich", "cli"):
            from rich import progress as bars
            from rich.console import Console
        screen = Console(stderr=True)
        self._bars = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[rate]}"),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        )

    def start(self, total: int, description: str) -> None:
        """Draw an empty bar."""
        self._bars.start()
        self._task = self._bars.add_task(description, total=total, rate="")

    def advance(self, amount: int = 1) -> None:
        """Move the bar."""
        self._bars.advance(self._task, amount)
        speed = self._bars.tasks[self._task].speed
        self._bars.update(self._task, rate="" if speed is None else f"{speed:,.1f}/s")

    def stop(self) -> None:
        """Take the bar away."""
        self._bars.stop()
        self._bars.remove_task(self._task)


def make_progress(verbose: int) -> Progress:
    """Return a bar if `verbose` is positive, else a listener that says nothing."""
    return RichProgress() if verbose > 0 else Silent()


@contextmanager
def reporting(progress: Progress | None, total: int, description: str) -> Iterator[Progress]:
    """Tell a listener, if there is one, that a task of `total` units begins, and that it ends."""
    listener = Silent() if progress is None else progress
    listener.start(total, description)
    try:
        yield listener
    finally:
        listener.stop()
