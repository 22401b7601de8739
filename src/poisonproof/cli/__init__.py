"""The command line: ``poisonproof demo``, ``train``, ``predict``, ``certify``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from poisonproof.cli._app import run  # noqa: PLC0415 - needs the extra `cli`
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"typer", "rich", "click"}:
            raise
        sys.stderr.write(
            f"Error: the command line needs {error.name}, which is not installed. "
            "Install it with: pip install 'poisonproof[cli]'\n"
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
