"""Members that are committees: models of several kinds on the same partition, one vote.

    python research/experiments/committees/maps.py --data PACK --out MAPS
    python research/experiments/committees/run.py --data PACK --maps MAPS --work W --k 120
    python -m poisonproof_research reproduce table1 --rows cifar10-dpa-50 --scores --device cuda --data PACK --out DIR
    python research/experiments/committees/run.py ... --row cifar10-dpa-50 --scores DIR

``--row``, with ``--recipes`` if it is none of the paper's, adds the networks of that row;
``--moved`` names kinds of members that see copies which are moved, not only mirrored. Nothing is
chosen here; README.md says what is reported.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from maps import MAPS, MOVED, PLAIN, copies_of, edges
from numpy.typing import NDArray

from poisonproof.members.closed_form import ScaledKernelClassifier
from poisonproof.members.committee import standardized
from poisonproof_research.reproduction import (
    RowData,
    data_from_pack,
    load_recipes,
    make_partitions,
    read_result,
)
from poisonproof_research.reproduction.running import read_scores

sys.path.insert(0, str(Path(__file__).parent.parent))
from joint_votes import write_votes

NETWORKS = {
    "cifar10-dpa-50": "the paper's network",
    "cifar10-strong-120": "ResNet-10",
    "cifar10-strong-150": "tuned ResNet-10",
}
"""Rows whose networks can take part."""
TUNED = {"cifar10-strong-150"}
"""Those whose settings were compared on Tiny ImageNet."""
FIXED = ("edges", *MAPS)
ALONE = (*((name,) for name in FIXED), ("edges", "waves"), FIXED)
WITH_NETWORK = (("network", "edges"), ("network", "edges", "waves"), ("network", *FIXED))

Scores = NDArray[np.float32]


def kernel_scores(data: RowData, seen: Sequence[Any], asked: Any, k: int) -> Scores:
    """Return scores of kernel ridge on every partition's images as `seen`, shape (n, k, C)."""
    scores = np.empty((len(asked), k, data.n_classes), dtype=np.float32)
    for part in range(k):
        own = np.flatnonzero(data.sums % k == part)
        rows = np.concatenate([copy[own] for copy in seen])
        member = ScaledKernelClassifier(n_centers=len(rows))
        member.fit(rows, np.tile(data.y_train[own], len(seen)))
        if len(member.classes_) != data.n_classes:
            raise SystemExit(f"partition {part} lacks a class")
        scores[:, part] = member.decision_function(asked)
    return scores


class Study:
    """Scores of all models on the same partitions, and where results go."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.data = options, data_from_pack(options.data)
        self.words = {name: self._spelled(name, " ") for name in FIXED}
        self.k: int = options.k
        self.scores: dict[str, Scores] = {}
        if options.row:
            self._read_networks()
        for name in FIXED:
            self.scores[name] = self._kept(name)

    def _read_networks(self) -> None:
        options = self.options
        recipe = load_recipes(options.recipes)[options.row]
        home = options.scores / recipe.id
        n, self.k = read_result(home).votes.shape
        _, parts = make_partitions(recipe, self.data)
        if not np.array_equal(parts.assignment, self.data.sums % self.k):
            raise SystemExit(f"{recipe.id} has other partitions.")
        self.scores["network"] = read_scores(home, n, self.k).astype(np.float32)
        self.words["network"] = NETWORKS[recipe.id]

    def _kept(self, name: str) -> Scores:
        """Return scores from the work folder, or make them."""
        path = self.options.work / f"{self._spelled(name, '-')}-{self.k}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, kernel_scores(self.data, *self._seen(name), self.k))
        found: Scores = np.load(path)
        return found

    def _spelled(self, name: str, space: str) -> str:
        return f"moved{space}{name}" if name in self.options.moved else name

    def _seen(self, name: str) -> tuple[Sequence[Any], Any]:
        """Return what members of one kind see of training images, and of test images."""
        copies = MOVED[name] if name in self.options.moved else PLAIN
        if name == "edges":
            train, test = (np.moveaxis(x, 1, -1) for x in (self.data.x_train, self.data.x_test))
            made = copies_of(train)
            return [edges(made[number]) for number in copies], edges(test)
        maps = self.options.maps
        kept = [np.load(maps / f"{name}-{number}.npy", mmap_mode="r") for number in copies]
        return kept, np.load(maps / f"{name}-test.npy")

    def certify(self, committee: tuple[str, ...]) -> None:
        """Let one committee vote on every partition, and write it down."""
        scores = sum(standardized(self.scores[name]) for name in committee)
        command = (
            "python research/experiments/committees/run.py --data PACK --maps MAPS --work WORK"
            + "".join(f" --moved {name}" for name in self.options.moved)
            + (f" --row {self.options.row} --scores DIR" if self.options.row else f" --k {self.k}")
            + (f" --recipes {self.options.recipes}" if self.options.recipes else "")
        )
        moved, tuned = bool(self.options.moved), self.options.row in TUNED
        copies = "some moved, all mirrored" if moved else "mirrored"
        chosen = " and ".join(["copies"] * moved + ["networks"] * tuned)
        chosen_on = f"Tiny ImageNet ({chosen})" if chosen else "nothing"
        write_votes(
            scores,
            self.data,
            f"{self.options.row or self.data.name}-KIND-"
            f"{'-'.join(self._spelled(name, '-') for name in committee)}-{self.k}",
            ", ".join(self.words[name] for name in committee),
            self.options.out,
            dataset_title="CIFAR-10",
            settings=f"default members on fixed maps, {copies}, too",
            chosen_on=f"{chosen_on}; research/experiments/committees/README.md; k: all reported",
            command=command,
        )


def main() -> None:
    """Certify every committee whose models are there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--maps", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="scores are kept here")
    parser.add_argument("--k", type=int, default=50, help="partitions; with --row the row's")
    parser.add_argument(
        "--moved", action="append", default=[], choices=FIXED, help="show these moved copies, too"
    )
    parser.add_argument("--row", choices=NETWORKS, help="a row with networks")
    parser.add_argument("--recipes", type=Path, help="its recipes; by default the paper's")
    parser.add_argument("--scores", type=Path, help="--out of the run that made it")
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    study = Study(options)
    for committee in WITH_NETWORK if "network" in study.scores else ALONE:
        if not options.moved or set(options.moved) & set(committee):
            study.certify(committee)


if __name__ == "__main__":
    main()
