"""Refined clusters, frozen: one file with a digest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.exceptions import StoreError
from poisonproof.pretraining.checkpoint import Tensors, read_tensors, write_tensors
from poisonproof.pretraining.frozen import FrozenNetwork, moved
from poisonproof.pretraining.refinement.specification import RefineSpec
from poisonproof.pretraining.refinement.tasks import Clusters
from poisonproof.pretraining.specification import PretrainSpec
from poisonproof.pretraining.tasks import Task

__all__ = ["CLUSTERS", "ClusterNetwork", "load_clusters"]

CLUSTERS = "clusters.safetensors"


class ClusterNetwork(FrozenNetwork):
    """A map from images to clusters that no longer changes.

    Parameters
    ----------
    spec : PretrainSpec
        The network and where it is computed.
    clusters : RefineSpec
        How the clusters were refined.
    tensors : dict of arrays
        Weights and running statistics.
    law : mapping
        Specification, digests of samples and first features, and machine.
    history : sequence of [loss, share]
        What each epoch came to, stage after stage.
    report : mapping
        What was decided on the way, and on which numbers; none of them knows a label.

    Guarantee
    ---------
    The cluster of an image does not depend on the images beside it.
    """

    def __init__(
        self,
        spec: PretrainSpec,
        clusters: RefineSpec,
        tensors: Tensors,
        law: Mapping[str, Any],
        history: Sequence[Sequence[float]] = (),
        report: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(spec, tensors, law, history)
        self.clusters, self.report = clusters, dict(report or {})

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``clusters.safetensors`` into a folder."""
        path = Path(folder) / CLUSTERS
        about = {"law": self.law, "history": self.history, "report": self.report}
        write_tensors(path, self.tensors, {name: json.dumps(v) for name, v in about.items()})
        return path

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the refined features of images, shape (n, d)."""
        return super().transform(X)[:, : -self.clusters.n_clusters]

    def probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every cluster for every image, shape (n, K)."""
        logits = super().transform(X)[:, -self.clusters.n_clusters :].astype(np.float64)
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        found: NDArray[np.float64] = chances / chances.sum(axis=1, keepdims=True)
        return found

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the most probable cluster of every image, shape (n,)."""
        return np.asarray(self.probabilities(X).argmax(axis=1), dtype=np.int64)

    def _new_task(self) -> Task:
        return Clusters(self.spec, self.clusters)


def load_clusters(folder: str | os.PathLike[str], *, device: str | None = None) -> ClusterNetwork:
    """Read clusters that `ClusterNetwork.save` wrote.

    Parameters
    ----------
    folder : path
        Holds ``clusters.safetensors``.
    device : {"cpu", "cuda"}, optional
        Where to compute; by default where they were refined. Another device rounds differently.
    """
    path = Path(folder) / CLUSTERS
    if not path.is_file():
        raise StoreError(
            f"{folder} holds no {CLUSTERS}. Make it with: poisonproof features refine RECIPE"
            " --start DIR --out DIR."
        )
    tensors, about = read_tensors(path)
    try:
        law, history, report = (json.loads(about[name]) for name in ("law", "history", "report"))
        spec = PretrainSpec.from_json(law["network"])
        clusters = RefineSpec.from_json(law["specification"])
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path} does not say how it was made: {error}.") from error
    return ClusterNetwork(moved(spec, device), clusters, tensors, law, history, report)
