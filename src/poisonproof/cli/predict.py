"""``poisonproof predict``: labels for new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Column, Table

from poisonproof.certificates.plurality import certify_votes
from poisonproof.certificates.result import class_indices
from poisonproof.cli._app import (
    ElectionOption,
    FeaturesOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    ModelArgument,
    RowsArgument,
    SamplesOption,
    TrustedOption,
    parse_list,
)
from poisonproof.cli._rows import Columns, open_model
from poisonproof.cli._screen import (
    check_out,
    column_bytes,
    counted,
    radius_at,
    say,
    say_written,
    shown,
    spoken_warnings,
    verbosity,
)
from poisonproof.data.rows import CheckedRows
from poisonproof.data.schema import Schema
from poisonproof.data.sources import read_texts
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_together

EPILOG = "Example: poisonproof predict model new.csv --id order,customer --out labels.csv"


def predict(
    model: ModelArgument,
    data: RowsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write label, votes and radius of every row: .csv, .parquet, .npz."
        ),
    ] = None,
    votes_out: Annotated[
        Path | None,
        typer.Option(help="Write every member's vote to a .npz file, for certify --votes."),
    ] = None,
    at_features: FeaturesOption = None,
    label: LabelOption = None,
    ignore: IgnoreOption = None,
    id_columns: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="A,B,...", help="Columns to pass through to --out, features or not."
        ),
    ] = None,
    election: ElectionOption = "plurality",
    x_key: SamplesOption = None,
    trusted: TrustedOption = None,
    jobs: JobsOption = None,
) -> None:
    """Predict the label of every row by a vote of the members.

    Feature columns are found by their names, in any order. A label column, if the file has one, is
    named by --label and not used. A model trained with --schema reads by that schema. What is
    written has one line for every row of the file, in its order: line, row or file, the columns of
    --id, label, votes, radius (-1 for a rejected row), and why a row was rejected. The label is
    the one that certify proves with the same --election; in a run-off the votes are first choices.
    The radius of a grid counts rows while --features differ, by default none.
    """
    check_out(out, inputs=(data,))
    check_out(votes_out, suffixes=(".npz",), inputs=(data,))
    trained = open_model(model, trusted, jobs, verbosity())
    classifier, classes = trained.classifier, np.array(trained.classes)
    ids = () if id_columns is None else parse_list(id_columns, "--id")
    if taken := [name for name in ids if name in ("line", "row", *_WRITTEN)]:
        raise InvalidInputError(f"--id {taken[0]}: a column of the output has that name.")
    rows, _ = trained.read(data, Columns(label=label, ignore=ignore, x_key=x_key, id=id_columns))
    passed = read_texts(data, ids, (trained.table or Schema()).limits) if ids else {}
    by, members_vote = trained.elected_by(election), hasattr(classifier, "votes")
    if votes_out is not None and election == "runoff":
        raise InvalidInputError(
            "--votes-out writes the members' first choices, which alone do not decide a run-off. "
            "Leave it or --election out."
        )
    if votes_out is not None and not members_vote:
        raise InvalidInputError(
            f"{model} is a {type(classifier).__name__}: single rows vote in it, and there are no "
            "members whose votes --votes-out could write."
        )
    grid = hasattr(classifier, "grid_votes")
    if votes_out is not None and grid:
        raise InvalidInputError(
            f"{model} is a GridClassifier, whose members vote in two steps: certify --votes would "
            "count their votes as one. Leave --votes-out out."
        )
    with spoken_warnings():
        plain = members_vote and not grid and election == "plurality"
        votes = classifier.votes(rows) if plain else None
        if votes is None:
            certified = by(classifier, rows)
        else:
            threat = classifier._resolve_threat(None, require_declared=False)
            certified = certify_votes(votes, len(classes), threat=threat)
            certified = certified.with_classes(classifier.classes_)
    radius = radius_at(certified, at_features)
    winners = class_indices(certified.labels, classifier.classes_, len(classes))
    labels = classes[winners]
    files: dict[Path, bytes] = {}
    if out is not None:
        given = certified.counts[np.arange(len(labels)), winners]
        found = {"label": labels, "votes": given, "radius": radius}
        files[out] = column_bytes(out, _in_order(rows, found, ids, passed))
    if votes_out is not None:
        known = {"votes": np.asarray(votes), "classes": classes}
        files[votes_out] = column_bytes(votes_out, known)
    write_together(files)
    table = Table("Predicted label", Column("Rows", justify="right"))
    for name in trained.classes:
        table.add_row(shown(name), f"{int((labels == name).sum()):,}")
    if grid:
        voters = counted(len(classifier.partition_sizes_), "member")
    elif members_vote:
        voters = counted(certified.n_members, "member")
    else:
        voters = counted(classifier.n_rows_, "training row")
    how = "run-off" if election == "runoff" else "vote"
    say(table, f"{counted(len(labels), 'row')} of {data} labelled by a {how} of {voters}.")
    say_written(files)


_WRITTEN = ("label", "votes", "radius", "rejected")


def _in_order(
    rows: CheckedRows,
    found: dict[str, NDArray[Any]],
    ids: Sequence[str],
    passed: Mapping[int, Sequence[str]],
) -> dict[str, NDArray[Any]]:
    """Add where every row stands and why rows were rejected; one line per row of the file."""
    places = np.array([*rows.places.tolist(), *(problem.place for problem in rows.problems)])
    n_rejected = len(rows.problems)
    empty = {"label": "", "votes": 0, "radius": -1}
    columns = {
        name: np.concatenate([column, np.full(n_rejected, empty[name], dtype=column.dtype)])
        for name, column in found.items()
    }
    reasons = [""] * len(rows) + [problem.reason for problem in rows.problems]
    order = np.argsort(places, kind="stable")
    none = [""] * len(ids)
    cells = np.array([passed.get(place, none) for place in places.tolist()], dtype=str)
    own = {name: cells[:, column] for column, name in enumerate(ids)}
    columns = {rows.unit: places, **own, **columns, "rejected": np.array(reasons, dtype=str)}
    return {name: column[order] for name, column in columns.items()}
