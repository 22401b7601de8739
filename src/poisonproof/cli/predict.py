"""``poisonproof predict``: labels for new rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Column, Table

import poisonproof
from poisonproof.cli._options import (
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    parse_list,
)
from poisonproof.cli._rows import AskedRows, open_model
from poisonproof.cli._screen import (
    check_out,
    column_bytes,
    console,
    counted,
    say,
    shown,
    spoken_warnings,
    verbosity,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_together

POSITION = 30
EPILOG = "Example: poisonproof predict model new.csv --out labels.csv"


def predict(
    model: Annotated[Path, typer.Argument(help="A model made by poisonproof train.")],
    data: Annotated[
        Path,
        typer.Argument(help="Rows: .csv, .tsv, .parquet, .npz, .npy, or a folder of images."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write label and votes of every row: .csv, .parquet, .npz."
        ),
    ] = None,
    votes_out: Annotated[
        Path | None,
        typer.Option(help="Write every member's vote to a .npz file, for certify --votes."),
    ] = None,
    label: LabelOption = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = "X",
    jobs: JobsOption = None,
) -> None:
    """Predict the label of every row by a vote of the members.

    Feature columns are found by their names, in any order. A label column, if the file has one, is
    named by --label and not used. A model trained with --schema reads by that schema; what is
    written then begins with the line, row or file.
    """
    check_out(out, inputs=(data,))
    check_out(votes_out, suffixes=(".npz",), inputs=(data,))
    trained = open_model(model, jobs=jobs, verbose=verbosity())
    rows = trained.read(AskedRows(data, label, parse_list(ignore, "--ignore"), x_key))
    classes = np.array(trained.classes)
    if votes_out is not None and not hasattr(trained.classifier, "votes"):
        raise InvalidInputError(
            f"{model} is a {type(trained.classifier).__name__}: single rows vote in it, and there "
            "are no members whose votes --votes-out could write."
        )
    with spoken_warnings():
        if hasattr(trained.classifier, "votes"):
            votes = trained.classifier.votes(rows.X)
            result = poisonproof.certify_votes(votes, len(classes))
        else:
            result = replace(trained.classifier.certify(rows.X), classes=None)
    labels = classes[result.labels]
    given = result.counts[np.arange(len(rows)), result.labels]
    files: dict[Path, bytes] = {}
    if out is not None:
        place = {} if trained.table is None else {rows.unit: rows.places}
        files[out] = column_bytes(out, {**place, "label": labels, "votes": given})
    if votes_out is not None:
        files[votes_out] = column_bytes(votes_out, {"votes": votes, "classes": classes})
    write_together(files)
    table = Table("Predicted label", Column("Rows", justify="right"))
    for name in trained.classes:
        table.add_row(shown(name), f"{int((labels == name).sum()):,}")
    console().print(table)
    ensemble = hasattr(trained.classifier, "votes")
    voters = (
        counted(result.n_members, "member")
        if ensemble
        else counted(trained.classifier.n_rows_, "training row")
    )
    say(f"{counted(len(rows), 'row')} of {data} labelled by a vote of {voters}.")
    say(*(f"Written to {path}." for path in files))
