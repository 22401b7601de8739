"""Command ``frontier``: the page of all methods on the published datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from poisonproof.cli._screen import check_folder, say
from poisonproof_research.cli.reproduce import RESULTS


def frontier(
    results: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder with curves.json; the page goes there, too.")
    ] = RESULTS,
) -> None:
    """Draw certified accuracy against attack size of every method, from the committed curves."""
    from poisonproof_research.frontier import published_points, read_curves, write_frontier

    check_folder(results)
    curves = read_curves(results / "curves.json")
    for path in write_frontier(
        curves, published_points(), results, "python -m poisonproof_research frontier"
    ):
        say(f"Written to {path}.")
