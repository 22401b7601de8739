"""``poisonproof plan``: k and the members, chosen on trusted rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Column, Table

from poisonproof.certificates.threats import unit_noun
from poisonproof.cli._app import (
    DEFAULT_KIND,
    JobsOption,
    make_member,
    parse_list,
    takes_missing,
)
from poisonproof.cli._rows import TrainingSource
from poisonproof.cli._screen import counted, say, verbosity
from poisonproof.data.columns import ArrayColumn, DateColumn, NumberColumn
from poisonproof.data.schema import load_schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof.evaluation.planning import LearningCurves, Plan

EPILOG = (
    "Examples: poisonproof plan trusted.csv --schema mails.schema.json --expected-rows 20000  |  "
    "poisonproof plan trusted.csv --schema mails.schema.json --wanted-radius 30"
)


def plan(
    trusted: Annotated[
        Path, typer.Argument(help="Rows that no attacker wrote, of the kind to be trained on.")
    ],
    schema: Annotated[Path, typer.Option(metavar="FILE", help="The frozen schema of the rows.")],
    models: Annotated[
        str,
        typer.Option("--model", metavar="A,B,...", help="Kinds of member to compare."),
    ] = f"{DEFAULT_KIND},tree,naive-bayes,ridge",
    expected_rows: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many training rows you expect."),
    ] = None,
    wanted_radius: Annotated[
        int | None,
        typer.Option(min=1, metavar="R", help="The attack size that half of the rows withstand."),
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Show accuracy, radius and cost over k on rows that you trust, and propose one.

    Members of different sizes are trained on trusted rows; their votes tell what an ensemble of k
    members on the expected number of rows would give. Estimates, not certificates: the certificate
    comes from the trained model.
    """
    from poisonproof.evaluation.planning import make_plan, measure_curves

    kinds = {name: make_member(name) for name in parse_list(models, "--model")}
    known = load_schema(schema)
    if known.partition is not None and known.partition.n_partitions is not None:
        raise InvalidInputError(
            f"{schema} names {known.partition.n_partitions} sources, and each of them has a member "
            "of its own: there is no k to choose. Train, and look at what is certified."
        )
    holes = any(
        isinstance(column, (NumberColumn, DateColumn, ArrayColumn)) and column.missing == "nan"
        for column in known.columns
    )
    if holes:
        kinds = {name: member for name, member in kinds.items() if takes_missing(member)} or kinds
    rows = TrainingSource(known, "drop", True).read(trusted, allow_missing=holes)
    rows.refuse_problems("Trusted rows must all fit the schema.")
    names = np.array(known.classes)
    progress = make_progress(verbosity())
    curves = measure_curves(
        rows.X, names[rows.labels], kinds, names, groups=rows.groups, n_jobs=jobs, progress=progress
    )
    expected = len(rows) if expected_rows is None else expected_rows
    found = make_plan(curves, expected, wanted_radius=wanted_radius)
    _print(found, curves, expected, unit_noun(known.unit))


def _print(found: Plan, curves: LearningCurves, expected_rows: int, unit: str) -> None:
    heads = ("k", "Rows each", "Correct", f"Median radius ({unit})", "Cost")
    table = Table("Members", *(Column(head, justify="right") for head in heads))
    for row in found.rows:
        table.add_row(
            row.model,
            f"{row.n_partitions:,}",
            f"{row.rows_per_member:,}",
            f"{100 * row.accuracy:.1f} %",
            f"{row.median_radius:,}",
            f"{row.seconds:,.1f} s",
            style="bold" if row is found.proposed else None,
        )
    best = found.proposed
    say(
        table,
        f"Expected for {counted(expected_rows, 'training row')}, from members trained on "
        f"{counted(curves.n_rows, 'trusted row')} and tested on {curves.n_test:,}. Cost: one "
        "process of the machine that measured. Always predicting the commonest class gets "
        f"{100 * curves.majority_share:.1f} % right.",
        f"Proposed: -k {best.n_partitions} --model {best.model}, {found.reason}.",
    )
    if best.measured_members < 20:
        say(
            f"Only {best.measured_members} members of that size fit into the trusted rows, so its "
            "numbers are rough; more trusted rows make them better."
        )
    say(
        "This rests on the rows you call trusted. Choosing k or the members on rows that an "
        "attacker may have written is outside the proof: whoever writes them chooses too."
    )
