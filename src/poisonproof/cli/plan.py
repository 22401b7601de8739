"""``poisonproof plan``: the method, k and the members, chosen on trusted rows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Column, Table

from poisonproof.certificates.threats import unit_noun
from poisonproof.cli._app import (
    DEFAULT_KIND,
    JobsOption,
    choose,
    make_member,
    parse_list,
    takes_missing,
)
from poisonproof.cli._methods import options_of
from poisonproof.cli._rows import TrainingSource
from poisonproof.cli._screen import (
    classes_table,
    counted,
    note,
    say,
    spoken_warnings,
    verbosity,
)
from poisonproof.data.columns import ArrayColumn, DateColumn, NumberColumn
from poisonproof.data.schema import load_schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof.evaluation.planning import LearningCurves, Plan

EPILOG = (
    "Examples: poisonproof plan trusted.csv --schema mails.schema.json --expected-rows 20000  |  "
    "poisonproof plan trusted.csv --schema mails.schema.json --wanted-radius 30  |  "
    "poisonproof plan trusted.csv --schema mails.schema.json --threat label_flip"
)


def plan(
    trusted: Annotated[
        Path, typer.Argument(help="Rows that no attacker wrote, of the kind to be trained on.")
    ],
    schema: Annotated[Path, typer.Option(metavar="FILE", help="The frozen schema of the rows.")],
    threat: Annotated[
        str, typer.Option(help="What the attacker does: insert_delete or label_flip.")
    ] = "insert_delete",
    models: Annotated[
        str,
        typer.Option("--model", metavar="A,B,...", help="Kinds of member to compare."),
    ] = f"{DEFAULT_KIND},tree,naive-bayes,ridge",
    expected_rows: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many training rows you expect."),
    ] = None,
    expected_contributors: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="How many contributors you expect, where the schema names them.",
            show_default="those of the trusted rows",
        ),
    ] = None,
    wanted_radius: Annotated[
        int | None,
        typer.Option(min=1, metavar="R", help="The attack size that half of the rows withstand."),
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Choose the method, k and the members on rows that you trust.

    Members of different sizes are trained on trusted rows; their votes tell what an ensemble of k
    members on the expected number of rows would give. Methods in which rows vote are run on the
    trusted rows. Estimates, not certificates: the certificate comes from the trained model.
    """
    from poisonproof.evaluation.planning import make_plan, measure_curves

    choose("--threat", threat, ("insert_delete", "label_flip"))
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
    rows = TrainingSource(known, "drop", known).read(trusted, allow_missing=holes)
    rows.refuse_problems("Trusted rows must all fit the schema.")
    if expected_contributors is not None and rows.groups is None:
        raise InvalidInputError(
            f"--expected-contributors: {schema} names no contributors, so the radius counts rows. "
            "Leave it out, or plan with a schema made with --groups."
        )
    names = np.array(known.classes)
    with spoken_warnings():
        curves = measure_curves(
            rows.X,
            names[rows.labels],
            kinds,
            names,
            threat=threat,
            groups=rows.groups,
            n_jobs=jobs,
            progress=make_progress(verbosity()),
        )
    for problem in curves.left_out:
        note(problem)
    expected = len(rows) if expected_rows is None else expected_rows
    found = make_plan(
        curves,
        expected,
        expected_contributors=expected_contributors,
        wanted_radius=wanted_radius,
    )
    units = expected_contributors or curves.n_units
    by = "" if units is None else f" of {units:,} {unit_noun(known.unit, units)}"
    _print(found, curves, expected, by)
    best = found.proposed
    model = best.point.model if best.n_partitions else DEFAULT_KIND
    words = ["poisonproof", "train", "DATA", "--schema", str(schema), "--threat", threat]
    words += options_of(best.classifier, model) or []
    say(f"Next: {shlex.join([*words, '--out', 'model'])}")


def _print(found: Plan, curves: LearningCurves, expected_rows: int, by: str) -> None:
    heads = ("k", "Rows each", "Correct", "Balanced", "Radius", "Cost")
    table = Table("Members or rows", *(Column(head, justify="right") for head in heads))
    best = found.proposed
    unit = best.summary.threat.noun(2)
    for row in found.frontier:
        table.add_row(
            row.point.model,
            "" if row.n_partitions is None else f"{row.n_partitions:,}",
            "" if row.n_partitions is None else f"{expected_rows // row.n_partitions:,}",
            f"{100 * row.accuracy:.1f} %",
            f"{100 * row.summary.balanced_accuracy:.1f} %",
            f"{row.median_radius:,}",
            f"{row.seconds:,.1f} s",
            style="bold" if row.summary is best.summary else None,
        )
    say(
        table,
        f"{counted(len(found.rows), 'setting')} measured; the table shows those that no other "
        "beats in both accuracy and radius. Expected for "
        f"{counted(expected_rows, 'training row')}{by}, from "
        f"{counted(curves.n_rows, 'trusted row')} to train on and {curves.n_test:,} to test. "
        f"Radius: the median of all test rows, in {unit}; wrong predictions count as none. Cost: "
        "one process of the machine that measured.",
    )
    say(f"Proposed: {best}, {found.reason}.")
    if best.n_partitions is None:
        say(
            f"Its accuracy was measured on {counted(best.point.n_rows, 'row')} and is left as it "
            f"was; its radii are multiplied by {best.factor:.3g}"
            + (", as votes of rows grow with the rows." if best.factor != 1 else "."),
        )
    few = best.point.n_members
    if few is not None and few < 20:
        say(
            f"Only {few} members of that size fit into the trusted rows, so its "
            "numbers are rough; more trusted rows make them better."
        )
    if best.summary.n_rows < 100:
        say(f"Only {best.summary.n_rows} trusted rows to test, so all numbers are rough.")
    say(
        classes_table(best.summary),
        *best.summary.standing,
        "This rests on the rows you call trusted. Choosing the method, k or the members on rows "
        "that an attacker may have written is outside the proof: whoever writes them chooses too.",
    )
