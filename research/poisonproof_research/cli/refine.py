"""The part of ``poisonproof features`` that refines clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poisonproof.cli._screen import say, verbosity
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof.networks.pretraining.frozen import FrozenNetwork
    from poisonproof.networks.pretraining.loop import Watch
    from poisonproof_research.networks.refine_spec import RefineSpec


@dataclass(frozen=True)
class How:
    """Where a run is kept, when it stops and who is told; nothing that changes the result.

    Attributes
    ----------
    out : Path
        Folder of the result.
    every : int
        Epochs between two checkpoints.
    deadline : float, optional
        Value of `time.monotonic` at which to stop.
    stop_after : int, optional
        Epochs after which to stop.
    watch : callable
        Told of every epoch.
    """

    out: Path
    every: int
    deadline: float | None
    stop_after: int | None
    watch: Watch

    def as_arguments(self) -> dict[str, Any]:
        """Return them as arguments of `train_features` and `refine_clusters`."""
        from poisonproof.networks.pretraining.loop import Limits

        return {
            "folder": self.out / "run",
            "limits": Limits(self.every, self.deadline, self.stop_after),
            "progress": make_progress(verbosity()),
            "watch": self.watch,
        }


def refine(
    images: Any,
    recipe: str,
    start: Path,
    device: str,
    engine: str | None,
    changes: dict[str, Any],
    epochs: int | None,
    how: How,
) -> None:
    """Refine clusters of images, starting from a map in the folder `start`."""
    from poisonproof_research.networks.refining import refine_clusters

    spec = _specification(recipe, changes, epochs)
    features = _features(start, device, engine)
    found = refine_clusters(images, features, spec, **how.as_arguments())
    if found is None:
        total = spec.agreement_epochs + spec.label_epochs
        say(f"Stopped before epoch {total}. Run the command again to go on.")
        return
    path = found.save(how.out)
    say(f"{path}: {_summary(found.report)} Digest {found.digest()}.")


def is_refined(folder: Path) -> bool:
    """Say whether a folder holds clusters."""
    return (folder / "clusters.safetensors").is_file()


def show_refined(folder: Path) -> None:
    """Say what the clusters in a folder are."""
    from poisonproof_research.networks.refining import load_clusters

    found = load_clusters(folder)
    say(
        f"{found.clusters.n_clusters} clusters of images of shape {found.spec.input_shape}: "
        f"{_summary(found.report)}",
        f"Samples {found.law['samples_sha256']}.",
        f"Digest {found.digest()}.",
    )


def _specification(recipe: str, changes: dict[str, Any], epochs: int | None) -> RefineSpec:
    from poisonproof_research.networks.refine_spec import REFINEMENT, RefineSpec, refinement_recipe

    chosen = {name: value for name, value in changes.items() if value is not None}
    if recipe == "clusters":
        if "n_clusters" not in chosen:
            raise InvalidInputError("Say how many clusters: --clusters K.")
        spec = RefineSpec(**chosen)
    elif recipe in REFINEMENT:
        spec = refinement_recipe(recipe, **chosen)
    else:
        raise InvalidInputError(
            f"There is no recipe {recipe!r} to refine; known: {', '.join(REFINEMENT)}, and clusters"
            " with --images and --clusters."
        )
    if epochs is None:
        return spec
    if epochs < 2:
        raise InvalidInputError("--epochs is shared by two stages, so it must be at least 2.")
    total = spec.agreement_epochs + spec.label_epochs
    first = min(max(1, round(epochs * spec.agreement_epochs / total)), epochs - 1)
    return replace(spec, agreement_epochs=first, label_epochs=epochs - first)


def _features(start: Path, device: str, engine: str | None) -> FrozenNetwork:
    """Read the map, to be trained on from there on this device."""
    from poisonproof.networks.pretraining.frozen import load_features

    features = load_features(start, device=device)
    changes: dict[str, Any] = {"engine": engine or "eager"}
    if device == "cuda":
        changes = {"engine": engine or "compiled", "dtype": "bfloat16"}
    features.spec = replace(features.spec, **changes)
    return features


def _summary(report: dict[str, Any]) -> str:
    sizes = sorted(report["sizes"])
    text = f"stage {report['stage']}, {len(sizes)} clusters of {sizes[0]:,} to {sizes[-1]:,} images"
    for name in report.get("discarded", {}):
        text += f", stage {name} discarded because a cluster died"
    return text + "."
