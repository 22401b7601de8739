"""``poisonproof update``: add and remove training rows, and account for it."""

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
    "Examples: poisonproof update model --remove withdrawn.csv --label kind --out receipt.json  |  "
    "poisonproof update model --add new.csv --label kind"
)


def update(
    model: Annotated[Path, typer.Argument(help="A model directory made by poisonproof train.")],
    add: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows to add.")] = None,
    remove: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rows to take out, one copy each.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="All training rows as they are now, for a model trained without --keep-data.",
        ),
    ] = None,
    out: JsonOption = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="FINGERPRINT", help="Update only a model with this fingerprint."),
    ] = None,
    label: LabelOption = None,
    groups: GroupsOption = None,
    weights: WeightsOption = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = None,
    trusted: TrustedOption = None,
    jobs: JobsOption = None,
) -> None:
    """Change the training set; only members whose rows change are trained again.

    The result is the model that training from scratch would give, digest by digest. No file of the
    model holds a removed row or a superseded member afterwards. Killed at any moment, the same
    command finishes the work.
    """
    if add is None and remove is None:
        raise InvalidInputError("Name rows: --add FILE, --remove FILE, or both.")
    check_out(out, suffixes=(".json",), inputs=(add, remove, data))
    from poisonproof.estimators.dpa import PartitionAggregation
    from poisonproof.estimators.storing import update_model

    trained = open_model(model, trusted)
    updatable = isinstance(trained.classifier, PartitionAggregation)
    if updatable and data is None and trained.classifier.rows_ is None:
        raise InvalidInputError(
            f"{model} was trained without --keep-data, so it does not know its rows. Name all rows "
            "that it was trained on: --data FILE."
        )
    columns = Columns(label=label, groups=groups, weights=weights, ignore=ignore, x_key=x_key)
    files = (add, remove, data)
    python = f"poisonproof.estimators.storing.update_model({str(model)!r}, add=(X, y, groups))"
    rows = [
        None if file is None else trained.read_training(file, columns, python) for file in files
    ]
    with spoken_warnings():
        receipt = update_model(
            model,
            *rows,
            expect=expect,
            trusted=parse_list(trusted, "--trusted"),
            n_jobs=jobs,
            verbose=verbosity(),
        )
    say(*receipt.sentences())
    if out is not None:
        write_bytes(out, json_bytes(receipt.to_json()))
        say(f"Written to {out}.")
