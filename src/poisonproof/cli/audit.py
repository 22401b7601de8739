"""``poisonproof audit``: whether a model is what its data makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from poisonproof.cli._options import IgnoreOption, JobsOption, LabelOption, SamplesOption
from poisonproof.cli._rows import (
    GroupsOption,
    LabelledColumns,
    WeightsOption,
    open_model,
    read_labelled,
)
from poisonproof.cli._screen import check_out, say, spoken_warnings, verbosity
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_bytes

POSITION = 70
EPILOG = (
    "Examples: poisonproof audit model --data mails.csv --label kind --sample 20  |  "
    "poisonproof audit model --fingerprint 4d9d32fa..."
)
FAILED = 3
"""Exit code of an audit that found something."""


def audit(
    model: Annotated[Path, typer.Argument(help="A model made by poisonproof train.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The training rows. By default those the model keeps itself."
        ),
    ] = None,
    sample: Annotated[
        str, typer.Option(metavar="NUMBER|all", help="How many members to train again.")
    ] = "20",
    fingerprint: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="The model's fingerprint, obtained elsewhere."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Chooses the members; by default nobody can foresee which."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the report as .json."),
    ] = None,
    label: LabelOption = None,
    groups: GroupsOption = None,
    weights: WeightsOption = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = "X",
    jobs: JobsOption = None,
) -> None:
    """Check a model: its files, its rows, and members trained again.

    Says in words what was verified and what was not. The exit code is 3 if something is wrong.
    """
    check_out(out, suffixes=(".json",), inputs=(data,))
    wanted = _sample(sample)
    trained = open_model(model, jobs=None, verbose=0)
    columns = LabelledColumns(label, groups, weights, ignore, x_key)
    rows = None if data is None else read_labelled(trained, data, columns)

    from poisonproof.estimators.auditing import audit_model

    with spoken_warnings():
        report = audit_model(
            model,
            rows,
            sample=wanted,
            fingerprint=fingerprint,
            seed=seed,
            n_jobs=jobs,
            verbose=verbosity(),
        )
    say(*report.sentences())
    if out is not None:
        write_bytes(out, json.dumps(report.to_json(), indent=1).encode() + b"\n")
        say(f"Report written to {out}.")
    if not report.passed:
        say("The audit FAILED.")
        raise typer.Exit(FAILED)
    unknown = [finding.check.lower() for finding in report.findings if finding.passed is None]
    left = f" Not verified: {', '.join(unknown)}." if unknown else ""
    say(f"The audit found nothing wrong.{left}")


def _sample(text: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(f"--sample is 'all' or a number from 1 on. Got {text!r}.")
    return int(text)
