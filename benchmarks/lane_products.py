"""Products of stacked matrices that depend on the lane, and the cost of stopping it.

    python benchmarks/lane_products.py --out benchmarks/results/lane_products.json

Sixty-four equal lanes of random shapes are multiplied by torch with MKL as it is and in its mode
for reproducible results, in alternating processes; the ratio is that of the times of all products.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODES: dict[str, dict[str, str]] = {"as it is": {}, "reproducible": {"MKL_CBWR": "AUTO,STRICT"}}


def measured(shapes: int) -> dict[str, Any]:
    """Multiply in this process and return what was found."""
    import torch

    torch.set_num_threads(1)
    draw, stream = random.Random(0), torch.Generator().manual_seed(0)
    unequal, seconds = 0, 0.0
    for _ in range(shapes):
        m, k, n = (draw.randint(1, 150) for _ in range(3))
        left = torch.randn(m, k, generator=stream).expand(64, m, k).contiguous()
        right = torch.randn(n, k, generator=stream).expand(64, n, k).contiguous().transpose(1, 2)
        began = time.perf_counter()
        found = torch.bmm(left, right)
        seconds += time.perf_counter() - began
        unequal += not torch.equal(found, found[:1].expand_as(found))
    return {"unequal": unequal, "seconds": seconds, "torch": torch.__version__}


def main() -> None:
    """Compare the two modes, round by round."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shapes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measured(options.shapes)))
        return
    plain = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in MODES}
    for _ in range(options.rounds):
        for name, mode in MODES.items():
            told = [sys.executable, __file__, "--here", "--shapes", str(options.shapes)]
            done = subprocess.run(told, env=plain | mode, check=True, capture_output=True)
            found[name].append(json.loads(done.stdout))
    pairs = zip(found["reproducible"], found["as it is"], strict=True)
    ratios = [ours["seconds"] / theirs["seconds"] for ours, theirs in pairs]
    report = {
        "command": "python benchmarks/lane_products.py",
        "shapes": options.shapes,
        "unequal": {name: runs[0]["unequal"] for name, runs in found.items()},
        "time_ratio": round(statistics.median(ratios), 3),
        "time_ratios": [round(ratio, 3) for ratio in ratios],
        "torch": found["reproducible"][0]["torch"],
        "machine": f"{platform.machine()}, {_processor()}",
        "load_average": os.getloadavg(),
    }
    print(json.dumps(report, indent=2))
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))


if __name__ == "__main__":
    main()
