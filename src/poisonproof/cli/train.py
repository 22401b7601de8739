"""``poisonproof train``: from a data file to a model that can be certified."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from poisonproof.cli._app import (
    DEFAULT_KIND,
    FILES,
    KIND_HELP,
    MEMBER_KINDS,
    ClassesOption,
    EntitiesOption,
    GroupsOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    SamplesOption,
    SchemaOption,
    WeightsOption,
    choose,
    make_member,
    parse_sides,
    takes_missing,
)
from poisonproof.cli._methods import (
    METHODS,
    OF_MEMBERS,
    AssignmentOption,
    BlocksOption,
    ClustererOption,
    ClustersOption,
    CosineOption,
    MethodOption,
    NeighborsOption,
    OuterOption,
    ScaleOption,
    TrainedThreatOption,
    choose_method,
    make_classifier,
)
from poisonproof.cli._rows import Columns, TrainingSource, open_source, unseen
from poisonproof.cli._screen import (
    check_writable,
    classes_table,
    counted,
    note_one_label,
    print_surface,
    say,
    shown,
    spoken_warnings,
    verbosity,
)
from poisonproof.data.columns import ArrayColumn, ImageColumn
from poisonproof.data.csv_files import format_of
from poisonproof.data.rows import CheckedRows, refuse_half
from poisonproof.data.schema import Schema
from poisonproof.data.sources import split_rows
from poisonproof.exceptions import InvalidInputError, MissingExtraError

EPILOG = (
    "Examples: poisonproof train mails.csv --schema mails.schema.json -k 200 --out model  |  "
    "poisonproof train mails.csv --label kind --classes ham,spam -k 50 --out model  |  "
    "poisonproof train digits.npz --classes 0,1,2 --threat label_flip --method clusters --scale "
    "--out model  |  "
    "poisonproof train clicks/ --schema clicks.schema.json -k 1000 --stream --out model"
)
_PLAIN = {"rich_help_panel": "Tables of numbers without a schema"}
_NETWORKS = {"rich_help_panel": "Networks"}
_LARGE = {"rich_help_panel": "Larger than memory, other machines"}


def train(
    data: Annotated[Path, typer.Argument(help=f"Rows: {FILES}, or a folder of images.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the model.")],
    schema: SchemaOption = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    threat: TrainedThreatOption = None,
    method: MethodOption = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-k",
            min=1,
            help="Number of members. More: larger certificates, less data each.",
            show_default="50",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help=f"{KIND_HELP}.", show_default=DEFAULT_KIND)
    ] = None,
    partitioner: Annotated[
        str | None,
        typer.Option(
            help="content, pixel_sum, group or (ss-dpa only, its default) sorted.",
            show_default="content",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="The feature columns. By default all that no other option names.",
            **_PLAIN,
        ),
    ] = None,
    ignore: IgnoreOption = None,
    groups: GroupsOption = None,
    entities: EntitiesOption = None,
    weights: WeightsOption = None,
    x_key: SamplesOption = None,
    invalid_rows: Annotated[
        str | None,
        typer.Option(
            help="raise: stop at a row that does not fit. drop: leave such rows out, even if they "
            "are more than half.",
            show_default="what the schema says, else raise",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the members' random streams.")] = 0,
    image_shape: Annotated[
        str | None,
        typer.Option(
            metavar="CxHxW",
            help="A row is an image, channels first; with --method grid HxW.",
            **_NETWORKS,
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the rows.  [200]", **_NETWORKS)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; never chosen for you.  [cpu]", **_NETWORKS)
    ] = None,
    cosine: CosineOption = None,
    clusters: ClustersOption = None,
    assignment: AssignmentOption = None,
    clusterer: ClustererOption = None,
    neighbors: NeighborsOption = None,
    scale: ScaleOption = False,
    blocks: BlocksOption = None,
    outer: OuterOption = None,
    keep_data: Annotated[
        bool,
        typer.Option("--keep-data", help="Keep the rows in the model, for poisonproof update."),
    ] = False,
    self_check: Annotated[
        bool,
        typer.Option(
            "--self-check/--no-self-check",
            help="Train some members again in a fresh process; a difference ends the training.",
        ),
    ] = True,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a model that is already at --out."),
    ] = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Read piece by piece: files or folders of Parquet, CSV or images.",
            **_LARGE,
        ),
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory for partitioning: 512MiB.  [1GiB]", **_LARGE),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Where to train: dask or ray (--jobs processes here), dask://HOST:PORT, "
            "ray://HOST:PORT, ray://auto.",
            **_LARGE,
        ),
    ] = None,
    jobs: JobsOption = None,
) -> None:
    """Train a model: by default one small member per partition of the rows.

    Every column is declared, in a frozen schema or by options (features are then numbers). Nothing
    is guessed from the file, because whoever poisons a row would take part in the guess. With a
    schema a share of the rows is held out by a hash, and the command ends with what is proved about
    them.
    """
    from poisonproof.store.writing import check_target

    check_target(out)
    check_writable(out.absolute().parent, out)
    method = choose_method(method, threat)
    of_members = (k, model, partitioner, groups, weights, image_shape, epochs, device,
                  keep_data, stream, memory, cluster)  # fmt: skip
    _refuse_members(method, dict(zip(OF_MEMBERS, of_members, strict=True)))
    model = model or DEFAULT_KIND
    n_bytes = _memory(stream, memory, method)
    machines = _cluster(cluster, jobs)
    if invalid_rows is not None:
        choose("--invalid-rows", invalid_rows, ("raise", "drop"))
    columns = Columns(label, classes, features, ignore, groups, weights, x_key, entities)
    source = open_source(schema, columns, data, invalid_rows=invalid_rows, stream=stream)
    shape, seen = _shapes(method, model, image_shape, source)
    member = make_member(model, image_shape=seen, epochs=epochs, device=device)
    if source.schema.weights is not None:
        _check_weights(model)
    classifier = make_classifier(
        method,
        {
            "cosine": cosine,
            "clusters": clusters,
            "assignment": assignment,
            "clusterer": clusterer,
            "neighbors": neighbors,
            "scale": scale,
            "blocks": blocks,
            "outer": outer if outer is None else choose("--outer", outer, ("rows", "features")),
            "image-shape": shape,
        },
        {
            "estimator": member,
            "n_partitions": k,
            "partitioner": _partitioner(partitioner, method, source.schema),
            "n_jobs": jobs,
            "verbose": verbosity(),
        },
        classes=None if source.table else np.array(source.schema.classes),
        schema=source.table,
        random_state=seed,
        invalid_rows=invalid_rows,
    )
    kept = {"keep_data": keep_data, "overwrite": overwrite}
    run = {"cluster": machines, "self_check": self_check}
    told = {"most_may_be_invalid": invalid_rows == "drop"}
    if stream:
        _fit_stream(classifier, source, data, out, n_bytes, kept, {**run, **told})
        rows = None
    else:
        rows = source.read(data, allow_missing=takes_missing(classifier))
        if rows.problems and invalid_rows != "drop":
            refuse_half(data, len(rows), len(rows.problems), rows.describe_problems())
        held_out = split_rows(rows, source.schema)
        if source.table is None:
            classifier.column_names_ = rows.names
        train_rows = rows.only(~held_out)
        labels = np.array(source.schema.classes)[train_rows.labels]
        _fit(classifier, train_rows, labels, out, kept, run)
    classifier.set_schedule(None, 0)  # how it was scheduled is not part of the model
    if not METHODS[method].partitioners:
        classifier.save(out, overwrite=overwrite)
    elif stream:  # else all of it was written as members finished
        classifier.save(out, **kept)
    _report(classifier, data, rows, model, out)
    if rows is not None and held_out.any():
        _certify_held_out(classifier, rows, np.array(source.schema.classes), held_out, jobs, threat)
        rest = f"{data} --held-out"
    else:
        rest = f"TEST{format_of(data)} --label {label or 'NAME'}"
    options = "" if threat is None else f" --threat {threat}"
    say(f"Next: poisonproof certify {out} {rest}{options}")


def _memory(stream: bool, memory: str | None, method: str) -> int:
    """Return how many bytes partitioning may take; refuse options that do not go together."""
    if memory is not None and not stream:
        raise InvalidInputError("--memory is for --stream only.")
    if stream and method != "dpa":
        raise InvalidInputError(
            "--stream is for --method dpa: ss-dpa looks at all samples before it places one, and "
            "a grid is cut in memory."
        )
    text = memory or "1GiB"
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise InvalidInputError(f"--memory is a size such as 512MiB or 2GiB. Got {text!r}.")
    return int(float(found[1]) * 2 ** (10 * " kmg".index(found[2] or " ")))


def _cluster(address: str | None, jobs: int | None) -> Any:
    """Return the cluster that trains, or None."""
    if address is None:
        return None
    from poisonproof.distributed.dask_and_ray import open_cluster

    return open_cluster(address, n_workers=jobs)


def _shapes(
    method: str, model: str, text: str | None, source: TrainingSource
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return the shape of the images that are cut into blocks, and of those that members see."""
    network = model in ("nin", "resnet10")
    if method != "grid":
        shape = parse_sides(text, "--image-shape", "CHANNELSxHEIGHTxWIDTH")
        return None, _image_shape(source) if shape is None and network else shape
    if network:
        raise InvalidInputError(
            f"--model {model}: members of a grid see blocks, whose shape the network must know. "
            "Use Python: GridClassifier(TorchLearner(image_shape=...)), or --model mlp."
        )
    return parse_sides(text, "--image-shape", "HEIGHTxWIDTH"), None


