"""CIFAR-10 and GTSRB on the features of a network trained elsewhere.

    python research/experiments/outside_features/run.py --data PACK --features DIR --only dpa-250
    python research/experiments/outside_features/run.py --data PACK --features DIR --only neighbors \
        --weights DIR

DIR holds what ``extract.py`` wrote. Members are the default of `DPAClassifier`, nothing is tuned;
neighbours are compared by the cosine of rows less what the network averages to on ImageNet,
weighted as its last layer weighs them. All k and all cosines that were run are reported. README.md
says what was fixed when.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from poisonproof import DPAClassifier, NeighborVoteClassifier, certify_scores, certify_votes
from poisonproof.estimators import member_scores
from poisonproof.evaluation.comparison import Method
from poisonproof.features import OrientationHistogram
from poisonproof_research.frontier import make_evidence, run_facts, write_method
from poisonproof_research.reproduction import RowData, data_from_pack

COSINES = (0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40, 0.45, 0.50, 0.60)
TITLES = {"cifar10": "CIFAR-10", "gtsrb": "GTSRB"}
NOTE = (
    "**With outside data:** the features come from a network that was trained on ImageNet. That is "
    "another setting than the paper's and than that of all other sections, which use the training "
    "set alone; compare only within this section. The certificates assume that nobody poisoned "
    "the network."
)
NETWORKS = {"lite0": "EfficientNet-Lite0", "lite2": "EfficientNet-Lite2"}


def rows_of(options: argparse.Namespace, data: RowData, split: str) -> Any:
    """Return what the network made of one split."""
    folder, start = options.features, f"{data.name}-{options.network}"
    parts = []
    for file in sorted(folder.glob(f"{start}-{split}-*.npz")):
        with np.load(file) as kept:
            parts.append(kept["codes"].astype(np.float32) * kept["scales"][:, None])
    return np.concatenate(parts)


def unit(rows: Any) -> Any:
    """Return rows of length one."""
    return rows / np.sqrt(np.add.reduce(rows * rows, axis=1))[:, None]


def centred(rows: Any, options: argparse.Namespace) -> Any:
    """Return rows less the network's mean, weighted by the singular values of its last layer."""
    beside = load_file(options.weights / f"{options.network}.mean.safetensors")
    return (rows - beside["mean"]) * beside["values"]


def coarse(rows: Any) -> Any:
    """Return 4 x 4 cells of 8 x 8, channel after channel."""
    return rows.reshape(len(rows), -1, 4, 2, 4, 2).mean(axis=(3, 5)).reshape(len(rows), -1)


def drawn(images: Any) -> Any:
    """Return the histograms of research/experiments/signs."""
    histogram = OrientationHistogram(n_orientations=8, cell=6, block=2, signed=True, root=True)
    return histogram.transform(np.moveaxis(images, 1, -1))


def features(data: RowData, options: argparse.Namespace, split: str) -> Any:
    """Return the features of one split."""
    rows = rows_of(options, data, split)
    if data.name == "gtsrb":
        images = data.x_train if split == "train" else data.x_test
        parts = [unit(coarse(rows)), *([drawn(images)] if options.joined else [])]
        return np.concatenate(parts, axis=1)
    return unit(centred(rows, options) if options.only == "neighbors" else rows)


def settings(data: RowData, options: argparse.Namespace) -> str:
    """Return what the features are."""
    about = json.loads((options.features / f"{data.name}-{options.network}.json").read_text())
    if about["data"] != data.digest:
        raise SystemExit(f"{options.features} holds features of other images.")
    name = NETWORKS[options.network]
    words = f"480 directions of the last layer of {name} at {about['side']} pixels"
    if data.name == "gtsrb":
        words = f"4 x 4 cells of the middle of {name} at {about['side']} pixels"
        words += ", and orientation histograms, cells of 6" if options.joined else ""
    return words + (", image and mirror image" if about["mirrored"] else "")


