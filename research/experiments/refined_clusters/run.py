"""Label flips from vectors of all images: clusters, heads, neighbourhoods, regression.

    python research/experiments/refined_clusters/run.py --vectors DIR --work WORK --only neighbours
    python research/experiments/refined_clusters/run.py --vectors DIR --work WORK --only spectral-10
    python research/experiments/refined_clusters/run.py --vectors DIR --work WORK --only heads-10
    python research/experiments/refined_clusters/run.py --vectors DIR --work WORK --only flips-250
    python research/experiments/refined_clusters/run.py --vectors DIR --work WORK --only flat-128
    python research/experiments/refined_clusters/run.py --vectors DIR --work WORK --only walks-990
    python research/experiments/refined_clusters/run.py --vectors DIR --work WORK --only refined --refined R

DIR is what vectors.py or ../signs/edges.py wrote; WORK keeps neighbours between the parts; R holds
what vectors.py wrote for refined clusters. ``--dataset gtsrb`` certifies GTSRB in place of
CIFAR-10. README.md says what was chosen on what.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graph import graph_votes, places, sweep_votes
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.mixture import GaussianMixture
from study import DATASETS, FLIPS_COUNTED, SAMPLES_TRUSTED, Study, unit

from poisonproof import SSDPAClassifier
from poisonproof.certificates.label_flips import certify_one_member, fewest_flips
from poisonproof.certificates.plurality import certify_row_votes
from poisonproof.evaluation.comparison import in_rows
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.members.weights import WalkWeights, _resolvent
from poisonproof.networks import PretrainSpec
from poisonproof_research.methods.digits import digit_member
from poisonproof_research.methods.flat_weights import FlatWeights
from poisonproof_research.methods.linear_labels import LinearLabelClassifier
from poisonproof_research.networks.refine_spec import refinement_recipe
from poisonproof_research.networks.refine_stages import fit_head, spectral_start

SHARES = (0.0, 0.01, 0.03)
TURNS = 50
SMOOTHING = 1000


def spectral(study: Study, k: int) -> None:
    """Cut the graph of neighbours; a test image takes the cluster of most of its neighbours."""
    train, test = study.neighbours()
    labels = spectral_start(train, k)
    votes = np.stack([(labels[test] == cluster).sum(axis=1) for cluster in range(k)], axis=1)
    study.clusters(
        f"{study.kind}-spectral",
        "spectral clusters",
        f"{k} spectral clusters, {study.data.neighbours} neighbours",
        labels,
        votes.argmax(axis=1),
        k,
    )


def heads(study: Study, k: int) -> None:
    """Train heads on frozen vectors and keep the one with the least loss."""
    name = study.data.name
    spec = refinement_recipe(f"clusters-{name}", n_clusters=k)
    train, _ = study.neighbours()
    head = fit_head(study.train, train, spec, PretrainSpec.from_preset(f"simclr-{name}"))
    print(f"losses {np.round(head.losses, 4).tolist()}, chosen {head.chosen}", flush=True)
    found = [(X @ head.weight.T + head.bias).argmax(axis=1) for X in (study.train, study.test)]
    study.clusters(
        f"{study.kind}-heads",
        "clusters of a linear head",
        f"linear head of {k} clusters on frozen vectors, best of {len(head.losses)} by its loss",
        *found,
        k,
    )


def kmeans(study: Study, k: int) -> None:
    """Find round clusters of vectors of length one, by default one per class."""
    k = k or study.data.n_classes
    _round_clusters(study, "kmeans", "k-means clusters", KMeans(k, n_init=10, random_state=0), k)


def mixture(study: Study, k: int) -> None:
    """Find Gaussian clusters of vectors of length one, by default one per class."""
    k = k or study.data.n_classes
    _round_clusters(study, "mixture", "Gaussian clusters", _mixture(k), k)


def _mixture(k: int) -> GaussianMixture:
    return GaussianMixture(k, covariance_type="diag", reg_covar=1e-4, random_state=0)


def smoothed(study: Study, k: int) -> None:
    """Let a test image take the Gaussian cluster of most images around it along the graph."""
    train, _ = study.unit()
    found = _mixture(k).fit_predict(train)
    data = replace(study.data, n_classes=k, hoods=(SMOOTHING,))
    asked = graph_votes(*study.neighbours(), found, data)[SMOOTHING].argmax(axis=1)
    study.clusters(
        f"{study.kind}-smoothed",
        "Gaussian clusters, smoothed",
        f"{k} Gaussian clusters; a test image takes that of most of {SMOOTHING:,} along the graph",
        found,
        asked,
        k,
    )


def walked(study: Study, thousandths: int) -> None:
    """Let every image take the Gaussian cluster that walks along the graph visit most."""
    (train, _), k, chance = study.unit(), study.data.n_classes, thousandths / 1000
    _, asked = study.neighbours()
    first = np.eye(k)[_mixture(k).fit_predict(train)]
    steps, scale = WalkWeights(study.data.neighbours, chance).fit(study.train)._graph()
    scores = _resolvent(steps, first.astype(np.float32) * scale, chance) * scale
    study.clusters(
        f"{study.kind}-walked-{chance:g}",
        f"Gaussian clusters after walks that go on with {chance:g}",
        f"{k} Gaussian clusters; an image takes the one that walks with {chance:g} visit most",
        scores.argmax(axis=1),
        scores[asked].mean(axis=1).argmax(axis=1),
        k,
    )


def filtered(study: Study, rounds: int) -> None:
    """Find Gaussian clusters of vectors that were averaged over their neighbours, in rounds."""
    near, near_test = study.neighbours()
    (train, _), k = study.unit(), study.data.n_classes
    for _ in range(rounds):
        train = unit((train + train[near].mean(axis=1)) / 2)
    model = _mixture(k).fit(train)
    often = "once" if rounds == 1 else f"in {rounds} rounds"
    study.clusters(
        f"{study.kind}-filtered-{rounds}",
        f"Gaussian clusters of vectors averaged {often}",
        f"{k} Gaussian clusters of vectors averaged over {study.data.neighbours} neighbours",
        model.predict(train),
        model.predict(unit(train[near_test].mean(axis=1))),
        k,
    )


def discriminant(study: Study, k: int) -> None:
    """Look in turn for directions that part the clusters, and for clusters in these directions."""
    train, test = study.unit()
    found = _mixture(k).fit_predict(train)
    for turn in range(1, TURNS + 1):
        directions = LinearDiscriminantAnalysis().fit(train, found)
        seen, before = directions.transform(train), found
        means = np.stack([seen[before == cluster].mean(axis=0) for cluster in range(k)])
        model = GaussianMixture(k, random_state=0, means_init=means).fit(seen)
        found = model.predict(seen)
        print(f"turn {turn}: {(found != before).sum():,} rows moved", flush=True)
        if len(np.unique(found)) < k or np.array_equal(found, before):
            break
    asked = model.predict(directions.transform(test))
    study.clusters(
        f"{study.kind}-discriminant",
        "discriminant clusters",
        f"{k} discriminant clusters, {turn} turns",
        found,
        asked,
        k,
    )


def _round_clusters(study: Study, name: str, words: str, model: Any, k: int) -> None:
    train, test = study.unit()
    model.fit(train)
    found = model.predict(train), model.predict(test)
    study.clusters(f"{study.kind}-{name}", words, f"{k} {words}", *found, k)


def flips(study: Study, k: int) -> None:
    """Certify kernel ridge members against flipped labels, counted within members."""
    train, test = study.unit()
    classes = range(study.data.n_classes)
    clf = LinearLabelClassifier(digit_member(), n_partitions=k, classes=classes)
    study.write(
        f"{study.kind}-flips-{k}",
        "label_flips",
        f"kernel ridge on {study.title}, flips counted, k = {k:,}",
        "kernel ridge members",
        clf.fit(train, study.y_train).certify(test),
    )


def flat(study: Study, components: int) -> None:
    """Certify regression on principal components of all rows."""
    _regression(study, "flat", components, "components", None)


def damped(study: Study, components: int) -> None:
    """Certify the same with a ridge, in units of the mean variance of a column."""
    ridge = study.ridge
    name = "damped" if ridge == 1.0 else f"damped-{ridge:g}"
    which = "damped components" if ridge == 1.0 else f"components damped by {ridge:g}"
    _regression(study, name, components, which, None, ridge)


def shared(study: Study, components: int) -> None:
    """Certify regression on the components in which neighbours differ least."""
    near, _ = study.neighbours()
    _regression(study, "shared", components, "components that neighbours share", near)


def _regression(
    study: Study, name: str, components: int, which: str, near: Any, ridge: float = 0.0
) -> None:
    """Use the weights of least squares, and capped ones."""
    for share in study.shares:
        weights = FlatWeights(components, share, ridge=ridge).fit(study.train, near=near)
        _weighted(
            study,
            f"{name}-{components}-{share:g}",
            f"regression on {components} {which} of {study.title}, {_capping(share)}",
            f"{components} {which}, one member on all rows, {_capping(share)}",
            (weights.integers(study.test[start : start + 250]) for start in _starts(study)),
        )


def walks(study: Study, thousandths: int) -> None:
    """Let all training images vote, each as often as walks along the graph visit it."""
    chance, count = thousandths / 1000, study.data.neighbours
    weights = WalkWeights(count, chance).fit(study.train)
    words = f"that go on with {chance:g}"
    _weighted(
        study,
        f"walks-{chance:g}",
        f"walks along the graph of {study.title} {words}",
        f"walks along the graph of {count} neighbours {words}",
        (weights.integers(study.test[here : here + 250]) for here in _starts(study)),
    )


def _capping(share: float) -> str:
    return f"the largest {100 * share:g} % of weights capped" if share else "least squares"


def _starts(study: Study) -> range:
    return range(0, len(study.test), 250)


def _weighted(study: Study, name: str, title: str, settings: str, weights: Iterable[Any]) -> None:
    """Certify one member on all rows by its weights, in blocks of test rows."""
    n_classes = study.data.n_classes
    parts = [fewest_flips(block, study.y_train, n_classes) for block in weights]
    votes, rivals, prices = (np.concatenate(part) for part in zip(*parts, strict=True))
    made = certify_one_member(votes, rivals, prices, n_classes, len(study.y_train), FLIPS_COUNTED)
    study.write(f"{study.kind}-{name}", "label_flips", title, settings, made)


def eigen(study: Study, components: int) -> None:
    """Certify regression on coordinates along the graph."""
    study.train, study.test = places(*study.neighbours(), study.data)
    _regression(study, "eigen", components, "coordinates along the graph", None)


def graph(study: Study, _: int) -> None:
    """Let training images vote that are near along the graph: as many, or as near."""
    data = study.data
    counts = graph_votes(*study.neighbours(), study.y_train, data)
    for name, table in counts.items():
        many = f"of {name:,} images" if name in data.hoods else f"of cosine {name}"
        study.write(
            f"{study.kind}-graph-{name}",
            "neighbors",
            f"graph neighbourhoods {many}",
            f"diffusion on the graph of {data.neighbours} neighbours",
            certify_row_votes(table, len(study.y_train), SAMPLES_TRUSTED),
        )


def sweep(study: Study, _: int) -> None:
    """Let training images vote up to where the graph is thin."""
    counts = sweep_votes(*study.neighbours(), study.y_train, study.data)
    for slack, table in counts.items():
        study.write(
            f"{study.kind}-sweep-{slack}",
            "neighbors",
            f"graph neighbourhoods by conductance, slack {slack}",
            f"diffusion on the graph of {study.data.neighbours} neighbours, first size whose "
            f"conductance is at most {slack} times the least",
            certify_row_votes(table, len(study.y_train), SAMPLES_TRUSTED),
        )


def ridge(study: Study, k: int) -> None:
    """Certify ridge members by theorem 2."""
    train, test = study.unit()
    classes = range(study.data.n_classes)
    clf = SSDPAClassifier(RidgeClassifier(), n_partitions=k, classes=classes)
    made = clf.fit(train, study.y_train).certify(test)
    study.write(
        f"{study.kind}-ridge-{k}",
        "dpa",
        f"SS-DPA, ridge on {study.title}, k = {k:,}",
        "ridge members",
        replace(made, threat=in_rows(made.threat)),
    )


def refined(study: Study, _: int) -> None:
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


def neighbours(study: Study, _: int) -> None:
    """Find the nearest training images of all images, and keep them."""
    study.neighbours()


PARTS = (
    neighbours,
    spectral,
    heads,
    kmeans,
    mixture,
    discriminant,
    filtered,
    smoothed,
    walked,
    flips,
    flat,
    damped,
    shared,
    eigen,
    graph,
    sweep,
    walks,
    ridge,
    refined,
)


def main() -> None:
    """Run one part and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dataset", choices=sorted(DATASETS), default="cifar10")
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--refined", type=Path, default=None)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="weights capped")
    parser.add_argument("--ridge", type=float, default=1.0, help="of damped components")
    parser.add_argument("--only", required=True)
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    name, _, number = options.only.partition("-")
    parts = {part.__name__: part for part in PARTS}
    if name not in parts or not (number or "0").isdecimal():
        parser.error(f"--only is one of {', '.join(parts)}, with -NUMBER where it has one")
    torch.set_num_threads(1)
    parts[name](Study(options), int(number or 0))


if __name__ == "__main__":
    main()