def _image_shape(source: TrainingSource) -> tuple[int, ...] | None:
    """Return the declared shape of a sample, channels first, if it is an image."""
    first = None if source.table is None else source.table.columns[0]
    if not isinstance(first, (ArrayColumn, ImageColumn)):
        return None
    if isinstance(first, ImageColumn) and first.encoder != "pixels":
        return None
    return {2: (1, *first.shape), 3: first.shape}.get(len(first.shape))


def _check_weights(name: str) -> None:
    from sklearn.utils.validation import has_fit_parameter

    able = []
    for kind in MEMBER_KINDS:
        with suppress(MissingExtraError):
            able += [kind] * has_fit_parameter(make_member(kind), "sample_weight")
    if name not in able:
        raise InvalidInputError(
            f"--model {name} takes no weights. Use one of {', '.join(able)}, or no --weights."
        )


def _refuse_members(method: str, options: dict[str, Any]) -> None:
    """Refuse options that are for members where training rows vote."""
    given = [option for option, value in options.items() if value not in (None, False)]
    if given and not METHODS[method].partitioners:
        able = ", ".join(name for name, other in METHODS.items() if other.partitioners)
        raise InvalidInputError(
            f"{', '.join(given)}: training rows vote in --method {method}, which has no members. "
            f"Leave it out, or use --method {able}."
        )


