"""Votes of single rows on MNIST, all 60,000 training rows and 10,000 test images, and their rivals.

    python research/experiments/row_votes/run.py --data DIR --only neighbors
    python research/experiments/row_votes/run.py --data DIR --only clusters-10
    python research/experiments/row_votes/run.py --data DIR --only dpa
    python research/experiments/row_votes/run.py --data DIR --only flips-50

DIR holds the published files (idx, gz or npz). Features and the number of neighbours were chosen on
scikit-learn's digits (choose.json). The cosine of the neighbour votes trades accuracy for radius
as k does for DPA; the whole grid below is reported, and nothing is picked from it. Clusters: one
per class, one and two more. Kernel ridge members as in research/experiments/closed_form, with votes counted
member by member (dpa), and with flips counted within members (flips).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline, make_pipeline

from poisonproof import ClusterVoteClassifier, NeighborVoteClassifier
from poisonproof.evaluation.comparison import Method
from poisonproof.features import Deskew, OrientationHistogram
from poisonproof.members.clusters import SpectralClusters, certify_clusters
from poisonproof_research.frontier import cluster_evidence, make_evidence, run_facts, write_method
from poisonproof_research.methods.digits import digit_classifier, digit_features, digit_member
from poisonproof_research.methods.linear_labels import LinearLabelClassifier

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from closed_form_common import load

HERE = Path(__file__).parent
CHOSEN = json.loads((HERE / "choose.json").read_text(encoding="utf-8"))
COSINES = (0.85, 0.86, 0.87, 0.88, 0.89, 0.90, 0.91, 0.92)
CLUSTERS = {10: ("one_to_one", "local"), 11: ("onto", "local"), 12: ("onto", "local")}
PARTITIONS = (1200, 3000, 6000)
FLIPS = (50, 300, 1200)
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
CHOSEN_ON = "scikit-learn digits (research/experiments/row_votes/choose.py)"


def neighbor_features() -> Pipeline:
    """Return the features that choose.py chose for neighbour votes."""
    chosen = CHOSEN["neighbor_votes"]["chosen"]
    names = ("n_orientations", "cell", "block", "signed", "root")
    histogram = OrientationHistogram(**{name: chosen[name] for name in names})
    return make_pipeline(Deskew(), histogram)


def neighbors(images: Any, dataset: str, out: Path) -> None:
    """Certify against inserted and deleted rows, for all cosines; count flips as well."""
    start = time.perf_counter()
    clf = NeighborVoteClassifier(neighbor_features(), COSINES[0], classes=range(10))
    clf.fit(images.x_train, images.y_train)
    fitted = time.perf_counter() - start
    for cosine in COSINES:
        start = time.perf_counter()
        certificates = _as_indices(clf.set_params(threshold=cosine).certify(images.x_test))
        asked = time.perf_counter() - start
        method = Method(
            f"{dataset}-neighbors-{cosine:.2f}",
            dataset,
            TITLES[dataset],
            "neighbors",
            f"neighbour votes, cosine {cosine:.2f}",
            f"deskewed orientation histograms, cosine at least {cosine:.2f}",
            f"features: {CHOSEN_ON}; cosine: whole grid reported",
            f"python research/experiments/row_votes/run.py --data DIR --dataset {dataset} --only neighbors",
            certificates,
            images.y_test,
            run_facts(images.y_train, {"fit": fitted, "certify": asked}),
        )
        _finish(method, make_evidence(certificates), out)


def clusters(images: Any, dataset: str, count: int, out: Path) -> None:
    """Certify against flipped labels, with `count` clusters."""
    start = time.perf_counter()
    n_neighbors = CHOSEN["cluster_votes"]["chosen"]["n_neighbors"]
    spectral = SpectralClusters(count, n_neighbors=n_neighbors)
    clf = ClusterVoteClassifier(digit_features(), count, clusterer=spectral, classes=range(10))
    clf.fit(images.x_train, images.y_train)
    fitted, start = time.perf_counter() - start, time.perf_counter()
    found = clf.clusterer_.predict(clf.features_.transform(images.x_test))
    asked = time.perf_counter() - start
    for rule in CLUSTERS[count]:
        certificates = certify_clusters(clf.table_, found, rule)
        words = rule.replace("_", "-")
        method = Method(
            f"{dataset}-clusters-{count}-{rule.replace('_', '-')}",
            dataset,
            TITLES[dataset],
            "clusters_local" if rule == "local" else "clusters_assigned",
            f"{count} clusters, {words}",
            f"deskewed orientation histograms, {count} spectral clusters, {n_neighbors} neighbours",
            f"features and neighbours: {CHOSEN_ON}; 10, 11 and 12 clusters all reported",
            f"python research/experiments/row_votes/run.py --data DIR --dataset {dataset} "
            f"--only clusters-{count}",
            certificates,
            images.y_test,
            run_facts(images.y_train, {"fit": fitted, "ask": asked}),
        )
        _finish(method, cluster_evidence(clf.table_, found, rule), out)


def partitions(images: Any, dataset: str, out: Path) -> None:
    """Certify kernel ridge members by theorem 1, against inserted and deleted rows."""
    for k in PARTITIONS:
        start = time.perf_counter()
        clf = digit_classifier(k).fit(images.x_train, images.y_train)
        certificates = _as_indices(clf.certify(images.x_test))
        method = Method(
            f"{dataset}-dpa-kernel-ridge-{k}",
            dataset,
            TITLES[dataset],
            "dpa",
            f"DPA, kernel ridge, k = {k:,}",
            "deskewed orientation histograms, kernel ridge members, pixel_sum partitions",
            "scikit-learn digits (research/experiments/closed_form/choose.py); k: all reported",
            f"python research/experiments/row_votes/run.py --data DIR --dataset {dataset} --only dpa",
            certificates,
            images.y_test,
            run_facts(images.y_train, {"all": time.perf_counter() - start}),
        )
        _finish(method, make_evidence(certificates), out)


def flips(images: Any, dataset: str, k: int, out: Path) -> None:
    """Certify kernel ridge members against flipped labels, counted within members."""
    start = time.perf_counter()
    member = digit_member()
    clf = LinearLabelClassifier(
        member, digit_features(), k, partitioner="pixel_sum", classes=range(10)
    )
    clf.fit(images.x_train, images.y_train)
    certificates = _as_indices(clf.certify(images.x_test))
    method = Method(
        f"{dataset}-flips-kernel-ridge-{k}",
        dataset,
        TITLES[dataset],
        "label_flips",
        f"kernel ridge, flips counted, k = {k:,}",
        "deskewed orientation histograms, kernel ridge members, pixel_sum partitions",
        "scikit-learn digits (research/experiments/closed_form/choose.py); k: all reported",
        f"python research/experiments/row_votes/run.py --data DIR --dataset {dataset} --only flips-{k}",
        certificates,
        images.y_test,
        run_facts(images.y_train, {"all": time.perf_counter() - start}),
    )
    _finish(method, make_evidence(certificates), out)


def _as_indices(certificates: Any) -> Any:
    """Return certificates of the classes 0 to 9 with indices as labels."""
    return replace(certificates, classes=None)


def _finish(method: Method, evidence: dict[str, Any], out: Path) -> None:
    write_method(method, evidence, out)
    print(f"{method.id}: clean {100 * method.clean:.2f} %, median {method.median}", flush=True)


def main() -> None:
    """Run one part and write its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", default="mnist", choices=list(TITLES))
    parser.add_argument("--only", default=None, help="neighbors, clusters-10, dpa or flips-50")
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    images = load(options.dataset, options.data)
    if options.only in (None, "neighbors"):
        neighbors(images, options.dataset, options.out)
    if options.only in (None, "dpa"):
        partitions(images, options.dataset, options.out)
    for k in FLIPS:
        if options.only in (None, f"flips-{k}"):
            flips(images, options.dataset, k, options.out)
    for count in CLUSTERS:
        if options.only in (None, f"clusters-{count}"):
            clusters(images, options.dataset, count, options.out)


if __name__ == "__main__":
    main()
