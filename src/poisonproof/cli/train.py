"""``poisonproof train``: from a data file to a model that can be certified."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import poisonproof
from poisonproof.cli._members import MEMBER_KINDS, check_weights, make_member
from poisonproof.cli._options import (
    ClassesFileOption,
    ClassesOption,
    FeaturesOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    choose,
    declared_classes,
    parse_list,
    parse_shape,
)
from poisonproof.cli._output import check_model_path
from poisonproof.cli._text import counted, say, spoken_warnings, verbosity
from poisonproof.datasets import CheckedRows, Schema, read_rows
from poisonproof.exceptions import InvalidInputError

__all__ = ["train"]

POSITION = 20
EPILOG = "Example: poisonproof train mails.csv --label kind --classes ham,spam -k 50 --out model"
PARTITIONERS = {
    "dpa": ("content", "pixel_sum", "group"),
    "ss-dpa": ("sorted", "content", "pixel_sum", "group"),
}


def train(
    data: Annotated[Path, typer.Argument(help="Training rows: .csv, .tsv, .parquet or .npz.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the model.")],
    label: LabelOption = None,
    classes: ClassesOption = None,
    classes_file: ClassesFileOption = None,
    k: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-k",
            help="Number of members. More: larger certificates, less data each.",
        ),
    ] = 50,
    method: Annotated[
        str,
        typer.Option(
            help="dpa: rows may be inserted, deleted, changed. ss-dpa: labels may be flipped."
        ),
    ] = "dpa",
    model: Annotated[
        str, typer.Option(help=f"What a member is: {', '.join(MEMBER_KINDS)}.")
    ] = "tree",
    partitioner: Annotated[
        str | None,
        typer.Option(
            help="content, pixel_sum, group or (ss-dpa only, its default) sorted.",
            show_default="content",
        ),
    ] = None,
    features: FeaturesOption = None,
    ignore: IgnoreOption = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Who contributed a row; certificates then count contributors."
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The weight of a row.")
    ] = None,
    x_key: SamplesOption = "X",
    invalid_rows: Annotated[
        str,
        typer.Option(help="raise: stop at a row that does not fit. drop: leave such rows out."),
    ] = "raise",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the members' random streams.")] = 0,
    image_shape: Annotated[
        str | None,
        typer.Option(metavar="CxHxW", help="Networks: a row is an image, channels first."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Networks: passes over the rows.  [200]")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Networks: cpu or cuda; never chosen by itself.  [cpu]")
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Train one small model per partition of the rows.

    Every column is declared: features are numbers (an empty cell is a missing value), labels are
    text. Nothing is guessed from the file, because whoever poisons a row would take part in the
    guess.
    """
    check_model_path(out)
    choose("--method", method, list(PARTITIONERS))
    choose("--invalid-rows", invalid_rows, ("raise", "drop"))
    names = declared_classes(classes, classes_file)
    member = make_member(model, image_shape=parse_shape(image_shape), epochs=epochs, device=device)
    classifier = _classifier(method, member, k, _partitioner(partitioner, method, groups), names)
    if weights is not None:
        check_weights(model)
    classifier.set_params(
        n_jobs=jobs, random_state=seed, invalid_rows=invalid_rows, verbose=verbosity()
    )
    schema = Schema(
        classes=names,
        label=_label_column(label, data),
        groups=groups,
        weights=weights,
        features=parse_list(features, "--features") or None,
        ignore=parse_list(ignore, "--ignore"),
        allow_missing=_takes_missing_values(classifier),
        samples=x_key,
    )
    rows = read_rows(data, schema)
    if invalid_rows == "raise":
        rows.refuse_problems("Correct the row, or leave such rows out with --invalid-rows drop.")
    _fit(classifier, rows, names)
    classifier.set_params(n_jobs=None, verbose=0)  # how it was scheduled is no part of the model
    classifier.save(out)
    _report(classifier, rows, model, out)


def _classifier(method: str, member: Any, k: int, partitioner: str, names: tuple[str, ...]) -> Any:
    kind = poisonproof.DPAClassifier if method == "dpa" else poisonproof.SSDPAClassifier
    if k < 1:
        raise InvalidInputError(f"--partitions must be at least 1. Got {k}.")
    return kind(member, n_partitions=k, partitioner=partitioner, classes=np.array(names))


def _partitioner(asked: str | None, method: str, groups: str | None) -> str:
    if asked is None:
        return "group" if groups is not None else PARTITIONERS[method][0]
    choose(f"--partitioner of {method}", asked, PARTITIONERS[method])
    if (asked == "group") != (groups is not None):
        raise InvalidInputError(
            "--partitioner group needs --groups COLUMN, the contributor of every row."
            if groups is None
            else f"--groups has no meaning with --partitioner {asked}; use --partitioner group."
        )
    return asked


def _label_column(label: str | None, data: Path) -> str:
    if label is None and data.suffix.lower() != ".npz":
        raise InvalidInputError("Name the column with the labels: --label COLUMN.")
    return label or "y"


def _takes_missing_values(classifier: Any) -> bool:
    from sklearn.utils import get_tags

    return bool(get_tags(classifier).input_tags.allow_nan)


def _fit(classifier: Any, rows: CheckedRows, names: tuple[str, ...]) -> None:
    with spoken_warnings():
        classifier.fit(
            rows.X,
            np.array(names)[rows.labels],
            groups=rows.groups,
            sample_weight=rows.weights,
        )
    if rows.names is not None:
        classifier.feature_names_in_ = np.array(rows.names, dtype=object)


def _report(classifier: Any, rows: CheckedRows, model: str, out: Path) -> None:
    sizes = classifier.partition_sizes_
    say(
        f"Trained {counted(len(sizes), 'member')} ({model}) on {counted(len(rows), 'row')} of "
        f"{rows.path}: {counted(rows.X.shape[1], 'feature')}, "
        f"{len(classifier.classes_)} declared classes.",
        f"Rows per partition: {sizes.min():,} to {sizes.max():,}, on average {sizes.mean():,.1f}.",
    )
    if rows.problems:
        say(
            f"Left out {counted(len(rows.problems), 'row')} that did not fit; the first: "
            f"{rows.unit} {rows.problems[0].place}: {rows.problems[0].reason}."
        )
    say(
        f"Model written to {out}.",
        f"Next: poisonproof certify {out} TEST{rows.path.suffix} --label NAME",
    )
