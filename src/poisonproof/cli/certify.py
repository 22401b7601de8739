"""``poisonproof certify``: how large an attack every prediction is proved to withstand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import poisonproof
from poisonproof.cli._options import (
    ClassesOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    declared_classes,
    parse_list,
)
from poisonproof.cli._rows import AskedRows, open_model, unseen
from poisonproof.cli._screen import (
    check_out,
    column_bytes,
    note_one_label,
    print_closing,
    print_protected,
    print_summary,
    say,
    spoken_warnings,
    verbosity,
)
from poisonproof.data.rows import CheckedRows
from poisonproof.data.vote_files import read_votes
from poisonproof.evaluation.accuracy import SAME_SOURCE, seen_sentence
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_together

if TYPE_CHECKING:
    from poisonproof.certificates.result import Certificates

POSITION = 40
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
            help="Rows: .csv, .tsv, .parquet, .npz, .npy, or a folder of images.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the certificates: .csv, .parquet or .npz."),
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
    label: LabelOption = None,
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out",
            help="DATA is what the model was trained on: certify the rows that were held out.",
        ),
    ] = False,
    threat: Annotated[
        str | None,
        typer.Option(
            help="insert_delete, label_flip or replace; the unit may be said: replace/group.",
            show_default="what the model certifies first",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Certify against this wrong label only.")
    ] = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = "X",
    jobs: JobsOption = None,
    votes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certify a vote matrix, without a model: .npz, .npy, .csv, .tsv or .parquet; one "
            "row per test sample, one column per member, -1 for an abstention.",
        ),
    ] = None,
    n_classes: Annotated[
        int | None, typer.Option(metavar="C", help="With --votes: the number of classes.")
    ] = None,
    classes: ClassesOption = None,
    abstain: Annotated[
        int,
        typer.Option(metavar="NUMBER", help="With --votes: what stands for an abstention, as 255."),
    ] = -1,
    votes_key: Annotated[
        str, typer.Option(metavar="ARRAY", help="With --votes of a npz file: the array's name.")
    ] = "votes",
    votes_header: Annotated[
        bool | None,
        typer.Option(
            "--votes-header/--no-votes-header",
            help="With --votes of a text file: whether its first line names the members. By "
            "itself a line of different names is a header, a line of integers is votes, and 0,1,2 "
            "and so on is refused, since it could be either.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Prove for every prediction how large an attack on the training data it survives.

    With --label the certificates are compared with the true labels, and the certified accuracy is
    printed. Accuracy measured on rows of an untrusted source is itself untrusted.
    """
    check_out(out, inputs=(data, votes))
    check_out(summary_out, suffixes=(".json",), inputs=(data, votes))
    check_out(rows_out, inputs=(data, votes))
    if votes is not None:
        _refuse_with_votes(
            model=model, data=data, label=label, summary_out=summary_out, rows_out=rows_out
        )
        certificates = _from_votes(
            read_votes(votes, key=votes_key, abstain=abstain, header=votes_header),
            *_votes_classes(n_classes, classes, abstain),
            threat=threat or "insert_delete",
            target=target,
        )
        _finish(certificates, None, out, None, {})
        return
    if model is None or data is None:
        raise InvalidInputError(
            "Name a model and a data file, or a vote file: poisonproof certify MODEL DATA, or "
            "poisonproof certify --votes FILE --n-classes C."
        )
    if n_classes is not None or classes is not None:
        raise InvalidInputError("--n-classes and --classes belong to --votes; a model has its own.")
    labelled = label is not None or held_out
    if summary_out is not None and not labelled:
        raise InvalidInputError("--summary-out needs the true labels: --label COLUMN.")
    if labelled and target is not None:
        raise InvalidInputError(
            "--label and --target exclude each other: a certificate against one label does not "
            "prove that a correct label stays."
        )
    trained = open_model(model, jobs=jobs, verbose=verbosity())
    goal = None if target is None else trained.class_value(target, "--target")
    asked = AskedRows(data, label, parse_list(ignore, "--ignore"), x_key, held_out)
    rows, seen = trained.read_tested(asked)
    with spoken_warnings():
        certificates = trained.classifier.certify(
            rows.X, threat=threat, target=goal, require_declared=True
        )
    truth = trained.truth(rows)
    if truth is not None and goal is None:
        note_one_label(certificates.labels, truth)
    by_row = {} if rows_out is None else _row_file(rows_out, rows, certificates, truth)
    _finish(certificates, truth, out, summary_out, by_row, seen)
    if seen is None or seen.any():
        say(seen_sentence(None if seen is None else int(seen.sum()), len(rows)))
    if trained.table is not None:
        print_closing(certificates[unseen(seen, len(rows))], trained.classifier)
    if held_out:
        say(SAME_SOURCE)


