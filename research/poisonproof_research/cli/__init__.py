"""The command line of the laboratory: ``reproduce``, ``data`` and more."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import typer
from typer.main import get_command

from poisonproof.cli._app import explain
from poisonproof.data.value_text import escaped

NAME = "python -m poisonproof_research"
COMMANDS = ("data", "features", "reproduce", "bench", "frontier")


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code: 0, 2 for bad input, 1 for a bug."""
    app = typer.Typer(
        help=sys.modules["poisonproof_research"].__doc__,
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in COMMANDS:
        app.command(name)(getattr(import_module(f"poisonproof_research.cli.{name}"), name))
    try:
        code = get_command(app)(list(arguments), prog_name=NAME, standalone_mode=False)
    except BaseException as error:
        if os.environ.get("POISONPROOF_TRACEBACK") and isinstance(error, Exception):
            raise
        message, code = explain(error)
        if message:
            sys.stderr.write(f"{escaped(message)}\n")
    return code if isinstance(code, int) else 0
