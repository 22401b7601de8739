"""Label flips on CIFAR-10 from SimCLR's vectors as they are: clusters, heads, ridge members.

    python experiments/refined_clusters/run.py --vectors DIR --work WORK --only neighbours
    python experiments/refined_clusters/run.py --vectors DIR --work WORK --only spectral-10
    python experiments/refined_clusters/run.py --vectors DIR --work WORK --only heads-10
    python experiments/refined_clusters/run.py --vectors DIR --work WORK --only flips-250
    python experiments/refined_clusters/run.py --vectors DIR --work WORK --only refined --refined R

DIR is what vectors.py wrote; WORK keeps neighbours between the parts; R holds what vectors.py wrote
for refined clusters. README.md says what was chosen on what.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from graph import HOODS, graph_votes
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from vectors import read

import poisonproof
from poisonproof import LinearLabelClassifier, SSDPAClassifier
from poisonproof.certificates import TRUSTED_SAMPLES, make_threat
from poisonproof.certificates.row_votes import certify_row_votes
from poisonproof.estimators.recipes import digit_member
from poisonproof.features.exact import exact_rows
from poisonproof.frontier import Method, cluster_evidence, make_evidence, write_method
from poisonproof.frontier.candidates import in_rows
from poisonproof.learners.closed_form import RidgeClassifier
from poisonproof.learners.clusters import AssignmentRule, certify_clusters
from poisonproof.learners.similarity import nearest_rows
from poisonproof.pretraining import pretraining_recipe, refinement_recipe
from poisonproof.pretraining.refinement.heads import fit_head, spectral_start
from poisonproof.pretraining.refinement.neighbours import neighbour_table

HERE = Path(__file__).parent
NEIGHBOURS = 30
SAMPLES_TRUSTED = make_threat("label_flip", "row", 2, (TRUSTED_SAMPLES,))
CHOSEN = "experiments/refined_clusters/README.md, written before any label was joined"


class Study:
    """Vectors, labels and where results go.

    Parameters
    ----------
    options : argparse.Namespace
        The command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.train, self.test, self.y_train, self.y_test = read(options.vectors)
        self.train, self.test = self.train.astype(np.float32), self.test.astype(np.float32)
        self.about = json.loads((options.vectors / "about.json").read_text(encoding="utf-8"))
        self.work, self.out, self.refined = options.work, options.out, options.refined
        self.part = options.only
        self.began = time.perf_counter()

    def neighbours(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the nearest training rows of training and of test rows, computed once."""
        path = self.work / f"neighbours-{self.about['features_sha256'][:12]}.npz"
        if not path.exists():
            known, asked = exact_rows(self.train, "single"), exact_rows(self.test, "single")
            train = neighbour_table(self.train, NEIGHBOURS, "cpu")
            test, _ = nearest_rows(asked, known, NEIGHBOURS)
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, train=train, test=test)
        kept = np.load(path)
        return kept["train"], kept["test"]

    def unit(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return vectors of length one."""
        return _unit(self.train), _unit(self.test)

    def write(self, name: str, family: str, title: str, settings: str, found: Any) -> None:
        """Write one method; `found` is its certificates and evidence."""
        certificates, evidence = found
        method = Method(
            f"cifar10-{name}",
            "cifar10",
            "CIFAR-10",
            family,
            title,
            f"SimCLR, {self.about['epochs']} epochs; {settings}",
            CHOSEN,
            f"python experiments/refined_clusters/run.py --vectors DIR --work WORK "
            f"--only {self.part}",
            certificates,
            self.y_test,
            self._facts(),
        )
        write_method(method, evidence, self.out)
        print(f"{method.id}: clean {100 * method.clean:.2f} %, median {method.median}", flush=True)

    def clusters(
        self, name: str, title: str, settings: str, train: NDArray[Any], test: NDArray[Any], k: int
    ) -> None:
        """Count labels by cluster and certify with every rule that fits the number of clusters."""
        table = np.zeros((k, 10), dtype=np.int64)
        np.add.at(table, (train, self.y_train), 1)
        rules: tuple[AssignmentRule, ...] = ("one_to_one" if k == 10 else "onto", "local")
        for rule in rules:
            words = rule.replace("_", "-")
            self.write(
                f"{name}-{k}-{words}",
                "clusters_local" if rule == "local" else "clusters_assigned",
                f"{k} {title}, {words}",
                settings,
                (certify_clusters(table, test, rule), cluster_evidence(table, test, rule)),
            )

    def _facts(self) -> dict[str, Any]:
        return {
            "n_train": len(self.y_train),
            "train_class_sizes": np.bincount(self.y_train).tolist(),
            "features_sha256": self.about["features_sha256"],
            "seconds": {"all": round(time.perf_counter() - self.began, 1)},
            "software": {
                "poisonproof": poisonproof.__version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "scikit-learn": sklearn.__version__,
            },
        }


def _unit(X: NDArray[Any]) -> NDArray[np.float32]:
    lengths = np.sqrt((X.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    unit: NDArray[np.float32] = (X / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return unit


def spectral(study: Study, k: int) -> None:
    """Cut the graph of neighbours; a test image takes the cluster of most of its neighbours."""
    train, test = study.neighbours()
    labels = spectral_start(train, k)
    votes = np.stack([(labels[test] == cluster).sum(axis=1) for cluster in range(k)], axis=1)
    study.clusters(
        "simclr-spectral",
        "spectral clusters",
        f"{k} spectral clusters, {NEIGHBOURS} neighbours",
        labels,
        votes.argmax(axis=1),
        k,
    )


def heads(study: Study, k: int) -> None:
    """Train heads on frozen vectors and keep the one with the least loss."""
    spec = refinement_recipe("clusters-cifar10", n_clusters=k)
    train, _ = study.neighbours()
    head = fit_head(study.train, train, spec, pretraining_recipe("simclr-cifar10"))
    print(f"losses {np.round(head.losses, 4).tolist()}, chosen {head.chosen}", flush=True)
    found = [(X @ head.weight.T + head.bias).argmax(axis=1) for X in (study.train, study.test)]
    study.clusters(
        "simclr-heads",
        "clusters of a linear head",
        f"linear head of {k} clusters on frozen vectors, best of {len(head.losses)} by its loss",
        *found,
        k,
    )


def round_clusters(study: Study, name: str) -> None:
    """Find ten round clusters of vectors of length one."""
    train, test = study.unit()
    model: Any = KMeans(10, n_init=10, random_state=0)
    if name == "mixture":
        model = GaussianMixture(10, covariance_type="diag", reg_covar=1e-4, random_state=0)
    model.fit(train)
    words = {"kmeans": "k-means clusters", "mixture": "Gaussian clusters"}[name]
    found = model.predict(train), model.predict(test)
    study.clusters(f"simclr-{name}", words, f"10 {words}", *found, 10)


def flips(study: Study, k: int) -> None:
    """Certify kernel ridge members against flipped labels, counted within members."""
    train, test = study.unit()
    clf = LinearLabelClassifier(digit_member(), n_partitions=k, classes=range(10))
    found = replace(clf.fit(train, study.y_train).certify(test), classes=None)
    study.write(
        f"simclr-flips-{k}",
        "label_flips",
        f"kernel ridge on SimCLR, flips counted, k = {k:,}",
        "kernel ridge members",
        (found, make_evidence(found)),
    )


def graph(study: Study, _: int) -> None:
    """Let training images vote that are near along the graph: as many, or as near."""
    counts = graph_votes(*study.neighbours(), study.y_train)
    for name, table in counts.items():
        found = certify_row_votes(table, len(study.y_train), SAMPLES_TRUSTED)
        many = f"of {name:,} images" if name in HOODS else f"of cosine {name}"
        study.write(
            f"simclr-graph-{name}",
            "neighbors",
            f"graph neighbourhoods {many}",
            f"diffusion on the graph of {NEIGHBOURS} neighbours",
            (found, make_evidence(found)),
        )


def ridge(study: Study, k: int) -> None:
    """Certify ridge members by theorem 2."""
    train, test = study.unit()
    clf = SSDPAClassifier(RidgeClassifier(), n_partitions=k, classes=range(10))
    made = clf.fit(train, study.y_train).certify(test)
    found = replace(made, classes=None, threat=in_rows(made.threat))
    study.write(
        f"simclr-ridge-{k}",
        "dpa",
        f"SS-DPA, ridge on SimCLR, k = {k:,}",
        "ridge members",
        (found, make_evidence(found)),
    )


def refined(study: Study) -> None:
    """Certify the stages of refined clusters, each in its folder."""
    for stage in ("start", "agreement", "labels"):
        folder = study.refined / stage
        if not folder.exists():
            continue
        chances = [
            np.load(folder / f"clusters-{w}.npz")["probabilities"] for w in ("train", "test")
        ]
        found = [chance.argmax(axis=1) for chance in chances]
        study.about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        k = chances[0].shape[1]
        study.clusters(f"refined-{stage}", f"refined clusters ({stage})", stage, *found, k)


def main() -> None:
    """Run one part and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--refined", type=Path, default=None)
    parser.add_argument("--only", required=True)
    parser.add_argument("--out", type=Path, default=HERE.parent / "frontier")
    study = Study(parser.parse_args())
    torch.set_num_threads(1)
    name, _, number = study.part.partition("-")
    if name == "neighbours":
        study.neighbours()
    elif name in ("kmeans", "mixture"):
        round_clusters(study, name)
    elif name == "refined":
        refined(study)
    else:
        parts = {
            "spectral": spectral,
            "heads": heads,
            "flips": flips,
            "ridge": ridge,
            "graph": graph,
        }
        parts[name](study, int(number or 0))


if __name__ == "__main__":
    main()
