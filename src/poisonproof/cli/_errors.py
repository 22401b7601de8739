"""Every way to fail, as one line and an exit code."""

from __future__ import annotations

from typing import Any

import typer

from poisonproof.exceptions import PoisonproofError

__all__ = ["BAD_INPUT", "BUG", "INTERRUPTED", "explain"]

BAD_INPUT = 2
BUG = 1
INTERRUPTED = 130

# typer brings its own copy of click, older releases use the real one; both have this ancestor.
_UsageError: Any = typer.BadParameter.__mro__[2]


def explain(error: BaseException) -> tuple[str, int]:
    """Return the line to print and the exit code.

    Examples
    --------
    >>> explain(FileNotFoundError(2, "No such file or directory", "mails.csv"))
    ('Error: mails.csv: No such file or directory.', 2)
    """
    if isinstance(error, SystemExit):
        return "", error.code if isinstance(error.code, int) else BUG
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "Interrupted.", INTERRUPTED
    if isinstance(error, _UsageError):
        # Without a word after it, a command has printed its help already.
        return _explain_usage(error) if error.format_message() else "", BAD_INPUT
    if isinstance(error, PoisonproofError):
        return f"Error: {_one_line(error)}", BAD_INPUT
    if isinstance(error, OSError):
        words = error.strerror or _one_line(error)
        where = f"{error.filename}: " if error.filename else ""
        return f"Error: {where}{words}.", BAD_INPUT
    if isinstance(error, MemoryError):
        notes = " ".join(getattr(error, "__notes__", ()))
        return f"Error: not enough memory. {_one_line(error)} {notes}".rstrip(), BUG
    return (
        f"Error: {type(error).__name__}: {_one_line(error)} (this is a bug in poisonproof; set "
        "POISONPROOF_TRACEBACK=1 to see where)",
        BUG,
    )


def _explain_usage(error: Any) -> str:
    message = _one_line(error.format_message())
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "poisonproof"
    return f"Error: {message.rstrip('.')}. See: {command} --help"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
