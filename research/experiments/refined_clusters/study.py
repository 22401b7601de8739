"""Code that all parts of this experiment share: vectors and labels of a dataset, result files."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vectors import read

from poisonproof.certificates import TRUSTED_SAMPLES, make_threat
from poisonproof.evaluation.comparison import Method
from poisonproof.features.exact import exact_rows
from poisonproof.members.clusters import AssignmentRule, certify_clusters
from poisonproof.members.similarity import nearest_rows
from poisonproof_research.frontier import cluster_evidence, make_evidence, run_facts, write_method
from poisonproof_research.networks.refine_stages import neighbour_table

SAMPLES_TRUSTED = make_threat("label_flip", "row", 2, (TRUSTED_SAMPLES,))
FLIPS_COUNTED = make_threat("label_flip", "row", 1, (TRUSTED_SAMPLES,))
CHOSEN = (
    "settings: other data and the literature; kinds of vote: in turn, each after those before it "
    "had been seen on the test images (research/experiments/refined_clusters/README.md)"
)


@dataclass(frozen=True)
class Dataset:
    """Facts of a dataset without its labels, and the settings that follow from them.

    Attributes
    ----------
    name, title : str
        As in `Method`.
    n_classes : int
        Number of classes.
    neighbours : int
        Nearest training rows that a graph joins.
    hoods : tuple of int
        Sizes of neighbourhoods along the graph.
    eigenvectors : int
        Coordinates along the graph.
    """

    name: str
    title: str
    n_classes: int
    neighbours: int
    hoods: tuple[int, ...]
    eigenvectors: int


DATASETS = {
    "cifar10": Dataset("cifar10", "CIFAR-10", 10, 30, (500, 1000, 2000, 3000, 4000, 5000), 100),
    "gtsrb": Dataset("gtsrb", "GTSRB", 43, 60, (100, 250, 500, 1000, 1500, 2000), 200),
}


class Study:
    """Vectors, labels and where results go.

    Parameters
    ----------
    options : argparse.Namespace
        The command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.train, self.test, *labels = read(options.vectors)
        self.train, self.test = self.train.astype(np.float32), self.test.astype(np.float32)
        self.y_train, self.y_test = (y.astype(np.int64) for y in labels)
        self.about = json.loads((options.vectors / "about.json").read_text(encoding="utf-8"))
        self.data = DATASETS[options.dataset]
        self.work, self.out, self.refined = options.work, options.out, options.refined
        self.part, self.shares, self.ridge = options.only, options.shares, options.ridge
        self.began = time.perf_counter()

    @property
    def kind(self) -> str:
        """The short name of the vectors, in ids."""
        return str(self.about.get("kind", "simclr"))

    @property
    def title(self) -> str:
        """The name of the vectors, in titles."""
        titles = {
            "simclr": "SimCLR",
            "crops": "SimCLR on crops",
            "refined-vectors": "refined SimCLR",
        }
        return titles.get(self.kind, self.kind)

    def neighbours(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the nearest training rows of training and of test rows, computed once."""
        count = self.data.neighbours
        path = self.work / f"neighbours-{self.about['features_sha256'][:12]}.npz"
        if not path.exists():
            known, asked = exact_rows(self.train, "single"), exact_rows(self.test, "single")
            train = neighbour_table(self.train, count, "cpu")
            test = nearest_rows(asked, known, count)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, train=train, test=test)
        kept = np.load(path)
        return kept["train"], kept["test"]

    def unit(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return vectors of length one."""
        return unit(self.train), unit(self.test)

    def write(self, name: str, family: str, title: str, settings: str, certificates: Any) -> None:
        """Write one method by its certificates."""
        found = replace(certificates, classes=None)
        self._write(name, family, title, settings, found, make_evidence(found))

    def clusters(
        self, name: str, title: str, settings: str, train: NDArray[Any], test: NDArray[Any], k: int
    ) -> None:
        """Count labels by cluster and certify with every rule that fits the number of clusters."""
        table = np.zeros((k, self.data.n_classes), dtype=np.int64)
        np.add.at(table, (train, self.y_train), 1)
        rules: tuple[AssignmentRule, ...]
        rules = ("one_to_one" if k == self.data.n_classes else "onto", "local")
        for rule in rules:
            words = rule.replace("_", "-")
            self._write(
                f"{name}-{k}-{words}",
                "clusters_local" if rule == "local" else "clusters_assigned",
                f"{k} {title}, {words}",
                settings,
                certify_clusters(table, test, rule),
                cluster_evidence(table, test, rule),
            )

    def _write(
        self, name: str, family: str, title: str, settings: str, certificates: Any, evidence: Any
    ) -> None:
        data = self.data
        if self.kind != "simclr" and self.title not in title:
            title = f"{title}, {self.title}"
        vectors = self.about.get("words") or f"SimCLR, {self.about['epochs']} epochs"
        dataset = "" if data.name == "cifar10" else f"--dataset {data.name} "
        method = Method(
            f"{data.name}-{name}",
            data.name,
            data.title,
            family,
            title,
            f"{vectors}; {settings}",
            CHOSEN,
            f"python research/experiments/refined_clusters/run.py {dataset}--vectors DIR --work WORK "
            f"--only {self.part}" + ("" if self.ridge == 1.0 else f" --ridge {self.ridge:g}"),
            certificates,
            self.y_test,
            run_facts(
                self.y_train,
                {"all": time.perf_counter() - self.began},
                features_sha256=self.about["features_sha256"],
            ),
        )
        write_method(method, evidence, self.out)
        print(f"{method.id}: clean {100 * method.clean:.2f} %, median {method.median}", flush=True)


def unit(X: NDArray[Any]) -> NDArray[np.float32]:
    """Return vectors of length one."""
    lengths = np.sqrt((X.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    found: NDArray[np.float32] = (X / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return found
