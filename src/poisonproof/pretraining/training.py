"""From images to a frozen map, without labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from poisonproof.engines.torch.device import deterministic, require_device
from poisonproof.pretraining.checkpoint import RunFolder
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.loop import EpochReport, Limits, Run, Watch, machine_of
from poisonproof.pretraining.samples import samples_digest, sorted_images
from poisonproof.pretraining.specification import PretrainSpec
from poisonproof.pretraining.tasks import make_task
from poisonproof.progress import Progress, Silent

__all__ = ["EpochReport", "Limits", "Watch", "train_features"]


def train_features(
    X: Any,
    spec: PretrainSpec,
    *,
    folder: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> FrozenNetwork | None:
    """Learn a map from images alone.

    Parameters
    ----------
    X : uint8 array of shape (n, C, H, W) or (n, H, W)
        All samples; their order does not matter.
    spec : PretrainSpec
        The law.
    folder : path, optional
        Where states are kept; a run that was stopped goes on from there.
    limits : Limits, optional
        When to save and when to stop.
    progress : Progress, optional
        Told of every epoch.
    watch : callable, optional
        Told of loss and speed of every epoch.

    Returns
    -------
    FrozenNetwork or None
        None if it was stopped before the last epoch.

    Guarantee
    ---------
    The map is a function of the multiset of samples, the specification and the machine. There is
    no way in for labels.
    """
    images = sorted_images(X, spec.input_shape)
    device = require_device(spec.machine())
    law = {
        "specification": spec.to_json(),
        "samples_sha256": samples_digest(images),
        "machine": machine_of(spec),
    }
    home = None if folder is None else RunFolder(Path(folder), law)
    with deterministic(spec.machine()):
        run = Run(
            make_task(spec),
            images,
            device,
            lambda tensors, history: FrozenNetwork(spec, tensors, law, history),
        )
        return run.finish(home, limits or Limits(), progress or Silent(), watch)
