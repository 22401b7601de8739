"""Every way to fail, as one line and an exit code."""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.main import get_command

import poisonproof
from poisonproof.data.value_text import escaped
from poisonproof.exceptions import PoisonproofError

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


# The application: finds the commands, runs one, turns every failure into one line.

SUMMARY = (
    "Classifiers with a proof: no attacker who poisons up to N training rows can change "
    "a prediction."
)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code: 0, 2 for bad input, 1 for a bug.

    Parameters
    ----------
    arguments : sequence of str
        What the user typed after ``poisonproof``.
    """
    try:
        command = get_command(build_app())
        _arrange_help(command)
        code = command(list(arguments), prog_name="poisonproof", standalone_mode=False)
    except BaseException as error:
        if os.environ.get("POISONPROOF_TRACEBACK") and isinstance(error, Exception):
            raise
        message, code = explain(error)
        if message:
            sys.stderr.write(f"{escaped(message)}\n")
    return code if isinstance(code, int) else 0


def build_app() -> typer.Typer:
    """Return the application with one command for every public module of this package."""
    app = typer.Typer(
        help=SUMMARY,
        epilog="Start with: poisonproof demo",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=SUMMARY)(_root)
    for module in _commands():
        name = module.__name__.rpartition(".")[2]
        app.command(name, epilog=_listed(module.EPILOG))(getattr(module, name))
    return app


def _listed(examples: str) -> str:
    """Return examples that are written in one line, ``|`` between them, as a list to copy from."""
    head, _, commands = examples.partition(": ")
    lines = "\n".join(f"- `{command}`" for command in commands.split("  |  "))
    return f"{head}:\n\n{lines}"


def _arrange_help(app: Any) -> None:
    """Show flags without a value, and the options of a command in its groups, ``PANELS``."""
    for name, command in [("", app), *app.commands.items()]:
        module = import_module(f"poisonproof.cli.{name}") if name else None
        panels = getattr(module, "PANELS", {})
        titles = {option: title for title, options in panels.items() for option in options}
        for option in command.params:
            if getattr(option, "is_flag", False):
                option.metavar = ""
            if option.name in titles:
                option.rich_help_panel = titles[option.name]


def command_names() -> list[str]:
    """Return the names of the public modules of this package: each is a command."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    return [module.name for module in found if not module.name.startswith("_")]


def _commands() -> list[ModuleType]:
    modules = [import_module(f"poisonproof.cli.{name}") for name in command_names()]
    return sorted(modules, key=lambda module: (module.POSITION, module.__name__))


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"poisonproof {poisonproof.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Hold the options that stand before the command."""
