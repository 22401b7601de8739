"""``poisonproof certify``: how large an attack every prediction is proved to withstand."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from poisonproof.certificates.plurality import certify_votes
from poisonproof.certificates.result import Certificates, GridCertificates
from poisonproof.cli._app import (
    FILES,
    ClassesOption,
    ElectionOption,
    FeaturesOption,
    HeldOutOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    ThreatOption,
    TrustedOption,
    choose,
    declared_classes,
    refuse_given,
)
from poisonproof.cli._rows import Columns, TrainedModel, open_model, unseen
from poisonproof.cli._screen import (
    check_out,
    column_bytes,
    json_bytes,
    note_one_label,
    print_closing,
    print_protected,
    print_summary,
    print_surface,
    radius_at,
    say,
    say_written,
    spoken_warnings,
    verbosity,
)
from poisonproof.data.vote_files import read_votes
from poisonproof.evaluation.accuracy import (
    SAME_SOURCE,
    Summary,
    seen_sentence,
    summarize,
)
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_together

EPILOG = (
    "Examples: poisonproof certify model test.csv --label kind --out certificates.csv  |  "
    "poisonproof certify --votes votes.npz --n-classes 10"
)


def certify(
    model: Annotated[
        Path | None, typer.Argument(help="A model made by poisonproof train.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Argument(
            help=f"Rows: {FILES}, .npy, or a folder of images.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the certificates: .csv."),
    ] = None,
    summary_out: Annotated[
        Path | None, typer.Option(help="Write the certified accuracy as .json (needs --label).")
    ] = None,
    rows_out: Annotated[
        Path | None,
        typer.Option(
            help="Write place, label, radius and true label of every row: .csv, .parquet, .npz."
        ),
    ] = None,
    at_features: FeaturesOption = None,
    label: LabelOption = None,
    held_out: HeldOutOption = False,
    threat: ThreatOption = None,
    election: ElectionOption = "plurality",
    target: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Certify against this wrong label only.")
    ] = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = None,
    trusted: TrustedOption = None,
    jobs: JobsOption = None,
    votes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certify a vote matrix, without a model: .npz, .npy, .csv or .tsv; one "
            "row per test sample, one column per member, -1 for an abstention.",
        ),
    ] = None,
    n_classes: Annotated[
        int | None, typer.Option(metavar="C", help="With --votes: the number of classes.")
    ] = None,
    classes: ClassesOption = None,
) -> None:
    """Prove for every prediction how large an attack on the training data it survives.

    With --label the certificates are compared with the true labels, and the certified accuracy is
    printed. Accuracy measured on rows of an untrusted source is itself untrusted.
    """
    check_out(out, suffixes=(".csv",), inputs=(data, votes))
    check_out(summary_out, suffixes=(".json",), inputs=(data, votes))
    check_out(rows_out, inputs=(data, votes))
    if votes is not None:
        others: dict[str, object] = {"MODEL": model, "DATA": data, "--label": label}
        others |= {"--summary-out": summary_out, "--rows-out": rows_out, "--features": at_features}
        if given := [name for name, value in others.items() if value is not None]:
            raise InvalidInputError(f"--votes certifies a vote file alone; leave out {given[0]}.")
        matrix = read_votes(votes)
        certificates = _certify_votes(matrix, n_classes, classes, threat, target)
        _finish(certificates, {} if out is None else {out: _bytes(certificates, out)})
        return
    if model is None or data is None:
        raise InvalidInputError(
            "Name a model and a data file, or a vote file: poisonproof certify MODEL DATA, or "
            "poisonproof certify --votes FILE --n-classes C."
        )
    refuse_given({"--n-classes": n_classes, "--classes": classes}, "a model")
    labelled = label is not None or held_out
    if summary_out is not None and not labelled:
        raise InvalidInputError("--summary-out needs the true labels: --label COLUMN.")
    if labelled and target is not None:
        raise InvalidInputError(
            "--label and --target exclude each other: a certificate against one label does not "
            "prove that a correct label stays."
        )
    trained = open_model(model, trusted, jobs, verbosity())
    goal = None if target is None else _aimed_at(trained, target)
    columns = Columns(label=label, ignore=ignore, x_key=x_key)
    rows, seen = trained.read_tested(data, columns, held_out=held_out)
    by = trained.elected_by(election)
    with spoken_warnings():
        certificates = by(
            trained.classifier, rows, threat=threat, target=goal, require_declared=True
        )
        radius = radius_at(certificates, at_features)
    truth, counted = trained.truth(rows), unseen(seen, len(rows.X))
    tested, summary = certificates[counted], None
    files = {} if out is None else {out: _bytes(certificates, out)}
    if truth is not None:
        note_one_label(certificates.labels, truth)
        summary = summarize(tested, truth[counted])
    n_seen = None if seen is None else int(seen.sum())
    if summary_out is not None and summary is not None:
        files[summary_out] = json_bytes(
            summary.to_dict() | {"n_trained_on": n_seen} | _surface(tested, trained, truth, counted)
        )
    if rows_out is not None:
        found = {"label": certificates.labels.astype(str), "radius": radius}
        known = {} if truth is None else {"true_label": truth}
        files[rows_out] = column_bytes(rows_out, {rows.unit: rows.places, **found, **known})
    _finish(tested, files, summary, trained.classifier, None if truth is None else truth[counted])
    if n_seen != 0:
        say(seen_sentence(n_seen, len(rows.X)))
    if trained.table is not None and summary is None:
        print_closing(tested, trained.classifier)
    if held_out:
        say(SAME_SOURCE)


def _aimed_at(trained: TrainedModel, target: str) -> Any:
    """Return the class value that a text names."""
    place = trained.classes.index(choose("--target", target, trained.classes))
    return trained.classifier.classes_[place]


def _certify_votes(
    votes: Any,
    n_classes: int | None,
    classes: str | None,
    threat: str | None,
    target: str | None,
) -> Certificates:
    """Certify a vote matrix whose classes have names, or numbers alone."""
    if n_classes is None and classes is None:
        raise InvalidInputError(
            "--votes needs the number of classes: --n-classes C, or their names in the order of "
            "their indices: --classes A,B,..."
        )
    if n_classes is not None and n_classes < 1:
        raise InvalidInputError(f"--n-classes must be at least 1. Got {n_classes}.")
    names = tuple(map(str, range(n_classes or 0))) if classes is None else declared_classes(classes)
    if n_classes not in (None, len(names)):
        raise InvalidInputError(
            f"--classes lists {len(names)} names, but --n-classes is {n_classes}."
        )
    goal = None if target is None else names.index(choose("--target", target, names))
    certificates = certify_votes(votes, len(names), threat or "insert_delete", target=goal)
    return certificates if classes is None else certificates.with_classes(list(names))


def _surface(
    tested: Certificates, trained: TrainedModel, truth: Any, counted: Any
) -> dict[str, Any]:
    """Return what a grid adds to the summary."""
    if not isinstance(tested, GridCertificates):
        return {}
    from poisonproof.evaluation.surface import Surface

    blocks = trained.classifier.partitioner_.blocks
    return {"surface": Surface.of(tested, blocks, truth[counted]).to_json()}


def _finish(
    tested: Certificates,
    files: dict[Path, bytes],
    summary: Summary | None = None,
    classifier: Any = None,
    truth: Any = None,
) -> None:
    """Write all files or none, then print what the certificates of the test rows say."""
    write_together(files)
    if summary is None:
        print_protected(tested)
    else:
        print_summary(summary, classifier)
    print_surface(tested, classifier, truth)
    say_written(files)


def _bytes(certificates: Certificates, path: Path) -> bytes:
    with TemporaryDirectory() as folder:
        written = Path(folder) / "certificates.csv"
        certificates.save(written)
        return written.read_bytes()
