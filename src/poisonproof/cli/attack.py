"""``poisonproof attack``: poison the training rows for real, and see what falls when."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Column, Table

import poisonproof
from poisonproof.cli._app import (
    FILES,
    KIND_HELP,
    ClassesOption,
    GroupsOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    SchemaOption,
    choose,
    make_member,
    parse_list,
    refuse_given,
    takes_missing,
)
from poisonproof.cli._rows import Columns, TrainingSource, open_model, open_source, unseen
from poisonproof.cli._screen import (
    check_out,
    json_bytes,
    say,
    say_written,
    spoken_warnings,
    verbosity,
)
from poisonproof.data.columns import ArrayColumn, ImageColumn
from poisonproof.data.rows import CheckedRows, Missing, encode_rows
from poisonproof.data.schema import Schema
from poisonproof.evaluation.accuracy import seen_sentence
from poisonproof.exceptions import InvalidInputError
from poisonproof.files import write_together
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof.attacks.materials import Material
    from poisonproof.attacks.study import AttackStudy

DEFAULT_ATTACKED = "neighbors"
"""The kind attacked by default: quick to train again, and easily misled."""
EPILOG = (
    "Examples: poisonproof attack --figure attacks.svg  |  poisonproof attack mails.csv --schema "
    "mails.schema.json -k 50 --model ridge --out attacks.json  |  poisonproof attack mails.csv "
    "--trained model  |  poisonproof attack numbers.csv test.csv --label kind --classes ham,spam "
    "-k 50 --model tree"
)


@dataclass(frozen=True, eq=False)
class AttackedData:
    """Clean training rows, what they are made of, and the rows whose predictions are attacked."""

    material: Material
    y: NDArray[Any]
    groups: NDArray[Any] | None
    test: NDArray[Any]
    classes: NDArray[Any]
    name: str
    rule: Any = None


def attack(
    data: Annotated[
        Path | None,
        typer.Argument(
            help=f"Training rows: {FILES} or, with --schema, a folder of images.",
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
    schema: SchemaOption = None,
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
            help="Attack this model, which poisonproof train made from DATA.",
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
        str | None, typer.Option(help=f"{KIND_HELP}.", show_default=DEFAULT_ATTACKED)
    ] = None,
    groups: GroupsOption = None,
    ignore: IgnoreOption = None,
    x_key: SamplesOption = None,
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
    from poisonproof.partition.canonical import are_among

    started = time.perf_counter()
    check_out(out, suffixes=(".json",), inputs=(data, test))
    check_out(figure, suffixes=(".png", ".svg"), inputs=(data, test))
    choose("--method", method or "dpa", ("dpa", "ss-dpa"))
    names = parse_list(kinds, "--kinds")
    chosen = [ATTACK_KINDS[choose("--kinds", name, list(ATTACK_KINDS))] for name in names]
    columns = Columns(label=label, classes=classes, ignore=ignore, groups=groups, x_key=x_key)
    facts: dict[str, Any] = {"method": method or "dpa", "model": model or DEFAULT_ATTACKED}
    if trained is None:
        member = make_member(model or DEFAULT_ATTACKED)
        attacked = _attacked(data, test, schema, columns, member)
        semi = method == "ss-dpa"
        of_method = poisonproof.SSDPAClassifier if semi else poisonproof.DPAClassifier
        classifier = of_method(member, n_partitions=k, classes=attacked.classes, random_state=seed)
        if attacked.groups is not None:
            classifier.set_params(partitioner=attacked.rule)
    else:
        given = {"--schema": schema, "--classes": classes, "-k": k, "--method": method}
        refuse_given(given | {"--model": model}, f"the model {trained}")
        classifier, attacked = _with_model(trained, data, test, columns)
        semi = isinstance(classifier, poisonproof.SSDPAClassifier)
        facts["method"] = "ss-dpa" if semi else "dpa"
        facts["model"] = type(classifier._template()).__name__
    seen = are_among(attacked.test, attacked.material.rows)
    with spoken_warnings():
        study = attack_study(
            classifier.set_params(n_jobs=jobs),
            attacked.material.rows,
            attacked.y,
            attacked.test[unseen(seen, len(seen))],
            groups=attacked.groups,
            material=attacked.material,
            kinds=chosen or None,
            n_targets=targets,
            limit=limit,
            seed=seed,
            progress=make_progress(verbosity()),
        )
    facts = {"data": attacked.name, **facts, "seed": seed}
    if trained is not None:
        facts["fingerprint"] = model_fingerprint(classifier)
    files: dict[Path, bytes] = {}
    if out is not None:
        origin = {"command": "poisonproof attack", "version": poisonproof.__version__}
        files[out] = json_bytes({**origin, **facts, **study.to_dict()})
    if figure is not None:
        from poisonproof.report.charts import render_attack_figure

        title = f"{attacked.name}: {study.n_members} members ({facts['model']}) against one"
        files[figure] = render_attack_figure(study, figure.suffix.lower()[1:], title)
    write_together(files)
    _show(study)
    say(seen_sentence(int(seen.sum()), len(seen)), f"{time.perf_counter() - started:.0f} s.")
    say_written(files)


def _attacked(
    data: Path | None, test: Path | None, schema: Path | None, columns: Columns, member: Any
) -> AttackedData:
    """Return the rows to train on and to attack; without data, scikit-learn's digits."""
    from poisonproof.attacks.materials import NumberMaterial

    if data is None:
        if schema is not None:
            raise InvalidInputError("Name the data that the schema describes: attack DATA.")
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        material, classes = NumberMaterial(X[:1300]), np.arange(10)
        return AttackedData(material, y[:1300], None, X[1300:], classes, "Handwritten digits")
    if schema is None and test is None:
        raise InvalidInputError(
            "Name the test rows, too: poisonproof attack TRAIN TEST. With --schema the rows that "
            "it holds out are taken."
        )
    return _read(open_source(schema, columns, data), data, test, takes_missing(member))


