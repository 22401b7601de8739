"""``poisonproof compare``: what every method certifies on the same rows, on one page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import count, groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

from poisonproof.certificates.threats import unit_noun
from poisonproof.cli._app import (
    DEFAULT_KIND,
    FILES,
    KIND_HELP,
    ClassesOption,
    JobsOption,
    LabelOption,
    SchemaOption,
    make_member,
    parse_list,
)
from poisonproof.cli._methods import options_of
from poisonproof.cli._rows import Columns, TrainingSource, open_source
from poisonproof.cli._screen import (
    check_folder,
    classes_table,
    note,
    say,
    say_lines,
    say_written,
    spoken_warnings,
    verbosity,
)
from poisonproof.evaluation.accuracy import SAME_SOURCE, majority_share
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress, reporting

if TYPE_CHECKING:
    from poisonproof.evaluation.comparison import Candidate, Comparison, Method

EPILOG = (
    "Examples: poisonproof compare train.csv test.csv --label kind --classes ham,spam --out page"
    "  |  poisonproof compare train.csv test.csv --label kind --classes ham,spam -k 20,100 "
    "--model forest --out page"
    "  |  poisonproof compare photos --schema photos.schema.json --out page"
)


def compare(
    context: typer.Context,
    train: Annotated[
        Path,
        typer.Argument(
            help=f"Training rows: {FILES}; by a schema, images in a folder.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the page and its files.")],
    test: Annotated[
        Path | None,
        typer.Argument(
            help="Trusted test rows, labelled. Without them, those that the schema holds out.",
            show_default=False,
        ),
    ] = None,
    schema: SchemaOption = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    model: Annotated[str, typer.Option(help=f"{KIND_HELP}.")] = DEFAULT_KIND,
    partitions: Annotated[
        str, typer.Option("--partitions", "-k", metavar="K,K,...", help="Numbers of partitions.")
    ] = "10,50,200",
    cosines: Annotated[
        str, typer.Option(metavar="C,C,...", help="Thresholds of the neighbour votes.")
    ] = "0.8,0.9,0.95",
    jobs: JobsOption = None,
) -> None:
    """Compare all methods on your rows: certified accuracy against attack size.

    Votes and run-offs of members, neighbour votes, and what only flipped labels allow: members on
    scaled columns, walks along the graph of neighbours, and clusters by k-means, spectral cuts and
    mixtures. The page is comparison.html, and comparison.json has the numbers. Each method stands
    there with the command and the line of Python that train it. Between two classes a run-off is
    the plurality, and left out.

    All settings are reported and none is chosen, so the test labels decide nothing. A method that
    cannot be run on these rows is named and left out.
    """
    check_folder(out)
    if test is None and schema is None:
        raise InvalidInputError(
            "Name test rows, or a schema that holds rows out: poisonproof compare TRAIN TEST "
            "--label COLUMN --classes A,B --out DIR."
        )
    source = open_source(schema, Columns(label=label, classes=classes), train)
    if source.schema.groups is not None:
        raise InvalidInputError(
            f"The schema counts {unit_noun(source.schema.unit)} ({source.schema.groups}), but the "
            "methods are compared in rows. Compare with a schema without groups."
        )
    numbers = _numbers(partitions, "--partitions", int)
    cuts = _numbers(cosines, "--cosines", float)
    if min(numbers) < 1:
        raise InvalidInputError(f"--partitions lists integers of at least 1. Got {partitions!r}.")
    if not all(0 < cut <= 1 for cut in cuts):
        raise InvalidInputError(f"--cosines lists numbers above 0 and at most 1. Got {cosines!r}.")
    from poisonproof.evaluation.comparison import Comparison, candidates, imports
    from poisonproof.report.comparison_page import write_comparison

    member, command = make_member(model), _command(context)
    n_classes = len(source.schema.classes)
    chosen = list(candidates(n_classes, member, numbers, cuts, jobs))
    train_rows, test_rows = source.read_both(train, test, droppable=False, allow_missing=False)
    if n_classes == 2:
        note("Between two classes a run-off is the plurality, so no run-offs are compared.")
    data = Comparison(
        re.sub(r"[^A-Za-z0-9.-]+", "-", train.stem),
        train.stem,
        train_rows.X,
        np.asarray(train_rows.labels, dtype=np.int64),
        test_rows.X,
        np.asarray(test_rows.labels, dtype=np.int64),
        command,
        source.schema.classes,
    )
    start = _train_command(train, schema, label, classes)
    tested = [train.as_posix(), "--held-out"]
    if test is not None:
        tested = [test.as_posix(), "--label", str(source.schema.label)]
    methods = _run(data, chosen, lambda candidate: _commands(candidate, start, model, tested))
    head = [
        *imports(candidate.trained for candidate in chosen),
        *_reading(train, test, schema, source),
    ]
    _print_methods(methods, head)
    say_written(write_comparison(methods, out, command, "\n".join(head)))
    if test is None:
        say(SAME_SOURCE)


def _numbers(listed: str, option: str, kind: type) -> list[Any]:
    """Return the numbers that an option lists, each once."""
    try:
        return list(dict.fromkeys(map(kind, parse_list(listed, option))))
    except ValueError:
        raise InvalidInputError(f"{option} lists numbers. Got {listed!r}.") from None


def _command(context: typer.Context) -> str:
    """Return the command that makes the same page, as it can be typed."""
    words = ["poisonproof", "compare"]
    for option in sorted(context.command.params, key=lambda option: option.name == "out"):
        value = context.params[option.name or ""]
        if value in (None, option.default) or option.name == "jobs":
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            text = item.as_posix() if isinstance(item, Path) else str(item)
            words += [text] if option.param_type_name == "argument" else [option.opts[0], text]
    # What would end the comment of the page is inside quotes, and may be written in two pieces.
    return re.sub("--(?=!?>)", "--''", shlex.join(words))


def _train_command(
    train: Path, schema: Path | None, label: str | None, classes: str | None
) -> list[str]:
    """Return the beginning of the command that trains on the same rows."""
    words = ["poisonproof", "train", train.as_posix()]
    if schema is not None:
        return [*words, "--schema", schema.as_posix()]
    words += [] if label is None else ["--label", label]
    return [*words, "--classes", str(classes)]


def _commands(candidate: Candidate, start: list[str], model: str, tested: list[str]) -> list[str]:
    """Return the command that trains a candidate, and certifies its run-off; none if none can."""
    options = options_of(candidate.trained, model)
    if options is None:
        return []
    made, threat = f"model-{candidate.name}", ["--threat", candidate.certified_threat]
    words = [*start, *options, *threat, "--out", made]
    if candidate.family == "runoff":
        runoff = ["--election", "runoff", *threat]
        words += ["&&", "poisonproof", "certify", made, *tested, *runoff]
    return words


def _reading(
    train: Path, test: Path | None, path: Path | None, source: TrainingSource
) -> list[str]:
    """Return the lines of Python that read `train` and `test` by `schema`."""
    made, names = f"load_schema({str(path)!r})", ["load_schema", "read_table"]
    if path is None:
        known, names = source.schema, ["Schema", "freeze_schema", "read_table"]
        roles = f"label={known.label!r}, classes={known.classes!r}"
        made = f"freeze_schema(Schema({roles}, others='ignore', invalid_rows='raise'))"
    read = [
        f"train = read_table({str(train)!r}, schema)",
        f"test = read_table({str(test)!r}, schema)",
    ]
    if test is None:
        names.append("split_rows")
        read = [
            f"rows = read_table({str(train)!r}, schema)",
            "held_out = split_rows(rows, schema)",
            "train, test = rows.only(~held_out), rows.only(held_out)",
        ]
    runoff = ["from poisonproof.estimators import certify_runoff"] * (
        len(source.schema.classes) > 2
    )
    return [f"from poisonproof.data import {', '.join(names)}", *runoff, f"schema = {made}", *read]


def _run(
    data: Comparison, chosen: list[Candidate], train: Callable[[Candidate], list[str]]
) -> list[Method]:
    """Run all candidates that these rows allow."""
    with (
        reporting(make_progress(verbosity()), len(chosen), "Comparing") as progress,
        spoken_warnings(),
    ):
        methods = [
            replace(method, train=_shell(train(candidate)))
            for candidate, method, _ in data.run_all(chosen, note, progress)
        ]
    if not methods:
        raise InvalidInputError("No method could be run on these rows; see the notes above.")
    return sorted(methods, key=attrgetter("threat"))


def _shell(words: list[str]) -> str:
    """Return words as they are typed; two commands may be joined."""
    return " ".join(word if word == "&&" else shlex.quote(word) for word in words)


def _print_methods(methods: list[Any], head: list[str]) -> None:
    table = Table(title="Methods, with the median certified attack size", title_justify="left")
    for heading in ("", "Threat", "Method", "Clean", "Balanced", "Median"):
        table.add_column(heading, justify="left" if heading in {"Threat", "Method"} else "right")
    for number, method in enumerate(methods, 1):
        median = "none" if method.median is None else f"{method.median:,}"
        clean, balanced = method.clean, method.summary.balanced_accuracy
        shares = (f"{100 * share:.1f} %" for share in (clean, balanced))
        table.add_row(str(number), method.threat, method.title, *shares, median)
    base = majority_share(methods[0].y_true)
    say(table, "", "Each row is trained by its line here, in the shell, or in Python after these:")
    say_lines(*head, "")
    for number, method in enumerate(methods, 1):
        say_lines(f"{number:>3}  {method.train or '(Python only)'}", f"     {method.python}")
    for threat, group in groupby(zip(count(1), methods, strict=False), lambda row: row[1].threat):
        listed = list(group)
        # A method that learns next to nothing withstands everything.
        least = base + (max(method.clean for _, method in listed) - base) / 2
        worthy = [row for row in listed if row[1].clean >= least] or listed
        number, best = max(worthy, key=lambda row: -1 if row[1].median is None else row[1].median)
        say(
            "",
            f"Against {threat}, row {number} ({best.title}) has the largest median of the methods "
            "that gain at least half of the accuracy that can be gained over the commonest class:",
            classes_table(best.summary),
            *best.summary.standing,
        )
