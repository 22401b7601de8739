"""Growth of the cost of closed-form ensembles with k and with the number of training rows.

    python benchmarks/closed_form_scaling.py --data DIR --out FILE

MNIST features of the recipe, PixelSum partitions, all 10,000 test images. All cases run in turn,
`--repeats` times; medians count, and growth is the median of the rounds' ratios. Promise: from
k = 300 to 12,000, the recipe's kernel ridge becomes at most 1.5 times dearer. Linear ridge asks
one weight vector per member and class it has seen instead of 60,000 rows: it is cheaper than that
at every k, and the more so the smaller k is, which makes its growth a larger number.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from closed_form_common import load, machine, ridge, timed

from poisonproof.partition import PixelSum, partition_data
from poisonproof.progress import Silent
from poisonproof_research.methods.digits import digit_features, digit_member

K = (300, 1200, 3000, 12000)
ROWS = (15000, 30000, 60000)


def cost(learner: Any, images: Any, train: Any, test: Any, k: int, n_jobs: int) -> dict[str, float]:
    """Return the seconds of fit and votes."""
    rows = len(train)
    data = partition_data(images.x_train[:rows], images.y_train[:rows], PixelSum(n_partitions=k))
    data = replace(data, X=train)
    times: dict[str, float] = {}
    with timed(times, "fit"):
        members = learner.fit_members(data, range(k), 10, 0, n_jobs=n_jobs, progress=Silent())
    with timed(times, "votes"):
        members.votes(test, n_jobs=n_jobs, progress=Silent())
    times["total"] = round(times["fit"] + times["votes"], 3)
    times["total_cpu"] = round(times["fit_cpu"] + times["votes_cpu"], 3)
    return times


def medians(rounds: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    """Return the median seconds of each case."""
    return [
        {name: round(float(np.median([run[name] for run in runs])), 3) for name in runs[0]}
        for runs in zip(*rounds, strict=True)
    ]


def main() -> None:
    """Measure both curves and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    images = load("mnist", options.data)
    frozen = digit_features(options.n_jobs)
    train, test = frozen.transform(images.x_train), frozen.transform(images.x_test)

    def rounds(learner: Any, cases: list[tuple[int, int]]) -> list[list[dict[str, float]]]:
        """Time all cases in turn, again and again: the speed of a shared machine drifts."""
        return [
            [cost(learner, images, train[:rows], test, k, options.n_jobs) for rows, k in cases]
            for _ in range(options.repeats)
        ]

    report: dict[str, Any] = {
        "command": f"python benchmarks/closed_form_scaling.py --n-jobs {options.n_jobs} "
        f"--repeats {options.repeats}",
        "machine": machine(options.n_jobs),
    }
    for name, learner in (("kernel_ridge", digit_member()), ("ridge", ridge())):
        by_k = rounds(learner, [(60000, k) for k in K])
        by_rows = rounds(learner, [(rows, 1200) for rows in ROWS])
        growth = [times[-1]["total"] / times[0]["total"] for times in by_k]
        report[name] = {
            "by_k": dict(zip(K, medians(by_k), strict=True)),
            "growth": round(float(np.median(growth)), 3),
            "growth_in_each_round": [round(ratio, 3) for ratio in growth],
            "by_rows_at_k_1200": dict(zip(ROWS, medians(by_rows), strict=True)),
        }
        print(name, json.dumps(report[name], indent=1))
    report["machine"]["load_average_after"] = machine(options.n_jobs)["load_average"]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
