"""``poisonproof report``: one page that can be shown to the people who have to decide."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from poisonproof.cli._app import (
    ElectionOption,
    HeldOutOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    ModelArgument,
    RowsArgument,
    SamplesOption,
    ThreatOption,
    TrustedOption,
    parse_sides,
)
from poisonproof.cli._rows import Columns, TrainedModel, open_model, unseen
from poisonproof.cli._screen import check_out, say, spoken_warnings, verbosity
from poisonproof.data.columns import TextColumn
from poisonproof.data.rows import CheckedRows
from poisonproof.evaluation.accuracy import seen_sentence
from poisonproof.exceptions import InvalidInputError
from poisonproof.strict import parse_json

if TYPE_CHECKING:
    from poisonproof.attacks.study import AttackStudy
    from poisonproof.report.document import Step
    from poisonproof.report.evidence import Evidence
    from poisonproof.report.samples import Samples

EPILOG = (
    "Examples: poisonproof report model test.csv --label kind --out report.html  |  "
    "poisonproof report model test.csv --label kind --compare other --out report.html"
)


def report(
    model: ModelArgument,
    data: RowsArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page: one .html file.")] = Path(
        "report.html"
    ),
    label: LabelOption = None,
    held_out: HeldOutOption = False,
    compare: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL", help="Another model on the same page; may be repeated."),
    ] = None,
    title: Annotated[
        str, typer.Option(help="Heading of the page.")
    ] = "How much poison this model withstands",
    threat: ThreatOption = None,
    election: ElectionOption = "plurality",
    image_shape: Annotated[
        str | None,
        typer.Option(metavar="CxHxW", help="Show rows as images of this shape, channels first."),
    ] = None,
    attacks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Show what poisonproof attack --out FILE found."),
    ] = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = None,
    trusted: TrustedOption = None,
    jobs: JobsOption = None,
) -> None:
    """Write one self-contained page about what a model withstands.

    The page works from a disk, without a network: a slider for the attack size, classes, radii,
    the weakest and strongest test rows, what is not protected, and how to verify it all. With
    --label the predictions are compared with the true labels.
    """
    from poisonproof.report.document import Report
    from poisonproof.report.evidence import Evidence, certificates_digest
    from poisonproof.report.words import headline, standing

    check_out(out, suffixes=(".html",), inputs=(data,))
    study = None if attacks is None else _read_study(attacks)
    paths = [model, *(compare or [])]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = list(map(str, paths))
    shape: Any = parse_sides(image_shape, "--image-shape", "CHANNELSxHEIGHTxWIDTH")
    trained = [open_model(path, trusted, jobs, verbosity()) for path in paths]
    columns = Columns(label=label, ignore=ignore, x_key=x_key)
    tested, seen = _read_tested(trained, data, columns, held_out)
    with spoken_warnings():
        models = [
            Evidence.of(
                one.classifier,
                rows,
                one.truth(rows),
                name=words,
                threat=threat,
                certify=one.elected_by(election),
                require_declared=True,
                samples=_samples(one, rows, shape),
                places=rows.places,
                place_unit=rows.unit,
                seen=seen,
            )
            for one, words, rows in zip(trained, names, tested, strict=True)
        ]
    options = {"--label": label, "--threat": threat, "--ignore": ignore}
    options |= {"--election": None if election == "plurality" else election}
    steps = _steps(model, data, held_out, options, models[0])
    Report(models, title=title, data_name=data.name, steps=steps, study=study).save(out)
    for one in models:
        prefix = f"{one.name}: " if len(models) > 1 else ""
        say(f"{prefix}{headline(one)}", *filter(None, [standing(one)]))
        if one.surface is not None:
            say(one.surface.sentence(one.n_groups))
        say(*([seen] if one is models[0] else []))
        if one.identity is not None:
            say(f"Fingerprint   {one.identity.fingerprint}")
        say(f"Certificates  {certificates_digest(one.certificates)}")
    say(f"Written to {out}.")


def _read_study(path: Path) -> AttackStudy:
    from poisonproof.attacks.study import AttackStudy

    try:
        values = parse_json(path.read_bytes())
    except ValueError as error:
        raise InvalidInputError(f"{path} is not a JSON file: {error}.") from error
    return AttackStudy.from_dict(values)


def _read_tested(
    models: list[TrainedModel], data: Path, columns: Columns, held_out: bool
) -> tuple[list[CheckedRows], str]:
    """Read the rows for every model, without those that one of them was trained on."""
    read, found = zip(
        *(model.read_tested(data, columns, held_out=held_out, cells=True) for model in models),
        strict=True,
    )
    places = {
        place
        for rows, seen in zip(read, found, strict=True)
        if seen is not None
        for place in rows.places[seen].tolist()
    }
    masks = [np.array([place in places for place in rows.places.tolist()]) for rows in read]
    known = None if not places and any(seen is None for seen in found) else int(masks[0].sum())
    kept = [rows.only(unseen(mask, len(rows))) for rows, mask in zip(read, masks, strict=True)]
    return kept, seen_sentence(known, len(read[0]))


def _samples(trained: TrainedModel, rows: CheckedRows, shape: Any) -> Samples:
    """Return how to show rows: the cells that a schema encoded, or the numbers themselves."""
    from poisonproof.report.samples import cell_samples, make_samples

    if trained.table is None or shape is not None:
        return make_samples(rows.X, names=trained.feature_names, image_shape=shape)
    cells, columns = rows.cells or {}, trained.table.columns
    if trained.table.kind != "table":
        return make_samples(cells[columns[0].name])
    written = {column.name for column in columns if isinstance(column, TextColumn)}
    return cell_samples({name: cell.tolist() for name, cell in cells.items()}, written)


def _steps(
    model: Path,
    data: Path,
    held_out: bool,
    options: Mapping[str, str | None],
    evidence: Evidence,
) -> list[Step]:
    """Return how to verify the page, as commands to copy."""
    from poisonproof.report.document import Step

    rows = [str(model), str(data), *(["--held-out"] if held_out else [])]
    for option, value in options.items():
        rows += [] if value is None else [option, value]
    audit = ["poisonproof", "audit", str(model)]
    if evidence.identity is not None:
        audit += ["--fingerprint", evidence.identity.fingerprint]
    audit += ["--data", str(data)] if held_out else []
    return [
        Step(
            "Certify again.",
            "The same model and test rows give the same radii; from the written votes of each row "
            "they can be computed without this software.",
            shlex.join(["poisonproof", "certify", *rows, "--out", "certificates.csv"]),
        ),
        Step(
            "Audit the model.",
            "The model has the fingerprint above, and what is trained again on its rows comes out "
            "the same.",
            shlex.join(audit),
        ),
        Step(
            "Train again.",
            "On the same rows, in any order, with the same versions, the fingerprint of the model "
            "is the same.",
        ),
    ]
