"""Copies of the paper's members on the same partitions, one vote: d = 2, 3 and 4.

    python experiments/averaged_copies/run.py --data PACK --scores DIR

Class probabilities come from `poisonproof reproduce --scores` (README.md). Nothing is chosen here.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from poisonproof.certificates import certify_scores, certify_votes
from poisonproof.frontier import Method, make_evidence, run_facts, write_method
from poisonproof.learners.committee import equal_voices
from poisonproof.reproduction import data_from_pack
from poisonproof.reproduction.scores import read_scores

COPIES = ("cifar10-dpa-50", "cifar10-copy-50-1", "cifar10-copy-50-2", "cifar10-copy-50-3")
K = 50


def main() -> None:
    """Let the first d copies vote as one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scores", type=Path, required=True, help="--out of those runs")
    parser.add_argument("--out", type=Path, default=Path("experiments/frontier"))
    options = parser.parse_args()
    data = data_from_pack(options.data)
    n = len(data.y_test)
    voices = [
        equal_voices(read_scores(options.scores / name, n, K).astype(np.float32)) for name in COPIES
    ]
    for d in range(2, len(COPIES) + 1):
        began = time.perf_counter()
        scores = sum(voices[1:d], voices[0])
        votes = scores.argmax(axis=2)
        found = {
            "dpa": ("DPA", certify_votes(votes, data.n_classes)),
            "runoff": ("run-off", certify_scores(scores, threat="insert_delete")),
        }
        facts = run_facts(data.y_train, {"certify both": time.perf_counter() - began})
        facts["member_percent"] = round(100 * float((votes == data.y_test[:, None]).mean()), 2)
        for kind, (rule, certificates) in found.items():
            method = Method(
                f"cifar10-{kind}-copies-{K}-{d}",
                data.name,
                "CIFAR-10",
                kind,
                f"{rule}, {d} copies of the paper's network, k = {K}",
                "nin, 200 epochs, seeds 0 to 3",
                "nothing to choose; k: the paper's, d: all reported",
                "python experiments/averaged_copies/run.py --data PACK --scores DIR",
                replace(certificates, classes=None),
                data.y_test,
                facts,
            )
            write_method(method, make_evidence(method.certificates), options.out)
            print(
                f"{method.id}: members {facts['member_percent']:.2f} %, clean "
                f"{100 * method.clean:.2f} %, median {method.median}",
                flush=True,
            )


if __name__ == "__main__":
    main()
