"""What the members' first weights do: some members of an SS-DPA row once more, begun as published.

Run: python experiments/first_weights/run.py mnist-ssdpa-3000 --data PACK --members 0:4 --out FILE
The row's own votes (uniform first weights) are compared with those of members that begin with
normal ones of variance 2 / fan-out. A CPU is enough for some members: 15 s each with 20 rows.
Members in FILE are kept, so that it can be filled bit by bit.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from poisonproof.pretraining import FrozenNetwork, TailLearner, load_features
from poisonproof.reproduction import (
    RowData,
    data_from_pack,
    load_recipes,
    make_partitions,
    read_result,
)


def accuracies(row: str, data: RowData, features: Path, which: range, n_test: int) -> list[float]:
    """Train members with normal first weights and return their accuracy in percent."""
    recipe = load_recipes(None)[row]
    _, parts = make_partitions(recipe, data)
    known = load_features(features, device="cpu")
    rows = recipe.partition_sizes[1]
    # Narrow launches: on a CPU rows that only fill up cost as much as real ones.
    spec = replace(known.spec, map_rows=rows * len(which))
    learner = TailLearner(
        FrozenNetwork(spec, known.tensors, known.law, known.history),
        stack_width=len(which),
        lane_rows=rows,
        vote_rows=100,
        first_weights="normal",
    )
    members = learner.fit_members(parts, list(which), data.n_classes, recipe.seed)
    right = members.votes(data.x_test[:n_test]) == data.y_test[:n_test, None]
    return [round(100 * float(value), 2) for value in right.mean(axis=0)]


def main() -> None:
    """Add some members to the file and print the means so far."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row")
    parser.add_argument("--data", type=Path, required=True, help="a packed dataset")
    parser.add_argument("--features", type=Path, default=Path("experiments/features/rotnet-mnist"))
    parser.add_argument("--results", type=Path, default=Path("experiments/results"))
    parser.add_argument("--members", default="0:4")
    parser.add_argument("--n-test", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    which = range(*(int(end) for end in given.members.split(":")))
    data = data_from_pack(given.data)
    result = read_result(given.results / given.row)
    own = result.votes[: given.n_test] == result.labels[: given.n_test, None]
    normal = accuracies(given.row, data, given.features, which, given.n_test)
    found = {"row": given.row, "n_test": given.n_test, "members": {}}
    if given.out.is_file():
        found = json.loads(given.out.read_text())
    for index, value in zip(which, normal, strict=True):
        uniform = round(100 * float(own[:, index].mean()), 2)
        found["members"][str(index)] = {"uniform": uniform, "normal": value}
    both = {
        name: round(float(np.mean([m[name] for m in found["members"].values()])), 2)
        for name in ("uniform", "normal")
    }
    found["mean_percent"] = both
    print(len(found["members"]), both)
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
