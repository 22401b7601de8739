"""The command line: ``poisonproof demo``, ``train``, ``predict``, ``certify`` and more."""

from __future__ import annotations

import sys
from importlib import import_module

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit code."""
    for package in ("typer", "rich"):
        try:
            import_module(package)
        except ImportError:
            sys.stderr.write(
                f"Error: the command line needs {package}, which is not installed. "
                "Install it with: pip install 'poisonproof[cli]'\n"
            )
            sys.exit(2)
    sys.exit(import_module("poisonproof.cli._app").run(sys.argv[1:]))
