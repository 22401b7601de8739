"""``poisonproof features``: maps learned from images without labels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import ArrayLike

from poisonproof.cli._options import choose
from poisonproof.cli._screen import check_folder, say
from poisonproof.exceptions import InvalidInputError
from poisonproof_research.cli.refine import How, is_refined, refine, show_refined

if TYPE_CHECKING:
    from poisonproof.networks.pretraining.frozen import FrozenNetwork
    from poisonproof.networks.pretraining.loop import Watch
    from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec
    from poisonproof_research.reproduction.row_data import RowData

POSITION = 75
EPILOG = (
    "Examples: poisonproof features train rotnet-mnist --device cuda --out rotnet  |  "
    "poisonproof features train simclr --images photos --device cuda --out simclr  |  "
    "poisonproof features show --out rotnet"
)
PROBE_ROWS = 2000


def features(
    action: Annotated[
        str,
        typer.Argument(
            help="train: learn a map. refine: learn clusters on top. show: say what one is."
        ),
    ],
    recipe: Annotated[
        str,
        typer.Argument(
            help="rotnet-mnist, simclr-cifar10 or simclr-gtsrb; with --images: rotnet or simclr. "
            "To refine: clusters-cifar10 or clusters-gtsrb; with --images: clusters."
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder of the map.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(metavar="DIR", help="refine: the map of simclr to start from.")
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(min=2, metavar="K", help="refine: instead of the recipe's.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    images: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="An imported dataset of your own; see: poisonproof data --folder."
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of imported datasets.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A packed dataset instead.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="eager or compiled.  [compiled on cuda, else eager]")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Epochs between two checkpoints.")] = 10,
    limit_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Stop after the epoch in which this time is over; the same command goes on.",
        ),
    ] = None,
    stop_after: Annotated[
        int | None, typer.Option(min=1, metavar="E", help="Stop after E epochs; as above.")
    ] = None,
    probe: Annotated[
        int,
        typer.Option(
            min=0, metavar="E", help="Every E epochs, say how well neighbours do. Only printed."
        ),
    ] = 0,
) -> None:
    """Learn a map or clusters from images alone, for certificates against flipped labels.

    Labels cannot reach it: what trains takes images and nothing else. A run that was stopped goes
    on where it was when the command is repeated.
    """
    began = time.monotonic()
    choose("ACTION", action, ("train", "refine", "show"))
    if out is None:
        raise InvalidInputError("Name the folder of the map: --out DIR.")
    if action == "show":
        _show(out)
        return
    check_folder(out)
    choose("--device", device, ("cuda", "cpu"))
    deadline = None if limit_seconds is None else began + limit_seconds
    rows = _load(recipe, images, cache, data)
    how = How(out, every, deadline, stop_after, _watch(rows, probe))
    if action == "refine":
        if start is None:
            raise InvalidInputError("Name the map to start from: --start DIR.")
        changes = {"n_clusters": clusters, "seed": seed}
        refine(rows.x_train, recipe, start, device, engine, changes, epochs, how)
        return
    spec = _specification(recipe, rows, device, engine, images)
    spec = _changed(spec, seed=seed, **({"epochs": epochs} if epochs else {}))
    _train(rows, spec, how)


def _train(rows: RowData, spec: PretrainSpec, how: How) -> None:
    from poisonproof.networks.pretraining.loop import train_features

    frozen = train_features(rows.x_train, spec, **how.as_arguments())
    if frozen is None:
        say(f"Stopped before epoch {spec.epochs}. Run the command again to go on.")
        return
    path = frozen.save(how.out)
    say(f"{path}: {len(frozen.history)} epochs, digest {frozen.digest()}.")


def _load(recipe: str, images: str | None, cache: Path | None, pack: Path | None) -> RowData:
    from poisonproof_research.reproduction.row_data import data_from_cache, data_from_pack

    if pack is not None:
        return data_from_pack(pack)
    return data_from_cache(images or recipe.partition("-")[2] or recipe, cache)


def _specification(
    recipe: str, rows: RowData, device: str, engine: str | None, images: str | None
) -> PretrainSpec:
    from poisonproof.networks.pretraining.pretrain_spec import PRETRAINING, PretrainSpec

    changes: dict[str, Any] = {"device": device, "engine": engine or "eager"}
    if device == "cuda":
        changes |= {"dtype": "bfloat16", "engine": engine or "compiled"}
    if images is None:
        return PretrainSpec.from_preset(recipe, **changes)
    base = {"rotnet": "rotnet-mnist", "simclr": "simclr-cifar10"}
    if recipe not in base:
        raise InvalidInputError(f"With --images the recipe is rotnet or simclr, got {recipe!r}.")
    shape = rows.x_train.shape[1:]
    channels = shape[0] if len(shape) == 3 else 1
    changes["input_shape"] = shape if len(shape) == 3 else (1, *shape)
    known = PRETRAINING[base[recipe]]
    if channels != len(known["mean"]):
        changes |= {"mean": (0.5,) * channels, "std": (0.25,) * channels}
    return PretrainSpec.from_preset(base[recipe], **changes)


def _changed(spec: PretrainSpec, **changes: Any) -> PretrainSpec:
    from dataclasses import replace

    if "epochs" in changes and spec.milestones:
        share = changes["epochs"] / spec.epochs
        changes["milestones"] = tuple(round(m * share) for m in spec.milestones)
    return replace(spec, **changes)


def _watch(rows: RowData, probe: int) -> Watch:
    """Print every epoch, and now and then the probe; training sees nothing of it."""

    def told(report: Any, current: Any) -> None:
        text = (
            f"Epoch {report.epoch}: loss {report.loss:.4f}, right {100 * report.share:.2f} %, "
            f"{report.images_per_second:,.0f} images/s"
        )
        if probe and report.epoch % probe == 0:
            text += f", neighbours {100 * _probe(current(), rows):.2f} %"
        say(text + ".")

    return told


def _probe(frozen: FrozenNetwork, rows: RowData) -> float:
    chosen = np.linspace(0, len(rows.x_train) - 1, 5 * PROBE_ROWS).astype(int)
    test = slice(0, PROBE_ROWS)
    return neighbour_probe(
        frozen, rows.x_train[chosen], rows.y_train[chosen], rows.x_test[test], rows.y_test[test]
    )


def neighbour_probe(
    frozen: FrozenNetwork, X: Any, y: ArrayLike, X_test: Any, y_test: ArrayLike, k: int = 5
) -> float:
    """Return the accuracy of `k` nearest neighbours (cosine) on a finished copy of a map.

    Nothing that trains, stops or chooses reads that number.
    """
    from sklearn.neighbors import KNeighborsClassifier

    known, shown = frozen.transform(X), frozen.transform(X_test)
    neighbours = KNeighborsClassifier(k, metric="cosine").fit(known, np.asarray(y))
    return float(neighbours.score(shown, np.asarray(y_test)))


def _show(folder: Path) -> None:
    from poisonproof.networks.pretraining.frozen import load_features

    if is_refined(folder):
        show_refined(folder)
        return
    frozen = load_features(folder)
    spec = frozen.spec
    loss, share = frozen.history[-1]
    say(
        f"{spec.method} on images of shape {spec.input_shape}, {len(frozen.history)} epochs: loss "
        f"{loss:.4f}, right {100 * share:.2f} %.",
        f"Samples {frozen.law['samples_sha256']}.",
        f"Digest {frozen.digest()}.",
    )
