"""``poisonproof plan``: how accuracy and radius trade off over k, on rows that you trust."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from poisonproof.cli._choice import measure_trusted
from poisonproof.cli._members import AUTO_KINDS, DEFAULT_KIND, MEMBER_KINDS
from poisonproof.cli._options import (
    ExpectedRowsOption,
    JobsOption,
    WantedRadiusOption,
    choose,
    parse_list,
)
from poisonproof.cli._output import check_out
from poisonproof.cli._text import console, counted, say
from poisonproof.exceptions import InvalidInputError
from poisonproof.schema import load_schema

if TYPE_CHECKING:
    from poisonproof.planning import LearningCurves, Plan

__all__ = ["plan"]

POSITION = 17
EPILOG = (
    "Examples: poisonproof plan trusted.csv --schema mails.schema.json --expected-rows 20000 "
    "--out curves.json  |  poisonproof plan curves.json --expected-rows 50000 --wanted-radius 30"
)
WARNING = (
    "This rests on the rows you call trusted. Choosing k or the members on rows that an attacker "
    "may have written is outside the proof: whoever writes them chooses too."
)


def plan(
    trusted: Annotated[
        Path,
        typer.Argument(
            help="Rows that no attacker wrote, of the kind to be trained on; or learning curves "
            "(.json) that were measured before."
        ),
    ],
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The frozen schema of the rows.")
    ] = None,
    models: Annotated[
        str,
        typer.Option("--model", metavar="A,B,...", help="Kinds of member to compare."),
    ] = f"{DEFAULT_KIND},tree,naive-bayes,ridge",
    expected_rows: ExpectedRowsOption = None,
    wanted_radius: WantedRadiusOption = None,
    accuracy_loss: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Without --wanted-radius: accuracy that may be given up."
        ),
    ] = 0.05,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the learning curves: a .json file.")
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Show clean accuracy, radius and cost over k, and propose one.

    Members of different sizes are trained on trusted rows; from their votes follows what an
    ensemble of k members on the expected number of rows would give. Estimates, not certificates:
    the certificate comes from the trained model.
    """
    from poisonproof.planning import load_curves, make_plan, save_curves

    check_out(out, suffixes=(".json",), inputs=(trusted,))
    if trusted.suffix.lower() == ".json":
        if expected_rows is None:
            raise InvalidInputError("Say how many rows you expect: --expected-rows N.")
        curves = load_curves(trusted)
    else:
        if schema is None:
            raise InvalidInputError("Name the frozen schema of these rows: --schema FILE.")
        kinds = AUTO_KINDS if models == "auto" else parse_list(models, "--model")
        for name in kinds:
            choose("--model", name, list(MEMBER_KINDS))
        curves, n_rows = measure_trusted(trusted, load_schema(schema), kinds, jobs)
        expected_rows = n_rows if expected_rows is None else expected_rows
    found = make_plan(
        curves, expected_rows, wanted_radius=wanted_radius, accuracy_loss=accuracy_loss
    )
    if out is not None:
        save_curves(curves, out)
    _print(found, curves, expected_rows)
    if out is not None:
        say(f"Learning curves written to {out}.")


def _print(found: Plan, curves: LearningCurves, expected_rows: int) -> None:
    unit = "contributors" if curves.unit == "group" else "rows"
    heads = ["Members", "k", "Rows each", "Correct", f"Median radius ({unit})", "Cost"]
    wanted = found.proposed.certified is not None
    if wanted:
        heads.insert(5, "Certified")
    table = Table(heads[0], *(Column(head, justify="right") for head in heads[1:]))
    for row in found.rows:
        cells = [
            row.model,
            f"{row.n_partitions:,}",
            f"{row.rows_per_member:,}",
            f"{100 * row.accuracy:.1f} %",
            f"{row.median_radius:,}",
            f"{row.seconds:,.1f} s",
        ]
        if wanted:
            cells.insert(5, f"{100 * (row.certified or 0.0):.1f} %")
        table.add_row(*cells, style="bold" if row is found.proposed else None)
    console().print(table)
    best = found.proposed
    say(
        f"Expected for {counted(expected_rows, 'training row')}, from members trained on "
        f"{counted(curves.n_rows, 'trusted row')} and tested on {curves.n_test:,}. Cost: one "
        "process of the machine that measured.",
        f"Proposed: -k {best.n_partitions} --model {best.model}, {found.reason}.",
    )
    if best.measured_members < 20:
        say(
            f"Only {best.measured_members} members of that size fit into the trusted rows, so its "
            "line is rough; more trusted rows make it better."
        )
    say(WARNING)
