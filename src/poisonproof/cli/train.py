"""``train --stream`` and ``train --cluster``: rows that do not fit in memory, many machines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import poisonproof
from poisonproof.cli._options import (
    DEFAULT_KIND,
    MEMBER_KINDS,
    ClassesFileOption,
    ClassesOption,
    ExpectedRowsOption,
    FeaturesOption,
    IgnoreOption,
    JobsOption,
    LabelOption,
    WantedRadiusOption,
    check_weights,
    choose,
    make_member,
    parse_shape,
)
from poisonproof.cli._rows import (
    ColumnOptions,
    TrainingSource,
    open_source,
    stored_fingerprint,
    unseen,
)
from poisonproof.cli._screen import (
    check_columns,
    check_model_path,
    counted,
    note,
    note_one_label,
    print_closing,
    say,
    self_check_sentence,
    shown,
    spoken_warnings,
    verbosity,
)
from poisonproof.cli.plan import Settings, check_partitions, choose_settings
from poisonproof.data.rows import CheckedRows
from poisonproof.data.schema import Schema
from poisonproof.exceptions import InvalidInputError

StreamOption = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Read piece by piece: files or folders of Parquet, CSV or images beyond memory.",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="--stream: memory for partitioning, as 512MiB.  [1GiB]"),
]
ScratchOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="--stream: where rows are sorted.  [beside --out]"),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Who trains: dask or ray (--jobs processes here), dask://HOST:PORT, ray://HOST:PORT, "
        "ray://auto.",
    ),
]
OtherWorkersOption = Annotated[
    str | None,
    typer.Option(
        metavar="refuse|accept",
        help="--cluster: what to do with workers of other software or processors.  [refuse]",
    ),
]

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


@dataclass(frozen=True)
class Streaming:
    """Options that say how rows are streamed."""

    stream: bool
    memory: str | None
    scratch: Path | None

    def check(self, method: str) -> None:
        """Raise if options do not go together."""
        given = {"--memory": self.memory, "--scratch": self.scratch}
        if not self.stream:
            if told := [name for name, value in given.items() if value is not None]:
                raise InvalidInputError(f"{', '.join(told)} has a meaning with --stream only.")
            return
        if method != "dpa":
            raise InvalidInputError(
                "--stream is for --method dpa: ss-dpa looks at all samples before it places one."
            )
        _ = self.memory_bytes

    @property
    def memory_bytes(self) -> int:
        """The bound for partitioning."""
        text = self.memory or "1GiB"
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]?)(?:i?b)?", text.strip().lower())
        if found is None:
            raise InvalidInputError(f"--memory is a size, as 512MiB or 2GiB. Got {text!r}.")
        return int(float(found[1]) * _UNITS[found[2]])


def chosen_cluster(
    address: str | None, other_workers: str | None, jobs: int | None, out: Path
) -> Any:
    """Return the cluster that was asked for, or None."""
    if address is None:
        if other_workers is not None:
            raise InvalidInputError("--other-workers has a meaning with --cluster only.")
        return None
    from poisonproof.distributed.cluster import POLICIES
    from poisonproof.distributed.dask_and_ray import open_cluster

    policy = choose("--other-workers", other_workers or POLICIES[0], POLICIES)
    if out.suffix.lower() == ".zip":
        raise InvalidInputError(
            "--cluster writes members as they arrive, into a directory. Give --out a name that "
            "does not end in .zip."
        )
    return open_cluster(address, n_workers=jobs, other_workers=policy)


def train_streamed(
    classifier: Any,
    source: TrainingSource,
    data: Path,
    out: Path,
    streaming: Streaming,
    *,
    kind: str,
    **chosen: Any,
) -> None:
    """Train on rows that are read piece by piece, and say what was done."""
    from poisonproof.data.streaming import fit_stream

    if source.table is not None:
        classifier.provenance_ = source.streamed_provenance()
    else:
        check_columns(out, _rows(source, data).feature_names, overwrite=chosen["overwrite"])
    with spoken_warnings():
        fit_stream(
            classifier,
            out,
            _rows(source, data),
            memory=streaming.memory_bytes,
            scratch=streaming.scratch,
            **chosen,
        )
    _remember(classifier, source, data)
    classifier.set_params(n_jobs=None, verbose=0)
    saved = {key: chosen[key] for key in ("keep_data", "overwrite")}
    classifier.save(out, **saved)
    sizes, rejected = classifier.partition_sizes_, classifier.rejected_
    say(
        f"Trained {counted(len(sizes), 'member')} ({kind}) on {counted(int(sizes.sum()), 'row')} "
        f"of {data}, read piece by piece: {counted(classifier.n_features_in_, 'feature')}, "
        f"{len(classifier.classes_)} declared classes.",
        f"Rows per partition: {sizes.min():,} to {sizes.max():,}, on average {sizes.mean():,.1f}.",
    )
    if rejected.count:
        left_out = counted(rejected.count, "row")
        say(f"Left out {left_out} that did not fit; the first: {shown(rejected.first, 300)}")
    say(self_check_sentence(classifier))
    say(f"Model written to {out}.", f"Fingerprint {stored_fingerprint(out)}")
    say(f"Next: poisonproof certify {out} TEST --label NAME")


def _rows(source: TrainingSource, data: Path) -> Any:
    from poisonproof.data.sources import DataSource

    schema = source.table or source.plain
    if schema is None:
        raise InvalidInputError("Nothing says how to read the data.")
    return DataSource(data, schema)


def _remember(classifier: Any, source: TrainingSource, data: Path) -> None:
    """Add what is known after reading: names of plain columns, rows that were left out."""
    if source.table is not None:
        known = {**classifier.provenance_, "n_left_out": classifier.rejected_.count}
        classifier.provenance_ = known
        return
    names = _rows(source, data).feature_names
    classifier.feature_names_in_ = np.array(names, dtype=object)


# ``poisonproof train``: from a data file to a model that can be certified.

POSITION = 20
EPILOG = (
    "Examples: poisonproof train mails.csv --schema mails.schema.json -k 200 --out model  |  "
    "poisonproof train mails.csv --label kind --classes ham,spam -k 50 --out model  |  "
    "poisonproof train clicks/ --schema clicks.schema.json -k 1000 --stream --out model"
)
PANELS = {
    "Tables of numbers without a schema": ("features", "ignore", "groups", "weights", "x_key"),
    "Choosing k or the members: auto": ("trusted", "expected_rows", "wanted_radius"),
    "Networks": ("image_shape", "epochs", "device"),
    "Larger than memory, other machines": (
        "stream",
        "memory",
        "scratch",
        "cluster",
        "other_workers",
    ),
}
PARTITIONERS = {
    "dpa": ("content", "pixel_sum", "group"),
    "ss-dpa": ("sorted", "content", "pixel_sum", "group"),
}


def train(
    data: Annotated[
        Path, typer.Argument(help="Rows: .csv, .tsv, .parquet, .npz, or a folder of images.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the model.")],
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A frozen schema, made by: poisonproof schema."),
    ] = None,
    label: LabelOption = None,
    classes: ClassesOption = None,
    classes_file: ClassesFileOption = None,
    k: Annotated[
        str,
        typer.Option(
            "--partitions",
            "-k",
            metavar="NUMBER|auto",
            callback=check_partitions,
            help="Number of members. More: larger certificates, less data each.",
        ),
    ] = "50",
    method: Annotated[
        str,
        typer.Option(
            help="dpa: rows may be inserted, deleted, changed. ss-dpa: labels may be flipped."
        ),
    ] = "dpa",
    model: Annotated[
        str, typer.Option(help=f"What a member is: {', '.join(MEMBER_KINDS)}, or auto.")
    ] = DEFAULT_KIND,
    trusted: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="auto: rows that no attacker wrote, to choose on."),
    ] = None,
    expected_rows: ExpectedRowsOption = None,
    wanted_radius: WantedRadiusOption = None,
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
    x_key: Annotated[
        str | None,
        typer.Option("--x-key", metavar="ARRAY", help="npz only: the array of samples.  [X]"),
    ] = None,
    invalid_rows: Annotated[
        str | None,
        typer.Option(
            help="raise: stop at a row that does not fit. drop: leave such rows out.",
            show_default="what the schema says, else raise",
        ),
    ] = None,
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
        typer.Option("--overwrite", help="Replace another model that stands at --out."),
    ] = False,
    stream: StreamOption = False,
    memory: MemoryOption = None,
    scratch: ScratchOption = None,
    cluster: ClusterOption = None,
    other_workers: OtherWorkersOption = None,
    jobs: JobsOption = None,
) -> None:
    """Train one small model per partition of the rows.

    Every column is declared, in a frozen schema or by options (features are then numbers). Nothing
    is guessed from the file, because whoever poisons a row would take part in the guess. With a
    schema a share of the rows is held out by a hash, and what is proved about them is said at the
    end.
    """
    check_model_path(out)
    streaming = Streaming(stream, memory, scratch)
    streaming.check(method)
    machines = chosen_cluster(cluster, other_workers, jobs, out)
    choose("--method", method, list(PARTITIONERS))
    if invalid_rows is not None:
        choose("--invalid-rows", invalid_rows, ("raise", "drop"))
    options = ColumnOptions(
        label, classes, classes_file, features, ignore, groups, weights, x_key, invalid_rows
    )
    source = open_source(schema, options, data, stream=stream)
    asked = Settings(k, model, trusted, expected_rows, wanted_radius, jobs)
    n_members, kind = choose_settings(asked, data, source.classes, source.table)
    member = _member(kind, source, image_shape, epochs=epochs, device=device)
    if source.weights is not None:
        check_weights(kind)
    rule = _partitioner(partitioner, method, source.groups)
    classifier = _classifier(method, member, n_members, rule, source.classes)
    classifier.set_params(
        n_jobs=jobs, random_state=seed, invalid_rows=source.invalid_rows, verbose=verbosity()
    )
    if stream:
        chosen: dict[str, Any] = {"keep_data": keep_data, "overwrite": overwrite}
        chosen |= {"cluster": machines, "self_check": self_check}
        train_streamed(classifier, source, data, out, streaming, kind=kind, **chosen)
        return
    rows = source.read(
        data, allow_missing=_takes_missing_values(classifier), droppable=method == "dpa"
    )
    held_out = source.held_out(rows)
    check_columns(out, rows.names, overwrite=overwrite)
    if (provenance := source.provenance(rows, ~held_out)) is not None:
        classifier.provenance_ = provenance
    kept = {"keep_data": keep_data, "overwrite": overwrite, "cluster": machines}
    _fit(classifier, rows, source.classes, ~held_out, _into(out), kept, self_check)
    classifier.set_params(n_jobs=None, verbose=0)  # how it was scheduled is no part of the model
    classifier.save(out, keep_data=keep_data, overwrite=overwrite)
    _report(classifier, rows, kind, out)
    if held_out.any():
        _certify_held_out(classifier, rows, np.array(source.classes), held_out, jobs)
        _note_share(rows, held_out, source.table)
    _print_next(rows, out, held_out)


def _member(kind: str, source: TrainingSource, image_shape: str | None, **options: Any) -> Any:
    shape: tuple[int, ...] | None = parse_shape(image_shape)
    if shape is None and kind in ("nin", "resnet10"):
        shape = source.image_shape()
    return make_member(kind, image_shape=shape, **options)


def _classifier(method: str, member: Any, k: int, partitioner: str, names: tuple[str, ...]) -> Any:
    kind = poisonproof.DPAClassifier if method == "dpa" else poisonproof.SSDPAClassifier
    if k < 1:
        raise InvalidInputError(f"--partitions must be at least 1. Got {k}.")
    return kind(member, n_partitions=k, partitioner=partitioner, classes=np.array(names))


def _partitioner(asked: str | None, method: str, groups: str | None) -> str:
    """Return the rule: rows are put together by contributor wherever one is named."""
    if asked is None:
        return "group" if groups is not None else PARTITIONERS[method][0]
    choose(f"--partitioner of {method}", asked, PARTITIONERS[method])
    if asked == "group" and groups is None:
        raise InvalidInputError(
            "--partitioner group needs --groups COLUMN, the contributor of every row."
        )
    if asked != "group" and groups is not None:
        raise InvalidInputError(
            f"Contributors are named ({shown(groups)}), but --partitioner {asked} does not read "
            "them and would certify rows; use --partitioner group, or a schema without groups."
        )
    return asked


def _takes_missing_values(classifier: Any) -> bool:
    from sklearn.utils import get_tags

    return bool(get_tags(classifier).input_tags.allow_nan)


def _into(out: Path) -> Path | None:
    """Return where members are written as they finish; an archive is written at the end."""
    return None if out.suffix.lower() == ".zip" else out


def _fit(
    classifier: Any,
    rows: CheckedRows,
    names: tuple[str, ...],
    train: NDArray[np.bool_],
    into: Path | None,
    kept: dict[str, Any],
    self_check: bool,
) -> None:
    samples, labels = rows.X[train], np.array(names)[rows.labels][train]
    others = {
        "groups": None if rows.groups is None else rows.groups[train],
        "sample_weight": None if rows.weights is None else rows.weights[train],
        "self_check": self_check,
    }
    with spoken_warnings():
        if into is None:
            classifier.fit(samples, labels, **others)
        else:
            classifier.fit_into(into, samples, labels, **others, **kept)
    if rows.names is not None:
        classifier.feature_names_in_ = np.array(rows.names, dtype=object)


def _report(classifier: Any, rows: CheckedRows, model: str, out: Path) -> None:
    sizes = classifier.partition_sizes_
    say(
        f"Trained {counted(len(sizes), 'member')} ({model}) on "
        f"{counted(int(sizes.sum()), 'row')} of {rows.path}: "
        f"{counted(rows.X.shape[1], 'feature')}, "
        f"{len(classifier.classes_)} declared classes.",
        f"Rows per partition: {sizes.min():,} to {sizes.max():,}, on average {sizes.mean():,.1f}.",
    )
    if empty := int((sizes == 0).sum()):
        say(f"{counted(empty, 'partition')} without rows: their members abstain.")
    if rows.problems:
        first = rows.problems[0]
        say(
            f"Left out {counted(len(rows.problems), 'row')} that did not fit; the first: "
            f"{rows.unit} {first.place}: {shown(first.reason, 200)}."
        )
        if kinds := rows.describe_kinds():
            say(shown(kinds, 600))
    say(self_check_sentence(classifier), f"Model written to {out}.")
    say(f"Fingerprint {stored_fingerprint(out)}")


def _certify_held_out(
    classifier: Any,
    rows: CheckedRows,
    names: NDArray[Any],
    held_out: NDArray[np.bool_],
    jobs: int | None,
) -> None:
    from poisonproof.evaluation.accuracy import SAME_SOURCE, seen_sentence
    from poisonproof.partition.canonical import are_among

    classifier.set_params(n_jobs=jobs)
    # Held out by contributor, a sample may have come from another one, too.
    seen = are_among(rows.X[held_out], rows.X[~held_out])
    tested = rows.only(held_out).only(unseen(seen, len(seen)))
    certificates = classifier.certify(tested.X, require_declared=True)
    truth = names[tested.labels]
    right = certificates.labels == truth
    note_one_label(certificates.labels, truth)
    say(
        f"Held out: {counted(len(tested), 'row')}, {100 * right.mean():.1f} % of them "
        "labelled correctly.",
        *([seen_sentence(int(seen.sum()), len(seen))] if seen.any() else []),
    )
    print_closing(certificates, classifier)
    say(*(f"Assumed: {sentence}." for sentence in certificates.threat.assumptions), SAME_SOURCE)


def _note_share(rows: CheckedRows, held_out: NDArray[np.bool_], table: Schema | None) -> None:
    """Say that a few contributors wrote many rows, where that makes the two parts uneven."""
    share, declared = float(held_out.mean()), 0.0 if table is None else table.test_share
    if rows.groups is not None and not 0.5 * declared < share < 2 * declared:
        note(
            f"contributors differ in size: the {100 * declared:g} % of them that are held out "
            f"wrote {100 * share:.0f} % of the rows."
        )


def _print_next(rows: CheckedRows, out: Path, held_out: NDArray[np.bool_]) -> None:
    if held_out.any():
        say(f"Next: poisonproof certify {out} {rows.path} --held-out")
    else:
        say(f"Next: poisonproof certify {out} TEST{rows.path.suffix} --label NAME")
