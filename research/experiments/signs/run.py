"""Closed-form members and neighbour votes on GTSRB and CIFAR-10, on the CPU.

    python research/experiments/signs/run.py --data PACK --features FILE --only dpa
    python research/experiments/signs/run.py --data PACK --features FILE --only neighbors
    python research/experiments/signs/run.py --data PACK --features FILE --shifted FILE2 --only shifts-150

PACK is what ``python -m poisonproof_research data NAME --pack`` wrote for one of the two. Features are computed once and
kept in FILE; they are a fixed map, so a partition may as well be chosen by the hash of an image's
features.
With ``shifts-k`` members see copies of every image of theirs: moved signs, mirrored objects. An
image and its copies fall into one partition, so an inserted image still reaches one member.
README.md says where every number comes from. All k and all cosines are reported.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof import DPAClassifier, NeighborVoteClassifier, certify_votes
from poisonproof.estimators import certify_runoff
from poisonproof.evaluation.comparison import Method
from poisonproof.features import OrientationHistogram
from poisonproof.partition import sample_digests
from poisonproof_research.frontier import make_evidence, run_facts, write_method
from poisonproof_research.methods.digits import digit_member
from poisonproof_research.reproduction import RowData, data_from_pack

PARTITIONS = {"gtsrb": (50, 80, 100, 150, 200, 300), "cifar10": (50, 120, 250)}
SHIFTED = {"gtsrb": (100, 150, 200), "cifar10": (50, 120, 250)}
SHIFTS = ((2, 0), (-2, 0), (0, 2), (0, -2))
COSINES = (0.70, 0.75, 0.80, 0.85, 0.90)
CELLS = {"gtsrb": 6, "cifar10": 4}
TITLES = {"gtsrb": "GTSRB", "cifar10": "CIFAR-10"}
CHOSEN_ON = "scikit-learn digits (research/experiments/signs/README.md)"


def histogram_of(name: str) -> OrientationHistogram:
    """Return the map of digits without the straightening, with cells for larger images."""
    cell = CELLS[name]
    return OrientationHistogram(n_orientations=8, cell=cell, block=2, signed=True, root=True).fit()


def mapped(data: RowData, file: Path) -> tuple[Any, Any]:
    """Return the features of training and test images, computed or read."""
    if not file.exists():
        histogram = histogram_of(data.name)
        train, test = (
            histogram.transform(np.moveaxis(images, 1, -1))
            for images in (data.x_train, data.x_test)
        )
        np.savez(file, train=train, test=test, sha256=data.digest)
    with np.load(file) as kept:
        if str(kept["sha256"]) != data.digest:
            raise SystemExit(f"{file} holds features of other images.")
        return kept["train"], kept["test"]


def copies_of(data: RowData) -> Iterator[Any]:
    """Yield all training images moved or mirrored, channels first."""
    if data.name == "cifar10":
        yield data.x_train[..., ::-1]
        return
    images = np.pad(data.x_train, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    side = data.x_train.shape[-1]
    for down, across in SHIFTS:
        yield images[:, :, 2 + down : 2 + down + side, 2 + across : 2 + across + side]


def shifted(data: RowData, file: Path) -> Any:
    """Return the features of all copies, shape (copies, n, d), computed or read."""
    if not file.exists():
        histogram = histogram_of(data.name)
        places = [histogram.transform(np.moveaxis(moved, 1, -1)) for moved in copies_of(data)]
        np.save(file, np.stack(places))
    return np.load(file, mmap_mode="r")


def with_copies(data: RowData, train: Any, file: Path) -> tuple[Any, Any, Any]:
    """Return features, labels and the number of the image of all training images and copies."""
    copies = shifted(data, file)
    X = np.concatenate([train, *copies])
    times = 1 + len(copies)
    return X, np.tile(data.y_train, times), np.tile(np.arange(len(train)), times)


@dataclass(frozen=True)
class Study:
    """One dataset in features, and where its results go."""

    data: RowData
    train: Any
    test: Any
    options: argparse.Namespace

    def dpa(self, k: int) -> None:
        """Certify members on k partitions by theorem 1."""
        began = time.perf_counter()
        found = self._members(k).certify(self.test)
        self._finish(began, f"dpa-kernel-ridge-{k}", "dpa", f"DPA, kernel ridge, k = {k:,}", found)

    def runoff(self, k: int) -> None:
        """Certify the same members by run-off election."""
        began = time.perf_counter()
        found = certify_runoff(self._members(k), self.test)
        title = f"run-off, kernel ridge, k = {k:,}"
        self._finish(began, f"runoff-kernel-ridge-{k}", "runoff", title, found)

    def shifts(self, k: int) -> None:
        """Certify members that see copies of their images."""
        data = self.data
        if k not in SHIFTED[data.name]:
            raise SystemExit(f"--only shifts-k: k is one of {SHIFTED[data.name]}.")
        began = time.perf_counter()
        X, y, image = with_copies(data, self.train, self.options.shifted)
        # Equal images must be equal contributors, whatever their row: the digest says who it is.
        names = [digest.tobytes().hex() for digest in sample_digests(data.x_train)]
        dpa = self._unfitted(k, partitioner="group").fit(X, y, groups=np.array(names)[image])
        # One contributor is one image here, so groups inserted or deleted are images.
        found = certify_votes(dpa.votes(self.test), data.n_classes)
        kind = "shifted" if data.name == "gtsrb" else "mirrored"
        title = f"DPA, kernel ridge on {kind} copies, k = {k:,}"
        self._finish(began, f"dpa-shifts-{k}", "dpa", title, found)

    def neighbors(self) -> None:
        """Certify neighbour votes, for all cosines."""
        classes = range(self.data.n_classes)
        near = NeighborVoteClassifier(None, COSINES[0], classes=classes)
        near.fit(self.train, self.data.y_train)
        for cosine in COSINES:
            began = time.perf_counter()
            found = near.set_params(threshold=cosine).certify(self.test)
            title = f"neighbour votes, cosine {cosine:.2f}"
            self._finish(began, f"neighbors-{cosine:.2f}", "neighbors", title, found)

    def _unfitted(self, k: int, **more: Any) -> DPAClassifier:
        return DPAClassifier(digit_member(), k, classes=range(self.data.n_classes), **more)

    def _members(self, k: int) -> DPAClassifier:
        return self._unfitted(k).fit(self.train, self.data.y_train)

    def _finish(self, began: float, name: str, family: str, title: str, found: Any) -> None:
        """Write one method down and print its numbers."""
        data = self.data
        only = self.options.only
        method = Method(
            f"{data.name}-{name}",
            data.name,
            TITLES[data.name],
            family,
            title,
            f"orientation histograms, 8 directions, cells of {CELLS[data.name]}, blocks of 2",
            f"{CHOSEN_ON}; k and cosine: all reported",
            f"python research/experiments/signs/run.py --data PACK --features FILE --only {only}",
            replace(found, classes=None),
            data.y_test,
            run_facts(data.y_train, {"fit and certify": time.perf_counter() - began}),
        )
        write_method(method, make_evidence(method.certificates), self.options.out)
        print(f"{method.id}: clean {100 * method.clean:.2f} %, median {method.median}", flush=True)


def main() -> None:
    """Run one part and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--shifted", type=Path, default=Path("shifted.npy"))
    parts = "dpa, dpa-80, runoff-150, shifts-150, neighbors or features"
    parser.add_argument("--only", required=True, help=parts)
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    data = data_from_pack(options.data)
    study = Study(data, *mapped(data, options.features), options)
    part, _, k = options.only.partition("-")
    if part == "features":
        shifted(data, options.shifted)
    elif part == "neighbors":
        study.neighbors()
    elif part == "dpa" and not k:
        for each in PARTITIONS[data.name]:
            study.dpa(each)
    elif part in ("dpa", "runoff", "shifts") and k.isdecimal():
        getattr(study, part)(int(k))
    else:
        parser.error(f"--only is {parts}, got {options.only}")


if __name__ == "__main__":
    main()
