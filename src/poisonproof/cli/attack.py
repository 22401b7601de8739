"""``poisonproof attack``: poison the training rows for real, and see what falls when."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Column, Table

import poisonproof
from poisonproof.cli._members import MEMBER_KINDS, make_member
from poisonproof.cli._options import (
    ClassesOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    choose,
    declared_classes,
    parse_list,
)
from poisonproof.cli._output import check_out, write_bytes
from poisonproof.cli._text import console, say, spoken_warnings, verbosity
from poisonproof.datasets import Schema, read_rows
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof.attacks import AttackStudy

__all__ = ["attack"]

POSITION = 50
EPILOG = (
    "Examples: poisonproof attack --figure attacks.svg  |  poisonproof attack mails.csv test.csv "
    "--label kind --classes ham,spam -k 50 --model tree --out attacks.json"
)


def attack(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Training rows: .csv, .tsv, .parquet or .npz. By default scikit-learn's digits.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Argument(help="Rows whose predictions are attacked.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write every trial to a .json file.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the outcome to a .png or .svg file.")
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="random-flips, targeted-flips, near-insertions, backdoor, partition-aware.",
            show_default="all that the method certifies",
        ),
    ] = None,
    targets: Annotated[int, typer.Option(min=1, help="Predictions to attack with each kind.")] = 8,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Largest attack.", show_default="half of the training rows"),
    ] = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    k: Annotated[int, typer.Option("--partitions", "-k", min=2, help="Number of members.")] = 50,
    method: Annotated[
        str, typer.Option(help="dpa, or ss-dpa, which certifies flipped labels only.")
    ] = "dpa",
    model: Annotated[
        str, typer.Option(help=f"What a member is: {', '.join(MEMBER_KINDS)}.")
    ] = "neighbors",
    ignore: IgnoreOption = None,
    x_key: SamplesOption = "X",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the members and the attacker.")] = 0,
    jobs: JobsOption = None,
) -> None:
    """Attack a protected and an unprotected model of the same kind with real retraining.

    Within the certified size nothing may change. Beyond it, this command finds the first attack
    that does change a prediction, and how early a single model trained on all rows falls to it.
    """
    from poisonproof.attacks import ATTACK_KINDS, attack_study

    check_out(out, suffixes=(".json",), inputs=(data, test))
    check_out(figure, suffixes=(".png", ".svg"), inputs=(data, test))
    choose("--method", method, ("dpa", "ss-dpa"))
    names = parse_list(kinds, "--kinds")
    chosen = [ATTACK_KINDS[choose("--kinds", name, list(ATTACK_KINDS))] for name in names]
    X, y, X_test, labels, source = _rows(data, test, label, classes, ignore, x_key)
    kind = poisonproof.DPAClassifier if method == "dpa" else poisonproof.SSDPAClassifier
    classifier = kind(
        make_member(model), n_partitions=k, classes=labels, random_state=seed, n_jobs=jobs
    )
    started = time.perf_counter()
    with spoken_warnings():
        study = attack_study(
            classifier, X, y, X_test,
            kinds=chosen or None, n_targets=targets, limit=limit, seed=seed,
            progress=make_progress(verbosity()),
        )  # fmt: skip
    facts = {"data": source, "method": method, "model": model, "seed": seed}
    _write(study, out, figure, facts)
    _show(study)
    say(f"{time.perf_counter() - started:.0f} s.")
    for path in (out, figure):
        if path is not None:
            say(f"Written to {path}.")


def _write(
    study: AttackStudy, out: Path | None, figure: Path | None, facts: dict[str, Any]
) -> None:
    if out is not None:
        origin = {"command": "poisonproof attack", "version": poisonproof.__version__, **facts}
        write_bytes(out, json.dumps({**origin, **study.to_dict()}, indent=1).encode() + b"\n")
    if figure is not None:
        from poisonproof.report.attack_figure import render_attack_figure

        title = f"{facts['data']}: {study.n_members} members ({facts['model']}) against one"
        write_bytes(figure, render_attack_figure(study, figure.suffix.lower()[1:], title))


def _rows(
    data: Path | None,
    test: Path | None,
    label: str | None,
    classes: str | None,
    ignore: str | None,
    x_key: str,
) -> tuple[Any, Any, Any, Any, str]:
    """Return training samples and labels, test samples, the label set and what to call them."""
    if data is None:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return X[:1300], y[:1300], X[1300:], np.arange(10), "Handwritten digits"
    if test is None:
        raise InvalidInputError("Name the test rows, too: poisonproof attack TRAIN TEST.")
    if label is None and data.suffix.lower() != ".npz":
        raise InvalidInputError("Name the column with the labels: --label COLUMN.")
    names = declared_classes(classes, None)
    schema = Schema(
        classes=names,
        label=label or "y",
        ignore=parse_list(ignore, "--ignore"),
        allow_missing=False,
        samples=x_key,
    )
    train_rows, test_rows = read_rows(data, schema), read_rows(test, schema)
    for rows in (train_rows, test_rows):
        rows.refuse_problems()
    if train_rows.names != test_rows.names or train_rows.X.shape[1] != test_rows.X.shape[1]:
        raise InvalidInputError(f"{data} and {test} have different feature columns.")
    labels = np.array(names)
    return train_rows.X, labels[train_rows.labels], test_rows.X, labels, data.name


def _show(study: AttackStudy) -> None:
    right = {"justify": "right"}
    table = Table(
        "Attack",
        Column("Proved up to", **right),  # type: ignore[arg-type]
        Column("Fell at", **right),  # type: ignore[arg-type]
        Column("Unprotected fell at", **right),  # type: ignore[arg-type]
        Column("Within the proof: changed", **right),  # type: ignore[arg-type]
    )
    for kind in study.kinds:
        tried, changed = kind.trials_within
        table.add_row(
            kind.title,
            f"{kind.median_radius:,}",
            *(
                _size(kind.median_first(which), study.limit)
                for which in ("protected", "unprotected")
            ),
            f"{changed} of {tried}",
        )
    console().print(table)
    tried, changed = study.trials_within
    say(
        "Medians over the attacked predictions, in rows. "
        f"{tried:,} attacks within the certified size changed {changed:,} predictions."
    )


def _size(size: int | None, limit: int) -> str:
    return f"> {limit:,}" if size is None else f"{size:,}"
