"""DPA with kernel ridge members on MNIST or Fashion-MNIST, end to end, on the CPU.

    python benchmarks/closed_form_mnist.py --data DIR --out FILE

DIR holds the published files (idx, gz or npz). All 60,000 training rows, all 10,000 test images,
PixelSum partitions. For every k: clean accuracy, the median radius, certified accuracy at some
attack sizes, where the time goes, and the share of the machine's own matrix-product speed. The
hyper-parameters were fixed on other data (see poisonproof_research.methods.digits).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from closed_form_common import load, machine, matrix_product_peak, peak_gib, timed

from poisonproof.certificates import certify_votes
from poisonproof.evaluation import base_accuracy, certified_accuracy, clean_accuracy, median_radius
from poisonproof.partition import PixelSum, partition_data
from poisonproof.progress import Silent
from poisonproof_research.methods.digits import digit_features, digit_member

PAPER = {"mnist": {1200: {"clean": 0.9585, "median": 447}, 3000: {"clean": 0.9336, "median": 508}}}


def run(images: Any, mapped: tuple[Any, Any], k: int, n_jobs: int, peak: float) -> dict[str, Any]:
    """Train, ask and certify k members on mapped images."""
    train, test = mapped
    times: dict[str, float] = {}
    with timed(times, "partition"):
        data = partition_data(images.x_train, images.y_train, PixelSum(n_partitions=k))
    data = replace(data, X=train)
    with timed(times, "fit"):
        members = digit_member().fit_members(
            data, range(k), 10, 0, n_jobs=n_jobs, progress=Silent()
        )
    with timed(times, "votes"):
        votes = members.votes(test, n_jobs=n_jobs, progress=Silent())
    with timed(times, "certificates"):
        certificates = certify_votes(votes, 10)
    work = 2 * len(train) * len(test) * train.shape[1] / 1e9
    median = median_radius(certificates, images.y_test)
    sizes = np.arange(0, k // 2 + 1, max(k // 200, 1))
    return {
        "k": k,
        "partition_sizes": [int(data.sizes.min()), int(data.sizes.max())],
        "clean_accuracy": round(float(clean_accuracy(certificates, images.y_test)), 4),
        "member_accuracy": round(float(base_accuracy(certificates, images.y_test)), 4),
        "median_radius": median,
        "curve": {
            "sizes": sizes.tolist(),
            "certified_accuracy": np.round(
                certified_accuracy(certificates, images.y_test, sizes), 4
            ).tolist(),
        },
        "seconds": times,
        "fit_votes_certificates": round(
            sum(times[part] for part in ("partition", "fit", "votes", "certificates")), 2
        ),
        "share_of_matrix_product_peak": round(work / times["votes"] / peak, 3),
    }


def main() -> None:
    """Run all k and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", default="mnist", choices=["mnist", "fashion-mnist"])
    parser.add_argument("--k", type=int, nargs="+", default=[1200, 3000, 6000, 10000])
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    images = load(options.dataset, options.data)
    report: dict[str, Any] = {
        "command": f"python benchmarks/closed_form_mnist.py --dataset {options.dataset} "
        f"--k {' '.join(map(str, options.k))} --n-jobs {options.n_jobs}",
        "dataset": options.dataset,
        "machine": machine(options.n_jobs),
        "features": {},
        "paper": PAPER.get(options.dataset, {}),
    }
    peak = matrix_product_peak(options.n_jobs)
    report["machine"]["matrix_product_gflops"] = round(peak, 1)
    frozen = digit_features(options.n_jobs)
    with timed(report["features"], "train"):
        train = frozen.transform(images.x_train)
    with timed(report["features"], "test"):
        test = frozen.transform(images.x_test)
    report["features"]["columns"] = train.shape[1]
    report["runs"] = []
    for k in options.k:
        one = run(images, (train, test), k, options.n_jobs, peak)
        report["runs"].append(one)
        print({name: value for name, value in one.items() if name != "curve"})
    report["peak_memory_gib"] = peak_gib()
    report["machine"]["load_average_after"] = machine(options.n_jobs)["load_average"]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
