"""The rows that `attack` poisons: digits, a table of numbers, or whatever a schema describes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Column, Table

import poisonproof
from poisonproof.cli._options import (
    MEMBER_KINDS,
    ClassesOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    choose,
    declared_classes,
    make_member,
    parse_list,
)
from poisonproof.cli._rows import AskedRows as DataColumns
from poisonproof.cli._rows import GroupsOption, LabelledColumns, open_model, read_labelled, unseen
from poisonproof.cli._screen import (
    check_out,
    console,
    note_problems,
    say,
    spoken_warnings,
    verbosity,
)
from poisonproof.data.columns import ArrayColumn, ImageColumn
from poisonproof.data.encoding import encode_rows
from poisonproof.data.rows import CheckedRows
from poisonproof.data.schema import Schema, load_schema
from poisonproof.data.sources import read_table, split_rows
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_together
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof.attacks.materials import Material
    from poisonproof.attacks.study import AttackStudy


@dataclass(frozen=True, eq=False)
class AttackedData:
    """Clean training rows, the rows whose predictions are attacked, and what they are made of.

    Attributes
    ----------
    material : Material
        The training rows, and how to forge more.
    y : ndarray of shape (m,)
    groups : ndarray of shape (m,) or None
        Contributors, if the schema names them.
    test : ndarray of shape (n, ...)
    classes : ndarray of shape (C,)
    name : str
        What figures call the data.
    """

    material: Material
    y: NDArray[Any]
    groups: NDArray[Any] | None
    test: NDArray[Any]
    classes: NDArray[Any]
    name: str


@dataclass(frozen=True)
class PlainColumns:
    """Options that say what the columns of a table of numbers mean."""

    label: str | None
    classes: str | None
    ignore: str | None
    samples: str
    groups: str | None = None

    def given(self) -> dict[str, str | None]:
        """Return the options by name; None where one was left out."""
        return {
            "--label": self.label,
            "--classes": self.classes,
            "--ignore": self.ignore,
            "--groups": self.groups,
        }


def digits() -> AttackedData:
    """Return scikit-learn's handwritten digits."""
    from sklearn.datasets import load_digits

    from poisonproof.attacks.materials import NumberMaterial

    X, y = load_digits(return_X_y=True)
    material = NumberMaterial(X[:1300])
    return AttackedData(material, y[:1300], None, X[1300:], np.arange(10), "Handwritten digits")


def numbers(data: Path, test: Path | None, columns: PlainColumns) -> AttackedData:
    """Read two tables of numbers."""
    from poisonproof.attacks.materials import NumberMaterial

    if test is None:
        raise InvalidInputError(
            "Name the test rows, too: poisonproof attack TRAIN TEST. With --schema the rows that "
            "it holds out are taken."
        )
    if columns.label is None and data.suffix.lower() != ".npz":
        raise InvalidInputError("Name the column with the labels: --label COLUMN.")
    if columns.groups is not None:
        raise InvalidInputError(
            "--groups is for a model that exists (--trained). To train one on contributors, name "
            "them in a schema: poisonproof schema DATA --groups COLUMN."
        )
    names = declared_classes(columns.classes, None)
    schema = Schema(
        classes=names,
        label=columns.label or "y",
        ignore=parse_list(columns.ignore, "--ignore"),
        samples=columns.samples,
    )
    train_rows, test_rows = (read_table(path, schema, allow_missing=False) for path in (data, test))
    for rows in (train_rows, test_rows):
        rows.refuse_problems("With --schema, texts and categories are read and such rows left out.")
    if train_rows.names != test_rows.names or train_rows.X.shape[1] != test_rows.X.shape[1]:
        raise InvalidInputError(f"{data} and {test} have different feature columns.")
    labels = np.array(names)
    return AttackedData(
        NumberMaterial(train_rows.X),
        labels[train_rows.labels],
        None,
        test_rows.X,
        labels,
        data.name,
    )


def with_model(
    path: Path, data: Path | None, test: Path | None, columns: PlainColumns
) -> tuple[Any, AttackedData]:
    """Load a trained model and the rows that it was trained on."""
    from sklearn.utils import get_tags

    from poisonproof.attacks.materials import NumberMaterial
    from poisonproof.attacks.study import WEIGHTED
    from poisonproof.estimators.dpa import PartitionAggregation

    model = open_model(path, jobs=None, verbose=0)
    classifier = model.classifier
    if not isinstance(classifier, PartitionAggregation):
        raise InvalidInputError(
            f"{path} is a {type(classifier).__name__}; models of DPAClassifier and "
            "SSDPAClassifier can be attacked."
        )
    if data is None:
        raise InvalidInputError(
            f"Name the rows that {path} was trained on: attack DATA --trained {path}."
        )
    if model.table is not None:
        if given := [name for name, value in columns.given().items() if value is not None]:
            raise InvalidInputError(
                f"{', '.join(given)}: the schema of {path} says that already. Leave it out."
            )
        if model.table.weights is not None:
            raise InvalidInputError(WEIGHTED)
        missing = bool(get_tags(classifier).input_tags.allow_nan)
        attacked = with_schema(model.table, data, test, allow_missing=missing)
        by_group = classifier.partitioner_.unit == "group"
        return classifier, attacked if by_group else replace(attacked, groups=None)
    if test is None:
        raise InvalidInputError(
            f"Name the test rows, too: poisonproof attack TRAIN TEST --trained {path}. Only models "
            "with a schema know which rows they hold out."
        )
    named = LabelledColumns(columns.label, columns.groups, None, columns.ignore, columns.samples)
    X, y, groups, _ = read_labelled(model, data, named)
    asked = model.read(
        DataColumns(test, columns.label, parse_list(columns.ignore, "--ignore"), columns.samples)
    )
    attacked = AttackedData(NumberMaterial(X), y, groups, asked.X, classifier.classes_, data.name)
    return classifier, attacked


