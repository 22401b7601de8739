"""Run-off election on the class probabilities of a reproduced row.

    python -m poisonproof_research reproduce table1 --rows cifar10-dpa-50 --device cuda --scores --out DIR
    python research/experiments/runoff/run.py --row cifar10-dpa-50 --scores DIR

Probabilities are too large to commit; labels, radii and counts of the first round are. Nothing is
chosen: the run-off has no settings.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path

import numpy as np

from poisonproof.certificates import certify_scores, certify_votes
from poisonproof.evaluation import median_radius
from poisonproof.evaluation.comparison import Method
from poisonproof_research.frontier import make_evidence, write_method
from poisonproof_research.reproduction import read_result
from poisonproof_research.reproduction.running import read_scores

TITLES = {"cifar10": "CIFAR-10", "gtsrb": "GTSRB", "mnist": "MNIST"}


def main() -> None:
    """Certify one row by run-off, compare it with plurality, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--row", required=True, help="a row of `python -m poisonproof_research reproduce`"
    )
    parser.add_argument("--scores", type=Path, required=True, help="--out of the run that made it")
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    result = read_result(options.scores / options.row)
    n, k = result.votes.shape
    scores = read_scores(options.scores / options.row, n, k).astype(np.float32)
    start = time.perf_counter()
    certificates = certify_scores(scores, threat="insert_delete")
    seconds = round(time.perf_counter() - start, 2)
    dataset = options.row.split("-")[0]
    method = Method(
        id=f"{options.row}-runoff",
        dataset=dataset,
        dataset_title=TITLES[dataset],
        family="runoff",
        title=f"run-off, networks of the paper, k = {k:,}",
        settings=f"probabilities of the members of {options.row}, in float16",
        chosen_on="nothing to choose; k: the paper's",
        command=f"python research/experiments/runoff/run.py --row {options.row} --scores DIR",
        certificates=certificates,
        y_true=result.labels,
        facts={"seconds": {"certify": seconds}, "software": {"python": platform.python_version()}},
    )
    write_method(method, make_evidence(certificates), options.out)
    plurality = certify_votes(result.votes.astype(np.int16), scores.shape[2])
    print(
        f"{options.row}: clean {100 * method.clean:.2f} %, median {method.median}; plurality of "
        f"the same votes: {median_radius(plurality, result.labels)}"
    )


if __name__ == "__main__":
    main()
