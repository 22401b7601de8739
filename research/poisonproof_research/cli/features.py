"""Command ``features``: maps and clusters learned from images without labels."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import ArrayLike

from poisonproof.cli._app import choose
from poisonproof.cli._screen import check_folder, say, verbosity
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof.networks.pretraining.frozen import FrozenNetwork
    from poisonproof.networks.pretraining.loop import Watch
    from poisonproof_research.reproduction.row_data import RowData

PROBE_ROWS = 2000


def features(
    action: Annotated[
        str,
        typer.Argument(
            help="train: learn a map. refine: learn clusters on top. show: describe either."
        ),
    ],
    recipe: Annotated[
        str,
        typer.Argument(
            help="rotnet-mnist, simclr-cifar10 or simclr-gtsrb; to refine: clusters-cifar10 or "
            "clusters-gtsrb."
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder of the map.")
    ] = None,
    start: Annotated[
        Path | None, typer.Option(metavar="DIR", help="refine: the map of simclr to start from.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of imported datasets.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A packed dataset instead.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=2, help="Instead of the recipe's.")] = None,
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
            min=0, metavar="E", help="Every E epochs, print the accuracy of nearest neighbours."
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
    machine: dict[str, Any] = {"engine": engine or ("compiled" if device == "cuda" else "eager")}
    if device == "cuda":
        machine["dtype"] = "bfloat16"
    rows = _load(recipe, cache, data)
    from poisonproof.networks.pretraining.loop import RunLimits, train_features

    deadline = None if limit_seconds is None else began + limit_seconds
    run: dict[str, Any] = {
        "folder": out / "run",
        "limits": RunLimits(every, deadline, stop_after),
        "progress": make_progress(verbosity()),
        "watch": _watch(rows, probe),
    }
    if action == "train":
        spec = _pretrain_spec(recipe, epochs, device=device, seed=seed, **machine)
        found = train_features(rows.x_train, spec, **run)
    else:
        from poisonproof_research.networks.refining import refine_clusters

        clusters = _refine_spec(recipe, epochs, seed)
        found = refine_clusters(rows.x_train, _start(start, device, machine), clusters, **run)
    if found is None:
        say("Stopped before the last epoch. Run the command again to go on.")
        return
    path = found.save(out)
    say(f"{path}: {len(found.history)} epochs, digest {found.digest()}.")


def _load(recipe: str, cache: Path | None, pack: Path | None) -> RowData:
    from poisonproof_research.reproduction.row_data import data_from_cache, data_from_pack

    return data_from_pack(pack) if pack else data_from_cache(recipe.partition("-")[2], cache)


def _pretrain_spec(recipe: str, epochs: int | None, **changes: Any) -> Any:
    from poisonproof_research.networks.refine_spec import published

    spec = published(recipe, **changes)
    if epochs is None:
        return spec
    milestones = tuple(round(m * epochs / spec.epochs) for m in spec.milestones)
    return replace(spec, epochs=epochs, milestones=milestones)


def _refine_spec(recipe: str, epochs: int | None, seed: int) -> Any:
    from poisonproof_research.networks.refine_spec import refinement_recipe

    spec = refinement_recipe(recipe, seed=seed)
    if epochs is None:
        return spec
    total = spec.agreement_epochs + spec.label_epochs
    first = min(max(1, round(epochs * spec.agreement_epochs / total)), epochs - 1)
    return replace(spec, agreement_epochs=first, label_epochs=epochs - first)


def _start(start: Path | None, device: str, machine: dict[str, Any]) -> FrozenNetwork:
    """Read the map, to be trained on from there on this device."""
    from poisonproof.networks.pretraining.frozen import load_features

    if start is None:
        raise InvalidInputError("Name the map to start from: --start DIR.")
    found = load_features(start, device=device)
    found.spec = replace(found.spec, **machine)
    return found


def _watch(rows: RowData, probe: int) -> Watch:
    """Print every epoch, and now and then the probe; training sees nothing of it."""

    def report(epoch: Any, current: Any) -> None:
        text = (
            f"Epoch {epoch.epoch}: loss {epoch.loss:.4f}, right {100 * epoch.share:.2f} %, "
            f"{epoch.images_per_second:,.0f} images/s"
        )
        if probe and epoch.epoch % probe == 0:
            text += f", neighbours {100 * _probe(current(), rows):.2f} %"
        say(text + ".")

    return report


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
    from poisonproof_research.networks.refining import CLUSTERS, load_clusters

    if (folder / CLUSTERS).is_file():
        found: Any = load_clusters(folder)
        sizes = sorted(found.report["sizes"])
        text = f"{len(sizes)} clusters of {sizes[0]:,} to {sizes[-1]:,} images"
        if "discarded" in found.report:
            text += f"; stage {', '.join(found.report['discarded'])} discarded: a cluster died"
    else:
        found = load_features(folder)
        loss, share = found.history[-1]
        text = f"{found.spec.method}, loss {loss:.4f}, right {100 * share:.2f} %"
    say(
        f"{text}; images of shape {found.spec.input_shape}, {len(found.history)} epochs.",
        f"Samples {found.law['samples_sha256']}.",
        f"Digest {found.digest()}.",
    )
