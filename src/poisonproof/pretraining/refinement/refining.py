"""From features to refined clusters: the stages in their order, without labels."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from poisonproof.engines.torch.device import deterministic, require_device
from poisonproof.exceptions import InvalidInputError, InvalidRowsError, StoreError
from poisonproof.pretraining.checkpoint import RunFolder, Tensors
from poisonproof.pretraining.frozen import FrozenNetwork
from poisonproof.pretraining.loop import Limits, Run, Watch, machine_of
from poisonproof.pretraining.refinement.heads import fit_head
from poisonproof.pretraining.refinement.neighbours import neighbour_table
from poisonproof.pretraining.refinement.network import CLUSTERS, ClusterNetwork, load_clusters
from poisonproof.pretraining.refinement.specification import STAGES, RefineSpec
from poisonproof.pretraining.refinement.tasks import Clusters, NeighbourAgreement, SelfLabels
from poisonproof.pretraining.samples import samples_digest, sorted_images
from poisonproof.progress import Progress, Silent

__all__ = ["refine_clusters"]

_TITLES = {"agreement": "Neighbours agree", "labels": "Sure images teach"}


def refine_clusters(
    X: Any,
    features: FrozenNetwork,
    spec: RefineSpec,
    *,
    folder: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> ClusterNetwork | None:
    """Learn clusters from images alone, starting from features learned from images alone.

    Parameters
    ----------
    X : uint8 array of shape (n, C, H, W)
        All samples; their order does not matter.
    features : FrozenNetwork
        A map learned by SimCLR; its specification decides where and how to compute.
    spec : RefineSpec
        The law.
    folder : path, optional
        Where states are kept; a run that was stopped goes on from there. What each stage came to
        is in its folders ``start``, ``agreement`` and ``labels``.
    limits : Limits, optional
        When to save and when to stop; epochs are counted over both stages.
    progress : Progress, optional
        Told of every epoch.
    watch : callable, optional
        Told of loss and speed of every epoch.

    Returns
    -------
    ClusterNetwork or None
        What the last stage that kept all clusters alive came to. None if it was stopped.

    Guarantee
    ---------
    The clusters are a function of the multiset of samples, the features, the specification and
    the machine. There is no way in for labels, neither here nor in how `features` was made.
    """
    if features.spec.method != "simclr":
        raise InvalidInputError(
            f"Clusters are refined from features of simclr, got {features.spec.method!r}."
        )
    images = sorted_images(X, features.spec.input_shape)
    if len(images) <= max(spec.n_clusters, spec.n_neighbors, spec.graph_neighbors):
        raise InvalidRowsError(
            f"{len(images)} images are too few for {spec.n_clusters} clusters and"
            f" {max(spec.n_neighbors, spec.graph_neighbors)} neighbours."
        )
    with deterministic(features.spec.machine()):
        refining = _Refining(images, features, spec, None if folder is None else Path(folder))
        return refining.finish(limits or Limits(), progress or Silent(), watch)


class _Refining:
    """Clusters that are being refined."""

    def __init__(
        self,
        images: NDArray[np.uint8],
        features: FrozenNetwork,
        spec: RefineSpec,
        folder: Path | None,
    ) -> None:
        self.images, self.features, self.spec, self.folder = images, features, spec, folder
        self.device = require_device(features.spec.machine())
        self.law: dict[str, Any] = {
            "specification": spec.to_json(),
            "network": features.spec.to_json(),
            "features_sha256": features.digest(),
            "features_law": json.loads(json.dumps(features.law)),
            "samples_sha256": samples_digest(images),
            "machine": json.loads(json.dumps(machine_of(features.spec))),
        }

    def finish(
        self, limits: Limits, progress: Progress, watch: Watch | None
    ) -> ClusterNetwork | None:
        kept = self._known("start") or self._start()
        done = 0
        for name in STAGES:
            if limits.stop_after is not None and limits.stop_after <= done:
                return None
            found = self._known(name) or self._stage(
                name, kept, _later(limits, done), progress, watch
            )
            if found is None:
                return None
            done += self.spec.stage(self.features.spec, name).epochs
            if not found.report["alive"]:
                kept.report["discarded"] = {name: found.report["sizes"]}
                break
            kept = found
        return kept

    def _start(self) -> ClusterNetwork:
        """Return the features as they are with the head that fits them best."""
        spec, network = self.spec, self.features.spec
        vectors = self.features.transform(self.images)
        wanted = max(spec.n_neighbors, spec.graph_neighbors)
        self._vectors_table = neighbour_table(vectors, wanted, network.device)
        head = fit_head(vectors, self._vectors_table, spec, network)
        encoder = {k: v for k, v in self.features.tensors.items() if k.startswith("encoder.")}
        tensors = {**encoder, "head.0.weight": head.weight, "head.0.bias": head.bias}
        return self._kept("start", tensors, [], losses=head.losses, chosen=head.chosen)

    def _stage(
        self,
        name: str,
        before: ClusterNetwork,
        limits: Limits,
        progress: Progress,
        watch: Watch | None,
    ) -> ClusterNetwork | None:
        law = {**self.law, "stage": name, "start": before.digest()}
        home = None if self.folder is None else RunFolder(self.folder / name, law)
        earlier = before.history
        run = Run(
            self._task(name),
            self.images,
            self.device,
            lambda tensors, history: self._network(tensors, [*earlier, *history]),
            before.tensors,
        )
        found = run.finish(home, limits, progress, watch, _TITLES[name])
        if found is None:
            return None
        return self._kept(name, found.tensors, found.history, smallest=min(before.report["sizes"]))

    def _task(self, name: str) -> Clusters:
        stage = self.spec.stage(self.features.spec, name)
        if name == "labels":
            return SelfLabels(stage, self.spec)
        table = getattr(self, "_vectors_table", None)
        if table is None:  # the start was known already
            vectors = self.features.transform(self.images)
            table = neighbour_table(vectors, self.spec.n_neighbors, stage.device)
        nearest = torch.from_numpy(table[:, : self.spec.n_neighbors].copy())
        return NeighbourAgreement(stage, self.spec, nearest.to(self.device))

    def _network(self, tensors: Tensors, history: list[list[float]]) -> ClusterNetwork:
        return ClusterNetwork(self.features.spec, self.spec, tensors, self.law, history)

    def _kept(
        self,
        name: str,
        tensors: Tensors,
        history: list[list[float]],
        smallest: int | None = None,
        **report: Any,
    ) -> ClusterNetwork:
        """Return and save what a stage came to, with the sizes of its clusters."""
        network = self._network(tensors, history)
        clusters = network.predict(self.images)
        sizes = np.bincount(clusters, minlength=self.spec.n_clusters).tolist()
        # A stage is not blamed for a cluster that was small before it.
        least = self.spec.smallest_share * len(self.images) / self.spec.n_clusters
        floor = least if smallest is None else min(least, smallest)
        alive = name == "start" or min(sizes) >= floor
        network.report = {"stage": name, "sizes": sizes, "alive": alive, **report}
        if self.folder is not None:
            network.save(self.folder / name)
        return network

    def _known(self, name: str) -> ClusterNetwork | None:
        if self.folder is None or not (self.folder / name / CLUSTERS).exists():
            return None
        known = load_clusters(self.folder / name)
        if known.law != self.law:
            raise StoreError(
                f"{self.folder} holds a run of another law (other samples, features, parameters or"
                " machine). Choose another folder, or take it away."
            )
        return known


def _later(limits: Limits, done: int) -> Limits:
    """Return the limits of a stage before which `done` epochs were counted."""
    if limits.stop_after is None:
        return limits
    return replace(limits, stop_after=limits.stop_after - done)
