"""How the cost of closed-form ensembles grows with k and with the number of training rows.

    python benchmarks/closed_form_scaling.py --data DIR --out FILE

MNIST features of the recipe, PixelSum partitions, all 10,000 test images. Times are the best of
`--repeats` runs; processor seconds stand beside them because they suffer less from other work on
the machine. Promise: from k = 300 to 12,000, kernel ridge becomes at most 1.5 times dearer.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from closed_form_common import load, machine, ridge, timed

from poisonproof.estimators.recipes import digit_features, digit_member
from poisonproof.partition import PixelSum, partition_data
from poisonproof.progress import Silent

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


def main() -> None:
    """Measure both curves and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    images = load("mnist", options.data)
    frozen = digit_features(options.n_jobs)
    train, test = frozen.transform(images.x_train), frozen.transform(images.x_test)

    def best(learner: Any, rows: int, k: int) -> dict[str, float]:
        runs = [
            cost(learner, images, train[:rows], test, k, options.n_jobs)
            for _ in range(options.repeats)
        ]
        return {name: min(run[name] for run in runs) for name in runs[0]}

    report: dict[str, Any] = {
        "command": f"python benchmarks/closed_form_scaling.py --n-jobs {options.n_jobs} "
        f"--repeats {options.repeats}",
        "machine": machine(options.n_jobs),
    }
    for name, learner in (("kernel_ridge", digit_member()), ("ridge", ridge())):
        by_k = {k: best(learner, 60000, k) for k in K}
        report[name] = {
            "by_k": by_k,
            "growth": round(by_k[K[-1]]["total"] / by_k[K[0]]["total"], 3),
            "growth_cpu": round(by_k[K[-1]]["total_cpu"] / by_k[K[0]]["total_cpu"], 3),
            "by_rows_at_k_1200": {rows: best(learner, rows, 1200) for rows in ROWS},
        }
        print(name, json.dumps(report[name], indent=1))
    report["machine"]["load_average_after"] = machine(options.n_jobs)["load_average"]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
