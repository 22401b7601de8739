"""``poisonproof compare``: what every method certifies on the same rows, on one page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from poisonproof.cli._members import DEFAULT_KIND, MEMBER_KINDS, make_member
from poisonproof.cli._options import ClassesOption, JobsOption, LabelOption, parse_list
from poisonproof.cli._output import check_folder
from poisonproof.cli._source import ColumnOptions, TrainingSource, open_source
from poisonproof.cli._text import console, note, note_one_label, say, spoken_warnings, verbosity
from poisonproof.evaluation import SAME_SOURCE
from poisonproof.exceptions import InvalidInputError, PoisonproofError
from poisonproof.progress import make_progress, reporting

__all__ = ["compare"]

POSITION = 75
EPILOG = (
    "Examples: poisonproof compare train.csv test.csv --label kind --classes ham,spam --out page"
    "  |  poisonproof compare photos --schema photos.schema.json --out page"
    "  |  poisonproof compare --results experiments/frontier --out docs/beyond"
)


def compare(
    train: Annotated[
        Path | None,
        typer.Argument(
            help="Training rows: .csv, .tsv, .parquet or .npz; by a schema, images in a folder.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Argument(
            help="Trusted test rows, labelled. Without them, those that the schema holds out.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the page and the results.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What the columns mean, or that rows are images: a frozen schema."
        ),
    ] = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    model: Annotated[
        str, typer.Option(help=f"What a member is: {', '.join(MEMBER_KINDS)}.")
    ] = DEFAULT_KIND,
    partitions: Annotated[
        str, typer.Option("--partitions", "-k", metavar="K,K,...", help="Numbers of partitions.")
    ] = "10,50,200",
    cosines: Annotated[
        str, typer.Option(metavar="C,C,...", help="Thresholds of the neighbour votes.")
    ] = "0.8,0.9,0.95",
    results: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="Make the page from these results instead; may be repeated."
        ),
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Compare all methods: certified accuracy against attack size, and the best for each budget.

    All settings are reported and none is chosen, so the test labels decide nothing. A method that
    cannot be run on these rows is named and left out.
    """
    if out is None:
        raise InvalidInputError("Name a folder for the page: --out DIR.")
    check_folder(out)
    if results:
        if train is not None:
            raise InvalidInputError("--results makes the page from results; leave out the data.")
        _page_of_results(results, out)
        return
    if train is None or (test is None and schema is None):
        raise InvalidInputError(
            "Name training and test rows, or results: poisonproof compare TRAIN TEST --label "
            "COLUMN --classes A,B --out DIR, or poisonproof compare --results DIR --out DIR."
        )
    options = ColumnOptions(label, classes, None, None, None, None, None, None, None)
    source = open_source(schema, options, train)
    numbers = [_number(text, "--partitions", int) for text in parse_list(partitions, "-k")]
    cuts = [_number(text, "--cosines", float) for text in parse_list(cosines, "--cosines")]
    if min(numbers) < 1 or not all(0 < cut <= 1 for cut in cuts):
        raise InvalidInputError(
            "--partitions lists whole numbers of at least 1, --cosines numbers above 0 and at "
            f"most 1. Got {partitions} and {cosines}."
        )
    rows = _read(source, train, test)
    member = make_member(model)
    methods = _run(train.stem, rows, len(source.classes), member, numbers, cuts, jobs, out)
    _print_methods(methods)
    words = [train.name, *([] if test is None else [test.name])]
    words += [] if schema is None else ["--schema", schema.name]
    _write(methods, [], out, f"poisonproof compare {' '.join(words)}")
    if test is None:
        say(SAME_SOURCE)


def _read(source: TrainingSource, train: Path, test: Path | None) -> list[Any]:
    """Return training and test rows of the same columns."""
    if source.groups is not None:
        raise InvalidInputError(
            f"The schema names contributors ({source.groups}), but the methods are compared in "
            "rows. Compare with a schema without contributors."
        )
    if test is None:
        rows = source.read(train, allow_missing=False, droppable=False)
        held_out = source.held_out(rows)
        if not held_out.any():
            raise InvalidInputError(
                "The schema holds no rows out. Name test rows: poisonproof compare TRAIN TEST."
            )
        return [rows.only(~held_out), rows.only(held_out)]
    both = [source.read(path, allow_missing=False, droppable=False) for path in (train, test)]
    if both[0].names != both[1].names or both[0].X.shape[1:] != both[1].X.shape[1:]:
        raise InvalidInputError(
            f"{train} and {test} have different feature columns, or the same in another order."
        )
    return both


def _number(text: str, option: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise InvalidInputError(f"{option} lists numbers. Got {text!r}.") from None


def _run(
    name: str,
    rows: list[Any],
    n_classes: int,
    member: Any,
    partitions: list[int],
    cosines: list[float],
    jobs: int | None,
    out: Path,
) -> list[Any]:
    from poisonproof.frontier import make_evidence, write_method
    from poisonproof.frontier.candidates import Comparison, candidates

    train, test = rows
    short = re.sub(r"[^A-Za-z0-9.-]+", "-", name)  # the name of folders and of the pictures' files
    data = Comparison(
        short, name, train.X, _labels(train), test.X, _labels(test), "poisonproof compare"
    )
    chosen = list(candidates(n_classes, member, partitions, cosines, jobs))
    methods = []
    with reporting(make_progress(verbosity()), len(chosen), "Comparing") as progress:
        for candidate in chosen:
            try:
                with spoken_warnings():
                    method = data.run(candidate)
            except (PoisonproofError, ValueError) as error:
                note(f"{candidate.title} is left out: {error}")
            else:
                write_method(method, make_evidence(method.certificates), out / "results")
                note_one_label(method.certificates.labels, data.y_test, f"{candidate.title}: ")
                methods.append(method)
            progress.advance()
    if not methods:
        raise InvalidInputError("No method could be run on these rows; see the notes above.")
    return methods


def _labels(rows: Any) -> Any:
    if rows.labels is None:
        raise InvalidInputError(f"{rows.path} has no labels.")
    return np.asarray(rows.labels, dtype=np.int64)


def _page_of_results(folders: list[Path], out: Path) -> None:
    from poisonproof.frontier import published_points, read_folder, read_goals

    methods = [method for folder in folders for method in read_folder(folder)]
    if not methods:
        names = ", ".join(map(str, folders))
        raise InvalidInputError(f"There are no results in {names}: one folder each, result.json.")
    words = " ".join(f"--results {folder.as_posix()}" for folder in folders)
    command = f"poisonproof compare {words} --out {out.as_posix()}"
    _write(methods, published_points(), out, command, read_goals(folders))


def _write(
    methods: list[Any], points: list[Any], out: Path, command: str, goals: Sequence[Any] = ()
) -> None:
    from poisonproof.frontier import write_frontier

    for path in write_frontier(methods, points, out, command, goals):
        say(f"Written to {path}.")


def _print_methods(methods: list[Any]) -> None:
    table = Table(title="Methods, with the median certified attack size", title_justify="left")
    for heading in ("Threat", "Method", "Clean", "Median"):
        table.add_column(heading, justify="left" if heading in {"Threat", "Method"} else "right")
    for method in methods:
        median = "none" if method.median is None else f"{method.median:,}"
        table.add_row(method.threat, method.title, f"{100 * method.clean:.1f} %", median)
    console().print(table)