def _partitioner(rule: str | None, method: str, schema: Schema) -> Any:
    """Return the rule: rows are put together by contributor wherever one is named."""
    groups, named = schema.groups, schema.partition or "group"
    if not METHODS[method].partitioners:
        if groups is not None:
            raise InvalidInputError(
                f"The schema names contributors ({shown(groups)}), but --method {method} certifies "
                "rows. Use --method dpa, or a schema without groups."
            )
        return None
    if rule is None:
        return METHODS[method].partitioners[0] if groups is None else named
    choose(f"--partitioner of {method}", rule, METHODS[method].partitioners)
    if rule == "group" and groups is None:
        raise InvalidInputError(
            "--partitioner group needs --groups COLUMN, the contributor of every row."
        )
    if rule != "group" and groups is not None:
        raise InvalidInputError(
            f"Contributors are named ({shown(groups)}), but --partitioner {rule} does not read "
            "them and would certify rows; use --partitioner group, or a schema without groups."
        )
    return rule if groups is None else named


def _fit(
    classifier: Any,
    rows: CheckedRows,
    labels: NDArray[Any],
    out: Path,
    kept: dict[str, Any],
    run: dict[str, Any],
) -> None:
    """Train into the model's directory as members finish."""
    with spoken_warnings():
        if not hasattr(classifier, "fit_into"):  # training rows vote; it is saved at the end
            classifier.fit(rows, labels)
        else:
            classifier.fit_into(out, rows, labels, **kept, **run)


