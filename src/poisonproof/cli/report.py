"""The rows of a data file as a reader knows them: cells and pictures, not encoded features."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import typer

from poisonproof.cli._options import (
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    parse_list,
    parse_shape,
)
from poisonproof.cli._rows import AskedRows, TrainedModel, open_model, unseen
from poisonproof.cli._screen import check_folder, check_out, say, spoken_warnings, verbosity
from poisonproof.data.columns import TextColumn
from poisonproof.data.rows import CheckedRows
from poisonproof.data.schema import Schema
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_bytes
from poisonproof.strict import parse_json

if TYPE_CHECKING:
    from poisonproof.attacks.study import AttackStudy
    from poisonproof.report.evidence import Evidence
    from poisonproof.report.page import Step
    from poisonproof.report.samples import Samples


def shown_samples(
    trained: TrainedModel, rows: CheckedRows, image_shape: tuple[int, int, int] | None
) -> Samples:
    """Return how to show the rows that a model was asked about.

    Parameters
    ----------
    trained : TrainedModel
        With a schema, the cells that it encoded are shown.
    rows : CheckedRows
        The rows, encoded.
    image_shape : tuple (channels, height, width), optional
        Show the numbers of a row as an image.
    """
    from poisonproof.report.samples import make_samples

    if trained.table is None or image_shape is not None:
        return make_samples(rows.X, names=trained.feature_names, image_shape=image_shape)
    return _declared(trained.table, rows)


def _declared(schema: Schema, rows: CheckedRows) -> Samples:
    from poisonproof.report.samples import CellSamples, make_samples

    cells = rows.cells or {}
    if schema.kind != "table":
        return make_samples(cells[schema.columns[0].name])
    written = {column.name for column in schema.columns if isinstance(column, TextColumn)}
    shown = {name: cell if cell.dtype == float else list(cell) for name, cell in cells.items()}
    return CellSamples(shown, written)


# ``poisonproof report``: one page that can be shown to the people who have to decide.

POSITION = 45
EPILOG = (
    "Examples: poisonproof report model test.csv --label kind --out report.html  |  "
    "poisonproof report model test.csv --label kind --compare other --out report.html"
)


def report(
    model: Annotated[Path, typer.Argument(help="A model made by poisonproof train.")],
    data: Annotated[
        Path,
        typer.Argument(help="Test rows: .csv, .tsv, .parquet, .npz, .npy, or a folder of images."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page: one .html file.")] = Path(
        "report.html"
    ),
    label: LabelOption = None,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out",
            help="DATA is what the model was trained on: report on the rows that were held out.",
        ),
    ] = False,
    compare: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL", help="Another model on the same page; may be repeated."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="What the page calls each model, in their order; may be repeated."),
    ] = None,
    title: Annotated[
        str, typer.Option(help="Heading of the page.")
    ] = "How much poison this model withstands",
    threat: Annotated[
        str | None,
        typer.Option(
            help="insert_delete, label_flip or replace; the unit may be said: replace/group.",
            show_default="what the model certifies first",
        ),
    ] = None,
    image_shape: Annotated[
        str | None,
        typer.Option(metavar="CxHxW", help="Show rows as images of this shape, channels first."),
    ] = None,
    shown: Annotated[
        int, typer.Option(min=0, help="Least and most robust rows to show, each.")
    ] = 6,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a summary to a .md file as well.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the pictures as .png and .svg as well."),
    ] = None,
    attacks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Show what poisonproof attack --out FILE found."),
    ] = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = "X",
    jobs: JobsOption = None,
) -> None:
    """Write one self-contained page about what a model withstands.

    The page works from a disk, without a network: a slider for the attack size, classes, radii,
    the weakest and strongest test rows, what is not protected, and how to verify it all. With
    --label the predictions are compared with the true labels.
    """
    from poisonproof.report.document import Report

    check_out(out, suffixes=(".html",), inputs=(data,))
    check_out(markdown, suffixes=(".md",), inputs=(data,))
    if figures is not None:
        check_folder(figures)
    study = None if attacks is None else _read_study(attacks)
    paths = [model, *(compare or [])]
    names = _names(paths, name)
    asked = AskedRows(data, label, parse_list(ignore, "--ignore"), x_key, held_out, cells=True)
    shape = parse_shape(image_shape)
    trained = [open_model(path, jobs=jobs, verbose=verbosity()) for path in paths]
    tested = _test_rows(trained, asked)
    models = [
        _evidence(one, words, rows, threat, shape)
        for one, words, rows in zip(trained, names, tested.rows, strict=True)
    ]
    models = [replace(model, seen=tested.sentence) for model in models]
    document = Report(
        models,
        title=title,
        data_name=data.name,
        n_shown=shown,
        steps=_steps(paths[0], asked, threat, models[0]),
        study=study,
    )
    files = {out: document.html().encode()}
    if markdown is not None:
        files[markdown] = document.markdown().encode()
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        files |= {figures / file: content for file, content in document.figures().items()}
    for path, content in files.items():
        write_bytes(path, content)
    _tell(models, list(files))


def _names(paths: list[Path], given: list[str] | None) -> list[str]:
    if given is None:
        names = [path.resolve().name for path in paths]
        return names if len(set(names)) == len(names) else [str(path) for path in paths]
    if len(given) != len(paths):
        raise InvalidInputError(
            f"--name is given once for each model, in their order: {len(paths)} models, but "
            f"{len(given)} names."
        )
    return given


def _read_study(path: Path) -> AttackStudy:
    from poisonproof.attacks.study import AttackStudy

    try:
        values = parse_json(path.read_bytes())
    except ValueError as error:
        raise InvalidInputError(f"{path} is not a JSON file: {error}.") from error
    return AttackStudy.from_dict(values)


class _TestRows(NamedTuple):
    """The rows that each model is asked about, and what is known about where they come from."""

    rows: list[CheckedRows]
    sentence: str


def _test_rows(models: list[TrainedModel], asked: AskedRows) -> _TestRows:
    """Read the rows for every model, without those that one of them was trained on."""
    from poisonproof.evaluation.accuracy import seen_sentence

    read, found = zip(*(model.read_tested(asked) for model in models), strict=True)
    places = {
        place
        for rows, seen in zip(read, found, strict=True)
        if seen is not None
        for place in rows.places[seen].tolist()
    }
    masks = [np.array([place in places for place in rows.places.tolist()]) for rows in read]
    known = None if not places and any(seen is None for seen in found) else int(masks[0].sum())
    kept = [rows.only(unseen(mask, len(rows))) for rows, mask in zip(read, masks, strict=True)]
    return _TestRows(kept, seen_sentence(known, len(read[0])))


def _evidence(
    trained: TrainedModel,
    name: str,
    rows: CheckedRows,
    threat: str | None,
    shape: tuple[int, int, int] | None,
) -> Evidence:
    from poisonproof.report.evidence import Evidence

    with spoken_warnings():
        return Evidence.of(
            trained.classifier,
            rows.X,
            trained.truth(rows),
            name=name,
            threat=threat,
            require_declared=True,
            samples=shown_samples(trained, rows, shape),
            places=rows.places,
            place_unit=rows.unit,
        )


def _steps(model: Path, asked: AskedRows, threat: str | None, evidence: Evidence) -> list[Step]:
    from poisonproof.report.page import Step

    identity = evidence.identity
    audit = ["poisonproof", "audit", str(model)]
    audit += ["--fingerprint", identity.fingerprint] if identity is not None else []
    command = ["poisonproof", "certify", str(model), str(asked.path)]
    command += ["--label", asked.label] if asked.label is not None else []
    command += ["--held-out"] if asked.held_out else []
    command += ["--threat", threat] if threat is not None else []
    command += ["--ignore", ",".join(asked.ignore)] if asked.ignore else []
    return [
        Step(
            "Certify again.",
            "The same model and test rows give the same radii; from the written votes of each row "
            "they can be computed without this software.",
            shlex.join([*command, "--out", "certificates.csv"]),
        ),
        Step(
            "Make this page again.",
            "It has the same numbers, and the terminal prints the same fingerprint and digest.",
            shlex.join(["poisonproof", "report", *command[2:], "--out", "again.html"]),
        ),
        Step(
            "Audit the model.",
            "The model has the fingerprint above, and members that are trained again come out the "
            "same.",
            shlex.join(audit),
        ),
        Step(
            "Train again.",
            "On the same rows, in any order, with the same versions, the fingerprint of the model "
            "is the same.",
        ),
        Step(
            "Attack it.",
            "Poison the training rows, train for real, and see from which attack size on "
            "predictions change.",
            "poisonproof attack --help",
        ),
    ]


def _tell(models: list[Evidence], paths: list[Path]) -> None:
    from poisonproof.report.evidence import certificates_digest
    from poisonproof.report.words import headline

    for model in models:
        prefix = f"{model.name}: " if len(models) > 1 else ""
        say(f"{prefix}{headline(model)}")
        if model is models[0]:
            say(model.seen)
        if model.identity is not None:
            say(f"Fingerprint   {model.identity.fingerprint}")
        say(f"Certificates  {certificates_digest(model.certificates)}")
    say(f"Written to {', '.join(str(path) for path in paths)}.")