def member_name(classifier: Any) -> str:
    """Return what figures call the members of a trained model."""
    return type(classifier._template()).__name__


def with_schema(
    schema: Schema, data: Path, test: Path | None, *, allow_missing: bool
) -> AttackedData:
    """Read what a frozen schema describes; without `test`, attack the rows that it holds out."""
    bar = make_progress(verbosity())
    options: dict[str, Any] = {"allow_missing": allow_missing, "keep_cells": True, "progress": bar}
    rows = read_table(data, schema, **options)
    note_problems(rows)
    held_out = split_rows(rows, schema)
    if test is not None:
        tested = read_table(test, schema, **options)
        note_problems(tested)
    elif held_out.any():
        tested = rows.only(held_out)
    else:
        raise InvalidInputError(
            f"The schema holds no rows of {data} out of training. Name the test rows: "
            "poisonproof attack TRAIN TEST."
        )
    train = ~held_out if test is None else np.ones(len(rows), dtype=np.bool_)
    labels = np.array(schema.classes)
    return AttackedData(
        _material(schema, _written(rows)[train]),
        labels[rows.labels][train],
        None if rows.groups is None else rows.groups[train],
        _written(tested),
        labels,
        data.name,
    )


def _written(rows: CheckedRows) -> NDArray[Any]:
    """Return what stands in the file: objects, a cell per column; numbers of arrays and images."""
    cells = list((rows.cells or {}).values())
    if cells[0].ndim > 1:
        return cells[0].reshape(len(rows), -1)
    written = np.empty((len(rows), len(cells)), dtype=object)
    for place, column in enumerate(cells):
        written[:, place] = column
    return written


def _material(schema: Schema, rows: NDArray[Any]) -> Material:
    from poisonproof.attacks.materials import CellMaterial, NumberMaterial

    first = schema.columns[0]
    if not isinstance(first, (ArrayColumn, ImageColumn)):
        return CellMaterial(schema, rows)

    def encode(written: NDArray[Any]) -> NDArray[Any]:
        samples = written.reshape(len(written), *first.shape)
        return encode_rows(schema, {first.name: samples}, len(samples))[0]

    shape = first.shape if isinstance(first, ImageColumn) else None
    return NumberMaterial(rows, image_shape=shape, encoder=encode)


# ``poisonproof attack``: poison the training rows for real, and see what falls when.

POSITION = 50
DEFAULT_ATTACKED = "neighbors"
"""What is attacked by default: quick to train again, and as gullible as members can be."""
EPILOG = (
    "Examples: poisonproof attack --figure attacks.svg  |  poisonproof attack mails.csv --schema "
    "mails.schema.json -k 50 --model ridge --out attacks.json  |  poisonproof attack mails.csv "
    "--trained model  |  poisonproof attack numbers.csv test.csv --label kind --classes ham,spam "
    "-k 50 --model tree"
)


