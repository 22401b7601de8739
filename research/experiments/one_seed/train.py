"""Train some members of a one-seed row again, under other seeds.

    python research/experiments/one_seed/train.py gtsrb-dpa-100-oneseed --every 4 --seeds 1 2 3 4 5 6 7 \
        --data PACK --out DIR

The seed is the only thing that changes: same partitions, same recipe, same device. Seed 0 is the
committed row itself; with ``--seeds 0`` its members are made again and can be compared bit by bit.
What is finished stays in DIR/seed-N, so a stopped run goes on when repeated; `summarise.py` reads
it.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from poisonproof_research.reproduction import (
    Options,
    data_from_cache,
    data_from_pack,
    load_recipes,
    run_row,
)


def main() -> None:
    """Train the members of one row under every seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("row", help="a row of table 3, such as gtsrb-dpa-100-oneseed")
    parser.add_argument("--every", type=int, required=True, help="train the members 0, N, 2N, ...")
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="the seeds")
    parser.add_argument("--data", type=Path, help="a packed dataset; by default the cache's")
    parser.add_argument("--features", type=Path, help="learned features, for rows of SS-DPA")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--recipes", type=Path, help="a folder of recipe files of your own")
    parser.add_argument("--limit-seconds", type=float, help="begin no seed that would end later")
    parser.add_argument("--out", type=Path, required=True, help="one folder per seed goes here")
    given = parser.parse_args()
    recipe = load_recipes(given.recipes)[given.row]
    name = recipe.data.name
    data = data_from_pack(given.data) if given.data else data_from_cache(name)
    began, longest = time.monotonic(), 0.0
    for seed in given.seeds:
        start = time.monotonic()
        if given.limit_seconds and start + longest > began + given.limit_seconds:
            print(f"No time is left for the seeds from {seed} on.", flush=True)
            return
        options = Options(
            device=given.device,
            members=range(0, recipe.n_partitions, given.every),
            features=given.features,
            command=f"python research/experiments/one_seed/train.py {given.row} --every {given.every} "
            f"--seeds {seed}",
        )
        result = run_row(replace(recipe, seed=seed), data, given.out / f"seed-{seed}", options)
        assert result is not None  # without a deadline every member is trained
        base = 100 * (result.votes == result.labels[:, None]).mean()
        longest = max(longest, time.monotonic() - start)
        print(
            f"{given.row}, seed {seed}: {len(result.members)} members, mean accuracy {base:.2f} %, "
            f"{time.monotonic() - start:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