@dataclass(frozen=True)
class Study:
    """One dataset in features, and where its results go."""

    data: RowData
    train: Any
    test: Any
    options: argparse.Namespace

    @property
    def name(self) -> str:
        """Name of the features in titles."""
        name = NETWORKS[self.options.network]
        if self.data.name == "gtsrb":
            return f"middle of {name}" + (" and histograms" if self.options.joined else "")
        return name

    def dpa(self, k: int) -> None:
        """Certify default members on k partitions by theorem 1 and by run-off election."""
        began = time.perf_counter()
        clf = DPAClassifier(n_partitions=k, classes=range(self.data.n_classes))
        clf.fit(self.train, self.data.y_train)
        scores = member_scores(clf, self.test)
        votes = np.where(np.isnan(scores).all(axis=2), -1, scores.argmax(axis=2))
        if not np.array_equal(clf.votes(self.test[:100]), votes[:100]):
            raise SystemExit("scores and votes differ")
        base = 100 * float((votes == self.data.y_test[:, None]).mean())
        print(f"k = {k}: members {base:.2f} % right", flush=True)
        found = certify_votes(votes, self.data.n_classes)
        self._finish(began, "dpa", f"{k}", f"DPA, {self.name}, k = {k:,}", found, base)
        found = certify_scores(scores)
        self._finish(began, "runoff", f"{k}", f"run-off, {self.name}, k = {k:,}", found, base)

    def neighbors(self) -> None:
        """Certify neighbour votes, for all cosines."""
        classes = range(self.data.n_classes)
        near = NeighborVoteClassifier(None, COSINES[0], classes=classes)
        near.fit(self.train, self.data.y_train)
        for cosine in COSINES:
            began = time.perf_counter()
            found = near.set_params(threshold=cosine).certify(self.test)
            title = f"neighbour votes, {self.name}, cosine {cosine:.2f}"
            self._finish(began, "neighbors", f"{cosine:.2f}", title, found, None)

    def _finish(
        self, began: float, family: str, number: str, title: str, found: Any, base: float | None
    ) -> None:
        """Write one method down and print its numbers."""
        data, options = self.data, self.options
        members = {} if base is None else {"member_percent": round(base, 2)}
        kind = f"{family}-{options.network}" + ("-joined" if options.joined else "")
        more = " --joined" if options.joined else ""
        more += " --weights DIR" if family == "neighbors" and data.name == "cifar10" else ""
        method = Method(
            f"{data.name}-outside-{kind}-{number}",
            f"{data.name}-outside",
            f"{TITLES[data.name]}, with a network trained elsewhere",
            family,
            title,
            settings(data, options),
            "nothing: default members (research/experiments/outside_features/README.md); k and cosine: all "
            "reported",
            "python research/experiments/outside_features/run.py --data PACK --features DIR "
            f"--only {options.only}{more}",
            replace(found, classes=None),
            data.y_test,
            run_facts(
                data.y_train,
                {"fit and certify": time.perf_counter() - began},
                note=NOTE,
                **members,
            ),
        )
        write_method(method, make_evidence(method.certificates), options.out)
        print(f"{method.id}: clean {100 * method.clean:.2f} %, median {method.median}", flush=True)


def main() -> None:
    """Run one part and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--network", choices=sorted(NETWORKS), default="lite0")
    parser.add_argument("--weights", type=Path, help="folder of what lite.py wrote")
    parser.add_argument("--joined", action="store_true", help="GTSRB: with histograms")
    parser.add_argument("--only", required=True, help="dpa-250 or neighbors")
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    data = data_from_pack(options.data)
    settings(data, options)
    found = [features(data, options, split) for split in ("train", "test")]
    study = Study(data, found[0], found[1], options)
    part, _, k = options.only.partition("-")
    if part == "neighbors":
        study.neighbors()
    elif part == "dpa" and k.isdecimal():
        study.dpa(int(k))
    else:
        parser.error(f"--only is dpa-K or neighbors, got {options.only}")


if __name__ == "__main__":
    main()