def attack(
    data: Annotated[
        Path | None,
        typer.Argument(
            help="Training rows: .csv, .tsv, .parquet, .npz or, with --schema, a folder of images.",
            show_default="scikit-learn's digits",
        ),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Argument(
            help="Rows whose predictions are attacked.",
            show_default="those that the schema holds out",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The frozen schema of the rows, for texts, images, ..."),
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
        typer.Option(
            min=1, help="Largest attack.", show_default="half of the training rows (contributors)"
        ),
    ] = None,
    trained: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Attack this model of poisonproof train, which was trained on DATA.",
            show_default="one is trained here",
        ),
    ] = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    k: Annotated[
        int | None,
        typer.Option("--partitions", "-k", min=2, help="Number of members.", show_default="50"),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="dpa, or ss-dpa, which certifies flipped labels only.", show_default="dpa"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help=f"What a member is: {', '.join(MEMBER_KINDS)}.", show_default=DEFAULT_ATTACKED
        ),
    ] = None,
    groups: GroupsOption = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = "X",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the members and the attacker.")] = 0,
    jobs: JobsOption = None,
) -> None:
    """Attack a protected and an unprotected model of the same kind with real retraining.

    Within the certified size nothing may change. Beyond it, this command finds the first attack
    that does change a prediction, and how early a single model trained on all rows falls to it.
    With --trained the model that you use is attacked, member by member as it is.
    """
    from poisonproof.attacks.kinds import ATTACK_KINDS
    from poisonproof.attacks.study import attack_study
    from poisonproof.estimators.saving import model_fingerprint

    check_out(out, suffixes=(".json",), inputs=(data, test))
    check_out(figure, suffixes=(".png", ".svg"), inputs=(data, test))
    choose("--method", method or "dpa", ("dpa", "ss-dpa"))
    names = parse_list(kinds, "--kinds")
    chosen = [ATTACK_KINDS[choose("--kinds", name, list(ATTACK_KINDS))] for name in names]
    columns = PlainColumns(label, classes, ignore, x_key, groups)
    if trained is None:
        member = make_member(model or DEFAULT_ATTACKED)
        attacked = _attacked(data, test, schema, columns, member)
        classifier = _classifier(method or "dpa", member, k or 50, attacked, seed)
        called = model or DEFAULT_ATTACKED
    else:
        told = {"--schema": schema, "--classes": classes, "-k": k, "--method": method}
        _refuse(told | {"--model": model}, f"the model {trained}")
        classifier, attacked = with_model(trained, data, test, columns)
        method = "ss-dpa" if isinstance(classifier, poisonproof.SSDPAClassifier) else "dpa"
        called = member_name(classifier)
    test_rows, sentence = _test_rows(attacked)
    classifier.set_params(n_jobs=jobs)
    started = time.perf_counter()
    with spoken_warnings():
        study = attack_study(
            classifier, attacked.material.rows, attacked.y, test_rows,
            groups=attacked.groups, material=attacked.material, kinds=chosen or None,
            n_targets=targets, limit=limit, seed=seed,
            progress=make_progress(verbosity()),
        )  # fmt: skip
    facts = {"data": attacked.name, "method": method or "dpa", "model": called, "seed": seed}
    if trained is not None:
        facts["fingerprint"] = model_fingerprint(classifier)
    _write(study, out, figure, facts)
    _show(study)
    say(sentence)
    say(f"{time.perf_counter() - started:.0f} s.")
    for path in (out, figure):
        if path is not None:
            say(f"Written to {path}.")


def _attacked(
    data: Path | None, test: Path | None, schema: Path | None, columns: PlainColumns, member: Any
) -> AttackedData:
    if data is None:
        if schema is not None:
            raise InvalidInputError("Name the data that the schema describes: attack DATA.")
        return digits()
    if schema is None:
        return numbers(data, test, columns)
    _refuse(columns.given(), f"the schema {schema}")
    from sklearn.utils import get_tags

    return with_schema(
        load_schema(schema), data, test, allow_missing=bool(get_tags(member).input_tags.allow_nan)
    )


def _test_rows(attacked: AttackedData) -> tuple[NDArray[Any], str]:
    """Return the rows to attack, without those that are trained on, and a sentence about these."""
    from poisonproof.evaluation.accuracy import seen_sentence
    from poisonproof.partition.canonical import are_among

    seen = are_among(attacked.test, attacked.material.rows)
    chosen: NDArray[Any] = attacked.test[unseen(seen, len(seen))]
    return chosen, seen_sentence(int(seen.sum()), len(seen))


def _refuse(options: Mapping[str, Any], who: str) -> None:
    """Refuse options that were given although something else says the same."""
    if given := [option for option, value in options.items() if value is not None]:
        raise InvalidInputError(f"{', '.join(given)}: {who} says that already. Leave it out.")


def _classifier(method: str, member: Any, k: int, attacked: AttackedData, seed: int) -> Any:
    kind = poisonproof.DPAClassifier if method == "dpa" else poisonproof.SSDPAClassifier
    classifier = kind(member, n_partitions=k, classes=attacked.classes, random_state=seed)
    if attacked.groups is not None:
        classifier.set_params(partitioner="group")
    return classifier


def _write(
    study: AttackStudy, out: Path | None, figure: Path | None, facts: dict[str, Any]
) -> None:
    files: dict[Path, bytes] = {}
    if out is not None:
        origin = {"command": "poisonproof attack", "version": poisonproof.__version__, **facts}
        files[out] = json.dumps({**origin, **study.to_dict()}, indent=1).encode() + b"\n"
    if figure is not None:
        from poisonproof.report.charts import render_attack_figure

        title = f"{facts['data']}: {study.n_members} members ({facts['model']}) against one"
        files[figure] = render_attack_figure(study, figure.suffix.lower()[1:], title)
    write_together(files)


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
        f"Medians over the attacked predictions, in {_units(study)}. "
        f"{tried:,} attacks within the certified size changed {changed:,} predictions."
    )


def _units(study: AttackStudy) -> str:
    return "contributors" if study.kinds[0].threat.unit == "group" else "rows"


def _size(size: int | None, limit: int) -> str:
    return f"> {limit:,}" if size is None else f"{size:,}"
