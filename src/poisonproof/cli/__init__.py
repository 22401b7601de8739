"""The command line: ``poisonproof demo``, ``train``, ``predict``, ``certify`` and more."""

from __future__ import annotations

import sys

try:
    import rich  # noqa: F401  # every command prints with it

    from poisonproof.cli._app import main
except ModuleNotFoundError as error:
    if error.name not in ("rich", "typer"):
        raise
    _MISSING = error.name

    def main() -> None:
        """Say what is missing, and leave with the exit code of bad input."""
        sys.stderr.write(
            f"Error: the command line needs {_MISSING}, which is not installed. "
            "Install it with: pip install 'poisonproof[cli]'\n"
        )
        sys.exit(2)


__all__ = ["main"]
