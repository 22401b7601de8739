"""Copies of the paper's members on the same partitions, one vote: d = 2, 3 and 4.

    python research/experiments/averaged_copies/run.py --data PACK --scores DIR

Class probabilities come from `python -m poisonproof_research reproduce --scores` (README.md). Nothing is chosen here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from poisonproof.members.committee import standardized
from poisonproof_research.reproduction import data_from_pack
from poisonproof_research.reproduction.running import read_scores

sys.path.insert(0, str(Path(__file__).parent.parent))
from joint_votes import write_votes

COPIES = ("cifar10-dpa-50", "cifar10-copy-50-1", "cifar10-copy-50-2", "cifar10-copy-50-3")
K = 50


def main() -> None:
    """Let the first d copies vote as one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scores", type=Path, required=True, help="--out of those runs")
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    data = data_from_pack(options.data)
    n = len(data.y_test)
    copies = [
        standardized(read_scores(options.scores / name, n, K).astype(np.float32)) for name in COPIES
    ]
    for d in range(2, len(COPIES) + 1):
        write_votes(
            sum(copies[1:d], copies[0]),
            data,
            f"cifar10-KIND-copies-{K}-{d}",
            f"{d} copies of the paper's network",
            options.out,
            dataset_title="CIFAR-10",
            settings="nin, 200 epochs, seeds 0 to 3",
            chosen_on="nothing to choose; k: the paper's, d: all reported",
            command="python research/experiments/averaged_copies/run.py --data PACK --scores DIR",
        )


if __name__ == "__main__":
    main()
