"""``-k auto`` and ``--model auto``: from trusted rows or declared numbers, never from the data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.table import Column, Table

from poisonproof.cli._options import (
    AUTO_KINDS,
    DEFAULT_KIND,
    MEMBER_KINDS,
    ExpectedRowsOption,
    JobsOption,
    WantedRadiusOption,
    choose,
    make_member,
    parse_list,
)
from poisonproof.cli._screen import console, counted, say, verbosity
from poisonproof.data.columns import ArrayColumn, DateColumn, NumberColumn
from poisonproof.data.schema import Schema, load_schema
from poisonproof.data.sources import read_table
from poisonproof.exceptions import GuaranteeError, InvalidInputError

if TYPE_CHECKING:
    from poisonproof.evaluation.planning import LearningCurves, Plan


@dataclass(frozen=True)
class Settings:
    """What the user said about k, the members, and on what they may be chosen."""

    k: str
    model: str
    trusted: Path | None
    expected_rows: int | None
    wanted_radius: int | None
    jobs: int | None


def check_partitions(k: str) -> str:
    """Refuse what is neither a number nor auto, as typer refuses other values."""
    if k != "auto" and not k.removeprefix("-").isdecimal():
        raise typer.BadParameter(f"{k!r} is neither a number nor auto.")
    return k


def choose_settings(
    asked: Settings, data: Path, classes: tuple[str, ...], schema: Schema | None
) -> tuple[int, str]:
    """Return k and the kind of member; `data`, the untrusted source, is not read."""
    auto = "auto" in (asked.k, asked.model)
    declared = asked.expected_rows is not None or asked.wanted_radius is not None
    if not auto:
        if asked.trusted is not None or declared:
            raise InvalidInputError(
                "--trusted, --expected-rows and --wanted-radius are for -k auto and --model auto."
            )
        return int(asked.k), asked.model
    if asked.trusted is not None:
        return _from_trusted(asked, data, schema)
    if not declared:
        raise GuaranteeError(
            "k and the members cannot be chosen on the data that they are to protect against: "
            "whoever poisons it would choose too. Give rows that you trust (--trusted FILE), or "
            "numbers that you know beforehand (--expected-rows N, --wanted-radius R)."
        )
    return _from_numbers(asked, classes)


def measure_trusted(
    trusted: Path, schema: Schema, models: tuple[str, ...], jobs: int | None
) -> tuple[LearningCurves, int]:
    """Measure learning curves of these kinds of member; return them and the number of rows."""
    from poisonproof.evaluation.planning import measure_curves
    from poisonproof.progress import make_progress

    holes = _has_missing(schema)
    if holes:
        models = tuple(name for name in models if _takes_missing(name)) or models
    rows = read_table(trusted, schema, allow_missing=holes, progress=make_progress(verbosity()))
    rows.refuse_problems("Trusted rows must all fit the schema.")
    names = np.array(schema.classes)
    curves = measure_curves(
        rows.X,
        names[rows.labels],
        {name: make_member(name) for name in models},
        names,
        groups=rows.groups,
        n_jobs=jobs,
        progress=make_progress(verbosity()),
    )
    return curves, len(rows)


def _from_trusted(asked: Settings, data: Path, schema: Schema | None) -> tuple[int, str]:
    from poisonproof.evaluation.planning import make_plan

    if schema is None:
        raise InvalidInputError("--trusted needs --schema: both files are read the same way.")
    trusted = asked.trusted
    if trusted is None or (trusted.exists() and data.exists() and trusted.samefile(data)):
        raise GuaranteeError(
            f"--trusted {trusted} is the data to train on. If you trust all of it you need no "
            "certificate; if not, k must be chosen on other rows."
        )
    models = AUTO_KINDS if asked.model == "auto" else (asked.model,)
    curves, n_rows = measure_trusted(trusted, schema, models, asked.jobs)
    expected = asked.expected_rows or n_rows
    plan = make_plan(curves, expected, wanted_radius=asked.wanted_radius)
    if asked.k == "auto":
        k, model, reason = plan.proposed.n_partitions, plan.proposed.model, plan.reason
    else:
        k = int(asked.k)
        model = _best_near(plan, k)
        reason = "the largest median radius at this number"
    say(
        f"Chosen on {counted(n_rows, 'trusted row')} of {trusted}: {k:,} members ({model}), "
        f"{reason} for {expected:,} expected rows."
    )
    return k, model


def _best_near(plan: Plan, k: int) -> str:
    """Return the kind of member with the largest radius at the measured k that is nearest."""
    nearest = min((row.n_partitions for row in plan.rows), key=lambda other: abs(other - k))
    rows = [row for row in plan.rows if row.n_partitions == nearest]
    return max(rows, key=lambda row: (row.median_radius, row.accuracy)).model


def _from_numbers(asked: Settings, classes: tuple[str, ...]) -> tuple[int, str]:
    from poisonproof.evaluation.planning import declared_partitions

    k = int(asked.k) if asked.k != "auto" else None
    if k is None:
        k = declared_partitions(len(classes), asked.expected_rows, asked.wanted_radius)
    model = asked.model
    if model == "auto":
        model = DEFAULT_KIND
    say(f"Chosen from declared numbers alone: {k:,} members ({model}).")
    return k, model


def _takes_missing(name: str) -> bool:
    from sklearn.utils import get_tags

    return bool(get_tags(make_member(name)).input_tags.allow_nan)


def _has_missing(schema: Schema) -> bool:
    return any(
        isinstance(column, (NumberColumn, DateColumn, ArrayColumn)) and column.missing == "nan"
        for column in schema.columns
    )


# ``poisonproof plan``: how accuracy and radius trade off over k, on rows that you trust.

POSITION = 17
EPILOG = (
    "Examples: poisonproof plan trusted.csv --schema mails.schema.json --expected-rows 20000  |  "
    "poisonproof plan trusted.csv --schema mails.schema.json --wanted-radius 30"
)
WARNING = (
    "This rests on the rows you call trusted. Choosing k or the members on rows that an attacker "
    "may have written is outside the proof: whoever writes them chooses too."
)


def plan(
    trusted: Annotated[
        Path,
        typer.Argument(help="Rows that no attacker wrote, of the kind to be trained on."),
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
    """Show clean accuracy, radius and cost over k, and propose one.

    Members of different sizes are trained on trusted rows; from their votes follows what an
    ensemble of k members on the expected number of rows would give. Estimates, not certificates:
    the certificate comes from the trained model.
    """
    from poisonproof.evaluation.planning import make_plan

    kinds = AUTO_KINDS if models == "auto" else parse_list(models, "--model")
    for name in kinds:
        choose("--model", name, list(MEMBER_KINDS))
    curves, n_rows = measure_trusted(trusted, load_schema(schema), kinds, jobs)
    expected_rows = n_rows if expected_rows is None else expected_rows
    found = make_plan(
        curves, expected_rows, wanted_radius=wanted_radius, accuracy_loss=accuracy_loss
    )
    _print(found, curves, expected_rows)


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