def _fit_stream(
    classifier: Any,
    source: TrainingSource,
    data: Path,
    out: Path,
    memory: int,
    kept: dict[str, Any],
    run: dict[str, Any],
) -> None:
    """Train on rows that are read piece by piece."""
    from poisonproof.data.sources import DataSource
    from poisonproof.estimators.streaming import fit_stream

    rows = DataSource(data, source.schema)
    if source.table is None:
        classifier.column_names_ = rows.feature_names
    with spoken_warnings():
        fit_stream(classifier, out, rows, memory=memory, **kept, **run)


def _report(classifier: Any, data: Path, rows: CheckedRows | None, kind: str, out: Path) -> None:
    from poisonproof.estimators.saving import model_fingerprint
    from poisonproof.partition.grids import Grid

    about = (
        f"of {data}{', read piece by piece' if rows is None else ''}: "
        f"{counted(classifier.n_features_in_, 'feature')}, "
        f"{len(classifier.classes_)} declared classes."
    )
    sizes = getattr(classifier, "partition_sizes_", None)
    if sizes is None:
        say(f"Trained {type(classifier).__name__} on {counted(classifier.n_rows_, 'row')} {about}")
    else:
        rule = classifier.partitioner_
        n_rows, mean = counted(classifier.n_rows_, "row"), f"{sizes.mean():,.1f}"
        part, members = "partition", counted(len(sizes), "member")
        if isinstance(rule, Grid):
            part, members = "cell", f"{rule.k:,} x {rule.blocks.n_blocks:,} = {members}"
        say(
            f"Trained {members} ({kind}) on {n_rows} {about}",
            f"Rows per {part}: {sizes.min():,} to {sizes.max():,}, on average {mean}.",
        )
        if isinstance(rule, Grid):
            say(f"Blocks of features: {rule.blocks}.")
        if empty := int((sizes == 0).sum()):
            abstain = "its member abstains" if empty == 1 else "their members abstain"
            say(f"{counted(empty, part)} without rows: {abstain}.")
    if rows is None and classifier.rejected_.count:
        n_kept = classifier.n_rows_
        _say_left_out(classifier.rejected_.count, n_kept, classifier.rejected_.first)
    elif rows is not None and rows.problems:
        first = rows.problems[0]
        _say_left_out(len(rows.problems), len(rows), f"{rows.unit} {first.place}: {first.reason}.")
    if n := getattr(classifier, "n_self_checked_", 0):
        say(f"Self-check: {counted(n, 'member')} trained again in a fresh process, no difference.")
    elif sizes is not None:
        say("Self-check: no member was trained again, so nothing was compared.")
    say(f"Model written to {out}.", f"Fingerprint {model_fingerprint(classifier)}")


def _say_left_out(count: int, n_kept: int, first: str) -> None:
    half = ", more than half of all" if count > n_kept else ""
    say(f"Left out {counted(count, 'row')} that did not fit{half}; the first: {shown(first, 300)}")


def _certify_held_out(
    classifier: Any,
    rows: CheckedRows,
    names: NDArray[Any],
    held_out: NDArray[np.bool_],
    jobs: int | None,
    threat: str | None,
) -> None:
    from poisonproof.evaluation.accuracy import SAME_SOURCE, seen_sentence, summarize
    from poisonproof.partition.canonical import are_among

    classifier.set_schedule(jobs, 0)
    # Held out by contributor, a sample may have come from another one, too.
    seen = are_among(rows.X[held_out], rows.X[~held_out])
    tested = rows.only(held_out).only(unseen(seen, len(seen)))
    certificates = classifier.certify(tested, threat=threat, require_declared=True)
    truth = names[tested.labels]
    note_one_label(certificates.labels, truth)
    summary = summarize(certificates, truth)
    say(
        f"Held out: {counted(len(tested), 'row')}.",
        *([seen_sentence(int(seen.sum()), len(seen))] if seen.any() else []),
        classes_table(summary),
        *summary.sentences(classifier.n_groups_),
    )
    print_surface(certificates, classifier, truth)
    say(SAME_SOURCE)