def _with_model(
    path: Path, data: Path | None, test: Path | None, columns: Columns
) -> tuple[Any, AttackedData]:
    """Load a trained model and the rows that it was trained on."""
    from poisonproof.attacks.materials import NumberMaterial
    from poisonproof.attacks.study import WEIGHTED
    from poisonproof.estimators.dpa import PartitionAggregation
    from poisonproof.estimators.grid import GridClassifier

    model = open_model(path)
    classifier = model.classifier.without_schema()
    if not isinstance(classifier, PartitionAggregation) or isinstance(classifier, GridClassifier):
        raise InvalidInputError(
            f"{path} is a {type(classifier).__name__}; models of DPAClassifier and "
            "SSDPAClassifier can be attacked."
        )
    python = "poisonproof.attacks.attack_study(clf, X, y, X_test, groups=groups)"
    model.refuse_groups_apart(python)
    if data is None:
        raise InvalidInputError(
            f"Name the rows that {path} was trained on: attack DATA --trained {path}."
        )
    if model.table is not None:
        columns.refuse(f"the schema of {path}")
        if model.table.weights is not None:
            raise InvalidInputError(WEIGHTED)
        source = TrainingSource(model.table, model.table.invalid_rows, model.table)
        return classifier, _read(source, data, test, takes_missing(classifier))
    if test is None:
        raise InvalidInputError(
            f"Name the test rows, too: poisonproof attack TRAIN TEST --trained {path}. Only models "
            "with a schema know which rows they hold out."
        )
    rows, y, groups, _ = model.read_training(data, columns, python)
    tested, _ = model.read(test, columns)
    material, classes = NumberMaterial(rows.X), classifier.classes_
    return classifier, AttackedData(material, y, groups, tested.X, classes, data.name)


def _read(
    source: TrainingSource, data: Path, test: Path | None, allow_missing: Missing
) -> AttackedData:
    """Read rows to train on and to attack; without `test`, attack those that are held out."""
    from poisonproof.attacks.materials import NumberMaterial

    material: Material
    cells = source.table is not None
    train, tested = source.read_both(data, test, allow_missing=allow_missing, keep_cells=cells)
    if source.table is None:
        material, attacked = NumberMaterial(train.X), tested.X
    else:
        material, attacked = _material(source.table, _written(train)), _written(tested)
    names = np.array(source.schema.classes)
    rule, labels = source.schema.partition or "group", names[train.labels]
    return AttackedData(material, labels, train.groups, attacked, names, data.name, rule)


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


def _show(study: AttackStudy) -> None:
    heads = ("Proved up to", "Fell at", "Unprotected fell at", "Within the proof: changed")
    table = Table("Attack", *(Column(head, justify="right") for head in heads))
    for kind in study.kinds:
        tried, changed = kind.trials_within
        sizes = (f"{kind.median_radius:,}", *kind.fell_at(study.limit))
        table.add_row(kind.title, *sizes, f"{changed} of {tried}")
    tried, changed = study.trials_within
    units = study.kinds[0].threat.noun()
    say(
        table,
        f"Medians over the attacked predictions, in {units}. "
        f"{tried:,} attacks within the certified size changed {changed:,} predictions.",
    )
