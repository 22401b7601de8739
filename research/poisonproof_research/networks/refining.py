"""Refinement of clusters without labels, stage by stage, and the frozen network it ends in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from poisonproof.exceptions import InvalidInputError, InvalidRowsError, StoreError
from poisonproof.networks.device import deterministic, require_device
from poisonproof.networks.pretraining.frozen import (
    FrozenNetwork,
    RunFolder,
    Tensors,
    as_pixels,
    moved,
    read_tensors,
    write_tensors,
)
from poisonproof.networks.pretraining.loop import Run, RunLimits, Watch, machine_of
from poisonproof.networks.pretraining.pretrain_spec import PretrainSpec
from poisonproof.networks.pretraining.tasks import Task, samples_digest, sorted_images
from poisonproof.progress import Progress, Silent
from poisonproof_research.networks.refine_spec import STAGES, RefineSpec
from poisonproof_research.networks.refine_stages import (
    Clusters,
    NeighbourAgreement,
    SelfLabels,
    fit_head,
    neighbour_table,
)

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
    """Read what `ClusterNetwork.save` wrote, by default for the device it was made on."""
    path = Path(folder) / CLUSTERS
    if not path.is_file():
        raise StoreError(
            f"{folder} holds no {CLUSTERS}. Make it with: "
            "python -m poisonproof_research features refine RECIPE --start DIR --out DIR."
        )
    tensors, about = read_tensors(path)
    try:
        law, history, report = (json.loads(about[name]) for name in ("law", "history", "report"))
        spec = PretrainSpec.from_json(law["network"])
        clusters = RefineSpec.from_json(law["specification"])
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path} does not say how it was made: {error}.") from error
    return ClusterNetwork(moved(spec, device), clusters, tensors, law, history, report)


# From features to refined clusters: the stages in their order, without labels.

_TITLES = {"agreement": "Neighbours agree", "labels": "Sure images teach"}


def refine_clusters(
    X: Any,
    features: FrozenNetwork,
    spec: RefineSpec,
    *,
    folder: str | os.PathLike[str] | None = None,
    limits: RunLimits | None = None,
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
        How clusters are refined.
    folder : path, optional
        Where states are kept; a run that was stopped goes on from there. What each stage came to
        is in its folders ``start``, ``agreement`` and ``labels``.
    limits : RunLimits, optional
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
        return refining.finish(limits or RunLimits(), progress or Silent(), watch)


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
        self.origin: dict[str, Any] = {
            "specification": spec.to_json(),
            "network": features.spec.to_json(),
            "features_sha256": features.digest(),
            "features_law": json.loads(json.dumps(features.law)),
            "samples_sha256": samples_digest(images),
            "machine": json.loads(json.dumps(machine_of(features.spec))),
        }

    def finish(
        self, limits: RunLimits, progress: Progress, watch: Watch | None
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
        limits: RunLimits,
        progress: Progress,
        watch: Watch | None,
    ) -> ClusterNetwork | None:
        origin = {**self.origin, "stage": name, "start": before.digest()}
        home = None if self.folder is None else RunFolder(self.folder / name, origin)
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
        return ClusterNetwork(self.features.spec, self.spec, tensors, self.origin, history)

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
        if known.law != self.origin:
            raise StoreError(
                f"{self.folder} holds a run of another specification (other samples, features, "
                "parameters or machine). Choose another folder, or take it away."
            )
        return known


def _later(limits: RunLimits, done: int) -> RunLimits:
    """Return the limits of a stage before which `done` epochs were counted."""
    if limits.stop_after is None:
        return limits
    return replace(limits, stop_after=limits.stop_after - done)


# Refined clusters for `ClusterVoteClassifier`.


class LearnedClusters(ClusterMixin, BaseEstimator):
    """Images to the clusters of a finished network; nothing is learned here.

    Use it as ``ClusterVoteClassifier(clusterer=LearnedClusters(DIR), assignment="one_to_one")``.

    Parameters
    ----------
    folder : path
        Holds ``clusters.safetensors``, as the command ``features refine`` writes it.
    device : {"cpu", "cuda"}, optional
        Where to compute; by default where they were refined.

    Attributes
    ----------
    n_clusters : int
        Number of clusters, K.
    digest_ : str
        Digest of the network.

    Guarantee
    ---------
    The cluster of an image is a function of that image and the network.

    Assumes
    -------
    Samples are trusted if the network was trained on them.
    """

    rowwise: ClassVar[bool] = True
    """The cluster of an image does not depend on the samples beside it."""

    def __init__(self, folder: str | os.PathLike[str], device: str | None = None) -> None:
        self.folder = folder
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the network; neither samples nor labels change it."""
        network = self._network = load_clusters(self.folder, device=self.device)
        self.digest_, self.n_clusters = network.digest(), network.clusters.n_clusters
        self.n_features_in_ = int(np.prod(network.spec.input_shape))
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of images or flat rows of whole pixels from 0 to 255, shape (n,)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1), dtype=np.int64)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return how sure each cluster is, shape (n, K)."""
        check_is_fitted(self, "digest_")
        return self._network.probabilities(as_pixels(X, self._network.spec.input_shape))
