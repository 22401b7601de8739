"""``train --stream`` and ``train --cluster``: rows that do not fit in memory, many machines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from poisonproof.cli._data import stored_fingerprint
from poisonproof.cli._options import choose
from poisonproof.cli._output import check_columns
from poisonproof.cli._source import TrainingSource
from poisonproof.cli._text import (
    counted,
    say,
    self_check_sentence,
    shown,
    spoken_warnings,
)
from poisonproof.exceptions import InvalidInputError

__all__ = [
    "ClusterOption",
    "MemoryOption",
    "OtherWorkersOption",
    "ScratchOption",
    "StreamOption",
    "Streaming",
    "chosen_cluster",
    "train_streamed",
]

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
    from poisonproof.clusters import open_cluster
    from poisonproof.clusters.base import POLICIES

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
    from poisonproof.streaming import fit_stream

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
        where, first = rejected.first
        say(
            f"Left out {counted(rejected.count, 'row')} that did not fit; the first: {where}: "
            f"{first.place}: {shown(first.reason, 200)}."
        )
    say(self_check_sentence(classifier))
    say(f"Model written to {out}.", f"Fingerprint {stored_fingerprint(out)}")
    say(f"Next: poisonproof certify {out} TEST --label NAME")


def _rows(source: TrainingSource, data: Path) -> Any:
    from poisonproof.streaming import DeclaredRows, ImageRows

    schema = source.table or source.plain
    if schema is None:
        raise InvalidInputError("Nothing says how to read the data.")
    if source.table is not None and source.table.kind == "images":
        return ImageRows(data, source.table)
    return DeclaredRows(data, schema)


def _remember(classifier: Any, source: TrainingSource, data: Path) -> None:
    """Add what is known after reading: names of plain columns, rows that were left out."""
    if source.table is not None:
        known = {**classifier.provenance_, "n_left_out": classifier.rejected_.count}
        classifier.provenance_ = known
        return
    names = _rows(source, data).feature_names
    classifier.feature_names_in_ = np.array(names, dtype=object)
