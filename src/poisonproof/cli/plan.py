"""``poisonproof plan``, and ``auto`` of train: k and the members chosen on trusted rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Column, Table

from poisonproof.cli._app import (
    AUTO_KINDS,
    DEFAULT_KIND,
    MEMBER_KINDS,
    ExpectedRowsOption,
    JobsOption,
    WantedRadiusOption,
    choose,
    make_member,
    parse_list,
    takes_missing,
)
from poisonproof.cli._rows import TrainingSource
from poisonproof.cli._screen import counted, say, verbosity
from poisonproof.data.columns import ArrayColumn, DateColumn, NumberColumn
from poisonproof.data.schema import Schema, load_schema
from poisonproof.exceptions import GuaranteeError, InvalidInputError
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
    expected_rows: ExpectedRowsOption = None,
    wanted_radius: WantedRadiusOption = None,
    accuracy_loss: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Without --wanted-radius: accuracy that may be given up."
        ),
    ] = 0.05,
    jobs: JobsOption = None,
) -> None:
    """Show accuracy, radius and cost over k on rows that you trust, and propose one.

    Members of different sizes are trained on trusted rows; their votes tell what an ensemble of k
    members on the expected number of rows would give. Estimates, not certificates: the certificate
    comes from the trained model.
    """
    from poisonproof.evaluation.planning import make_plan

    kinds = AUTO_KINDS if models == "auto" else parse_list(models, "--model")
    for name in kinds:
        choose("--model", name, list(MEMBER_KINDS))
    curves, n_rows = _measure(trusted, load_schema(schema), kinds, jobs)
    expected = n_rows if expected_rows is None else expected_rows
    found = make_plan(curves, expected, wanted_radius=wanted_radius, accuracy_loss=accuracy_loss)
    _print(found, curves, expected)


def check_partitions(k: str) -> str:
    """Refuse what is neither a number nor auto, as typer refuses other values."""
    if k != "auto" and not k.removeprefix("-").isdecimal():
        raise typer.BadParameter(f"{k!r} is neither a number nor auto.")
    return k


def choose_settings(
    source: TrainingSource,
    data: Path,
    k: str,
    model: str,
    trusted: Path | None,
    expected_rows: int | None,
    wanted_radius: int | None,
    jobs: int | None,
) -> tuple[int, str]:
    """Return k and the kind of member; `data`, the untrusted source, is not read."""
    declared = expected_rows is not None or wanted_radius is not None
    if "auto" not in (k, model):
        if trusted is not None or declared:
            raise InvalidInputError(
                "--trusted, --expected-rows and --wanted-radius are for -k auto and --model auto."
            )
        return int(k), model
    if trusted is None:
        if not declared:
            raise GuaranteeError(
                "k and the members cannot be chosen on the data that they are to protect against: "
                "whoever poisons it would choose too. Give rows that you trust (--trusted FILE), "
                "or numbers that you know beforehand (--expected-rows N, --wanted-radius R)."
            )
        from poisonproof.evaluation.planning import declared_partitions

        n_classes = len(source.classes)
        n = declared_partitions(n_classes, expected_rows, wanted_radius) if k == "auto" else int(k)
        kind = DEFAULT_KIND if model == "auto" else model
        say(f"Chosen from declared numbers alone: {n:,} members ({kind}).")
        return n, kind
    if source.table is None:
        raise InvalidInputError("--trusted needs --schema: both files are read the same way.")
    if trusted.exists() and data.exists() and trusted.samefile(data):
        raise GuaranteeError(
            f"--trusted {trusted} is the data to train on. If you trust all of it you need no "
            "certificate; if not, k must be chosen on other rows."
        )
    from poisonproof.evaluation.planning import make_plan

    kinds = AUTO_KINDS if model == "auto" else (model,)
    curves, n_rows = _measure(trusted, source.table, kinds, jobs)
    expected = expected_rows or n_rows
    found = make_plan(curves, expected, wanted_radius=wanted_radius)
    best, reason = found.proposed, found.reason
    if k != "auto":  # the best kind at the measured number of members that is nearest
        near = min((row.n_partitions for row in found.rows), key=lambda n: abs(n - int(k)))
        rows = [row for row in found.rows if row.n_partitions == near]
        best = max(rows, key=lambda row: (row.median_radius, row.accuracy))
        reason = "the largest median radius at this number"
    n = best.n_partitions if k == "auto" else int(k)
    say(
        f"Chosen on {counted(n_rows, 'trusted row')} of {trusted}: {n:,} members ({best.model}), "
        f"{reason} for {expected:,} expected rows."
    )
    return n, best.model


def _measure(
    trusted: Path, schema: Schema, kinds: tuple[str, ...], jobs: int | None
) -> tuple[LearningCurves, int]:
    """Measure learning curves of these kinds of member; return them and the number of rows."""
    from poisonproof.evaluation.planning import measure_curves

    holes = any(
        isinstance(column, (NumberColumn, DateColumn, ArrayColumn)) and column.missing == "nan"
        for column in schema.columns
    )
    if holes:
        kinds = tuple(name for name in kinds if takes_missing(make_member(name))) or kinds
    rows = TrainingSource(schema, "drop", True).read(trusted, allow_missing=holes)
    rows.refuse_problems("Trusted rows must all fit the schema.")
    names = np.array(schema.classes)
    curves = measure_curves(
        rows.X,
        names[rows.labels],
        {name: make_member(name) for name in kinds},
        names,
        groups=rows.groups,
        n_jobs=jobs,
        progress=make_progress(verbosity()),
    )
    return curves, len(rows)


def _print(found: Plan, curves: LearningCurves, expected_rows: int) -> None:
    unit = "contributors" if curves.unit == "group" else "rows"
    wanted = found.proposed.certified is not None
    heads = ["k", "Rows each", "Correct", f"Median radius ({unit})", *["Certified"] * wanted]
    table = Table("Members", *(Column(head, justify="right") for head in [*heads, "Cost"]))
    for row in found.rows:
        table.add_row(
            row.model,
            f"{row.n_partitions:,}",
            f"{row.rows_per_member:,}",
            f"{100 * row.accuracy:.1f} %",
            f"{row.median_radius:,}",
            *[f"{100 * (row.certified or 0.0):.1f} %"] * wanted,
            f"{row.seconds:,.1f} s",
            style="bold" if row is found.proposed else None,
        )
    best = found.proposed
    say(
        table,
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
    say(
        "This rests on the rows you call trusted. Choosing k or the members on rows that an "
        "attacker may have written is outside the proof: whoever writes them chooses too."
    )
