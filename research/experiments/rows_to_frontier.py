"""Certify rows beyond the paper's tables, and write them down as methods of the frontier.

    python -m poisonproof_research reproduce strong --recipes RECIPES --rows cifar10-strong-120 --scores --out DIR ...
    python research/experiments/rows_to_frontier.py --home research/experiments/strong_members --from DIR

Members that several runs finished are joined: name every folder with ``--from``. Votes go to
``HOME/results``; certificates of the plurality, and of the run-off where class probabilities are
there, to ``research/results``. Nothing is chosen here.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from poisonproof.certificates import Certificates, certify_scores
from poisonproof.evaluation.comparison import Method
from poisonproof.exceptions import InvalidInputError
from poisonproof_research.frontier import make_evidence, write_method
from poisonproof_research.methods.shared_buckets import (
    Spread,
    certify_shared_runoff,
    make_spread,
)
from poisonproof_research.reproduction import (
    Recipe,
    certify_result,
    evaluate,
    gather_results,
    load_recipes,
    read_result,
    write_result,
)
from poisonproof_research.reproduction.running import read_scores

NETWORKS = {"nin": "networks of the paper", "resnet10": "ResNet-10"}
TUNED = {"cifar10-strong-150", "gtsrb-tuned-150"}
"""Rows whose settings were compared on another dataset."""


def title(recipe: Recipe) -> str:
    """Return what members there are."""
    k, d = recipe.n_partitions // recipe.degree, recipe.degree
    members = ("tuned " if recipe.id in TUNED else "") + NETWORKS[recipe.learner["network"]]
    return f"{members}, k = {k:,}" + (f", d = {d}" if d > 1 else "")


def method(recipe: Recipe, home: Path, certificates: Certificates, kind: str) -> Method:
    """Return one curve of the frontier."""
    result = read_result(home / "results" / recipe.id)
    family = "runoff" if kind == "runoff" else "dpa"
    words = {"plurality": "DPA", "runoff": "run-off"}[kind]
    if recipe.degree > 1:
        words = {"plurality": "finite aggregation", "runoff": "run-off on shared buckets"}[kind]
        family = family if kind == "runoff" else "finite_aggregation"
    spec = result.origin["specification"]
    made = [run.seconds for run in result.runs]
    return Method(
        id=recipe.id + ("-runoff" if kind == "runoff" else ""),
        dataset=recipe.data.name,
        dataset_title=recipe.data.title,
        family=family,
        title=f"{words}, {title(recipe)}",
        settings=f"{spec['network']}, {spec['epochs']} epochs, batches of {spec['batch_size']}",
        chosen_on=f"{home}/README.md",
        command=f"python research/experiments/rows_to_frontier.py --home {home} --from DIR",
        certificates=certificates,
        y_true=result.labels,
        facts={
            "n_train": recipe.data.n_train,
            "degree": recipe.degree,
            "member_percent": round(evaluate(result).base, 2),
            "seconds": {"train": round(sum(a for a, _ in made), 1)},
            "device": result.origin["machine"]["processor"],
        },
    )


def main() -> None:
    """Join, certify and write all rows that are finished."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--home", type=Path, required=True, help="folder with recipes/")
    parser.add_argument("--from", dest="folders", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, default=Path("research/results"))
    options = parser.parse_args()
    for recipe in load_recipes(options.home / "recipes").values():
        result = gather_results(recipe.id, options.folders)
        if result is None or not result.is_complete:
            print(f"{recipe.id}: not finished")
            continue
        write_result(options.home / "results" / recipe.id, result)
        spread: Spread | None = None
        if recipe.degree > 1:
            spread = make_spread(recipe.n_partitions // recipe.degree, recipe.degree)
        found = {"plurality": certify_result(result)}
        homes = [folder / recipe.id for folder in options.folders]
        if any(any(home.glob("scores-*.npz")) for home in homes):
            scores = read_scores(homes[0], *result.votes.shape, *homes[1:])
            began = time.perf_counter()
            scores = scores.astype(np.float32)
            found["runoff"] = (
                certify_scores(scores, threat=result.threat)
                if spread is None
                else certify_shared_runoff(scores, spread, result.threat)
            )
            print(f"{recipe.id}: run-off in {time.perf_counter() - began:.1f} s")
        for kind, certificates in found.items():
            curve = method(recipe, options.home, certificates, kind)
            write_method(curve, make_evidence(certificates), options.out)
            base = curve.facts["member_percent"]
            print(
                f"{curve.id}: members {base:.2f} %, clean {100 * curve.clean:.2f} %, "
                f"median {curve.median}"
            )


if __name__ == "__main__":
    try:
        main()
    except InvalidInputError as error:
        raise SystemExit(f"Error: {error}") from error