def _row_file(
    path: Path, rows: CheckedRows, certificates: Certificates, truth: Any
) -> dict[Path, bytes]:
    columns = {
        rows.unit: rows.places,
        "label": certificates.labels.astype(str),
        "radius": certificates.radius,
    }
    known = {} if truth is None else {"true_label": truth}
    return {path: column_bytes(path, {**columns, **known})}


def _refuse_with_votes(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            words = name.upper() if name in {"model", "data"} else f"--{name.replace('_', '-')}"
            raise InvalidInputError(f"--votes certifies a vote file alone; leave out {words}.")


def _votes_classes(
    n_classes: int | None, classes: str | None, abstain: int
) -> tuple[int, tuple[str, ...] | None]:
    names = None if classes is None else declared_classes(classes, None)
    if n_classes is None and names is None:
        raise InvalidInputError(
            "--votes needs the number of classes: --n-classes C, or their names in the order of "
            "their indices: --classes A,B,..."
        )
    count = n_classes if n_classes is not None else len(names or ())
    if count < 1:
        raise InvalidInputError(f"--n-classes must be at least 1. Got {n_classes}.")
    if names is not None and len(names) != count:
        raise InvalidInputError(f"--classes lists {len(names)} names, but --n-classes is {count}.")
    if 0 <= abstain < count:
        raise InvalidInputError(
            f"--abstain {abstain} is a class index when there are {count} classes."
        )
    return count, names


def _from_votes(
    votes: Any,
    n_classes: int,
    names: tuple[str, ...] | None,
    *,
    threat: str,
    target: str | None,
) -> Certificates:
    known = names or tuple(str(index) for index in range(n_classes))
    if target is not None and target not in known:
        raise InvalidInputError(f"--target is one of {', '.join(known)}. Got {target!r}.")
    goal = None if target is None else known.index(target)
    certificates = poisonproof.certify_votes(votes, n_classes, threat=threat, target=goal)
    return certificates if names is None else certificates.with_classes(list(names))


def _finish(
    certificates: Certificates,
    truth: Any,
    out: Path | None,
    summary_out: Path | None,
    others: Mapping[Path, bytes],
    seen: NDArray[np.bool_] | None = None,
) -> None:
    """Write all rows, all files or none, then print what those not `seen` in training say."""
    from poisonproof.evaluation.accuracy import default_sizes, summarize

    counted = unseen(seen, len(certificates))
    tested = certificates[counted]
    summary = None if truth is None else summarize(tested, truth[counted])
    files = {} if out is None else {out: _certificate_bytes(certificates, out)}
    if summary_out is not None and summary is not None:
        trained_on = {"n_trained_on": None if seen is None else int(seen.sum())}
        files[summary_out] = json.dumps(summary.to_dict() | trained_on, indent=1).encode() + b"\n"
    files |= others
    write_together(files)
    if summary is None:
        print_protected(tested, default_sizes(tested).tolist())
    else:
        print_summary(summary)
    say(*(f"Written to {path}." for path in files))


def _certificate_bytes(certificates: Certificates, path: Path) -> bytes:
    with TemporaryDirectory() as folder:
        written = Path(folder) / f"certificates{path.suffix}"
        certificates.save(written)
        return written.read_bytes()
