"""``poisonproof audit``: check that a model is what its data makes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from poisonproof.cli._app import (
    GroupsOption,
    IgnoreOption,
    JobsOption,
    JsonOption,
    LabelOption,
    ModelArgument,
    SamplesOption,
    TrustedOption,
    WeightsOption,
    parse_list,
)
from poisonproof.cli._rows import Columns, open_model
from poisonproof.cli._screen import check_out, json_bytes, say, spoken_warnings, verbosity
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_bytes

EPILOG = (
    "Examples: poisonproof audit model --data mails.csv --label kind --sample 20  |  "
    "poisonproof audit model --fingerprint 4d9d32fa..."
)
FAILED = 3
"""Exit code of an audit that found something."""


def audit(
    model: ModelArgument,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The training rows. By default those kept in the model."),
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
        typer.Option(min=0, help="Chooses the members; unpredictable by default."),
    ] = None,
    out: JsonOption = None,
    label: LabelOption = None,
    groups: GroupsOption = None,
    weights: WeightsOption = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = None,
    trusted: TrustedOption = None,
    jobs: JobsOption = None,
) -> None:
    """Check a model: its files, its rows, and members trained again.

    Says in words what was verified and what was not. The exit code is 3 if something is wrong.
    """
    from poisonproof.estimators.auditing import audit_model

    check_out(out, suffixes=(".json",), inputs=(data,))
    if sample != "all" and (not sample.isdecimal() or int(sample) < 1):
        raise InvalidInputError(f"--sample is 'all' or an integer of at least 1. Got {sample!r}.")
    trained = open_model(model, trusted)
    columns = Columns(label=label, groups=groups, weights=weights, ignore=ignore, x_key=x_key)
    python = f"poisonproof.estimators.auditing.audit_model({str(model)!r}, (X, y, groups))"
    rows = None if data is None else trained.read_training(data, columns, python)
    with spoken_warnings():
        report = audit_model(
            model,
            rows,
            sample="all" if sample == "all" else int(sample),
            fingerprint=fingerprint,
            seed=seed,
            trusted=parse_list(trusted, "--trusted"),
            n_jobs=jobs,
            verbose=verbosity(),
        )
    say(*report.sentences())
    if out is not None:
        write_bytes(out, json_bytes(report.to_json()))
        say(f"Written to {out}.")
    if not report.passed:
        say("The audit FAILED.")
        raise typer.Exit(FAILED)
    unknown = [finding.check.lower() for finding in report.findings if finding.passed is None]
    left = f" Not verified: {', '.join(unknown)}." if unknown else ""
    say(f"The audit found nothing wrong.{left}")
