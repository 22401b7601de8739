"""``poisonproof predict``: labels for new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Column, Table

from poisonproof.certificates.plurality import count_votes, plurality
from poisonproof.certificates.result import class_indices
from poisonproof.cli._app import (
    IgnoreOption,
    JobsOption,
    LabelOption,
    ModelArgument,
    RowsArgument,
    SamplesOption,
    TrustedOption,
)
from poisonproof.cli._rows import Columns, open_model
from poisonproof.cli._screen import (
    check_out,
    column_bytes,
    counted,
    say,
    say_written,
    shown,
    spoken_warnings,
    verbosity,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_together

EPILOG = "Example: poisonproof predict model new.csv --out labels.csv"


def predict(
    model: ModelArgument,
    data: RowsArgument,
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
    x_key: SamplesOption = None,
    trusted: TrustedOption = None,
    jobs: JobsOption = None,
) -> None:
    """Predict the label of every row by a vote of the members.

    Feature columns are found by their names, in any order. A label column, if the file has one, is
    named by --label and not used. A model trained with --schema reads by that schema; what is
    written then begins with the line, row or file.
    """
    check_out(out, inputs=(data,))
    check_out(votes_out, suffixes=(".npz",), inputs=(data,))
    trained = open_model(model, trusted, jobs, verbosity())
    classifier, classes = trained.classifier, np.array(trained.classes)
    rows, _ = trained.read(data, Columns(label=label, ignore=ignore, x_key=x_key))
    members_vote = hasattr(classifier, "votes")
    if votes_out is not None and not members_vote:
        raise InvalidInputError(
            f"{model} is a {type(classifier).__name__}: single rows vote in it, and there are no "
            "members whose votes --votes-out could write."
        )
    with spoken_warnings():
        if members_vote:
            votes = classifier.votes(rows.X)
            counts = count_votes(votes, len(classes))
            winners, _ = plurality(counts)
        else:
            certified = classifier.certify(rows.X)
            winners = class_indices(certified.labels, classifier.classes_, len(classes))
            counts = certified.counts
    labels = classes[winners]
    files: dict[Path, bytes] = {}
    if out is not None:
        place = {} if trained.table is None else {rows.unit: rows.places}
        given = counts[np.arange(len(labels)), winners]
        files[out] = column_bytes(out, {**place, "label": labels, "votes": given})
    if votes_out is not None:
        files[votes_out] = column_bytes(votes_out, {"votes": votes, "classes": classes})
    write_together(files)
    table = Table("Predicted label", Column("Rows", justify="right"))
    for name in trained.classes:
        table.add_row(shown(name), f"{int((labels == name).sum()):,}")
    many = (votes.shape[1], "member") if members_vote else (classifier.n_rows_, "training row")
    say(table, f"{counted(len(labels), 'row')} of {data} labelled by a vote of {counted(*many)}.")
    say_written(files)
