"""Effect of the one seed of a one-seed row on its accuracy, from the runs of `train.py`.

    python research/experiments/one_seed/summarise.py DIR --out research/experiments/one_seed/results.json

The accuracy of member i under seed s is taken as mean + partition i + seed s + rest (two-way
analysis of variance without replication). A row of k members that share one seed then has the
variance ``seed + rest / k``; with a seed of its own for every member it has ``(seed + rest) / k``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from poisonproof.certificates import certify_votes
from poisonproof.evaluation import clean_accuracy
from poisonproof_research.reproduction import RowResult, evaluate, load_recipes, read_result


def variance_parts(accuracies: NDArray[np.float64]) -> tuple[float, float]:
    """Split the variance of accuracies, shape (seeds, members), into seed and rest."""
    n_seeds, n_members = accuracies.shape
    of_seeds = accuracies.mean(axis=1, keepdims=True)
    of_members = accuracies.mean(axis=0, keepdims=True)
    rest = accuracies - of_seeds - of_members + accuracies.mean()
    rest_square = float((rest**2).sum() / ((n_seeds - 1) * (n_members - 1)))
    seed_square = n_members * float(of_seeds.var(ddof=1))
    return max(0.0, (seed_square - rest_square) / n_members), rest_square


def seed_at_most(accuracies: NDArray[np.float64], level: float = 0.95) -> float:
    """Return the variance between seeds that these accuracies would rule out with `level`."""
    n_seeds, n_members = accuracies.shape
    _, rest = variance_parts(accuracies)
    seed_square = n_members * float(accuracies.mean(axis=1).var(ddof=1))
    smallest = stats.f.ppf(1 - level, n_seeds - 1, (n_seeds - 1) * (n_members - 1))
    return max(0.0, (seed_square / float(smallest) - rest) / n_members)


def accuracies_of(result: RowResult, members: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the accuracy of each of some members, in percent."""
    votes = result.votes[:, np.searchsorted(result.members, members)]
    return 100 * (votes == result.labels[:, None]).mean(axis=0)


def plurality_of(result: RowResult, members: NDArray[np.int64]) -> float:
    """Return the accuracy of the vote of some members alone, in percent."""
    votes = result.signed_votes[:, np.searchsorted(result.members, members)]
    certificates = certify_votes(votes, result.n_classes)
    return 100 * clean_accuracy(certificates, result.labels)


def same_bits(first: RowResult, second: RowResult) -> bool:
    """Return whether the members that both have are bit for bit the same."""
    mine = dict(zip(first.members.tolist(), first.digests.tolist(), strict=True))
    theirs = dict(zip(second.members.tolist(), second.digests.tolist(), strict=True))
    return all(mine[i] == theirs[i] for i in mine.keys() & theirs.keys())


def summarise(row: str, runs: Mapping[int, RowResult], committed: Path) -> dict[str, Any]:
    """Compare the seeds of one row with each other, with the paper and with seeds per member."""
    own = row.removesuffix("-oneseed")
    whole, own_seeds = read_result(committed / row), read_result(committed / own)
    members = next(iter(runs.values())).members
    for number, result in runs.items():
        if {
            **result.origin,
            "seed": 0,
        } != whole.origin or result.members.tolist() != members.tolist():
            raise SystemExit(f"{row}, seed {number}: more than the seed differs from the row.")
    by_seed = {0: whole, **{s: r for s, r in sorted(runs.items()) if s != 0}}
    table = np.stack([accuracies_of(result, members) for result in by_seed.values()])
    base, own_base = table.mean(axis=1), float(accuracies_of(own_seeds, members).mean())
    return {
        "every": int(members[1] - members[0]),
        "members": len(members),
        "seeds": list(by_seed),
        "base_percent": base.round(3).tolist(),
        "clean_percent": [round(plurality_of(r, members), 3) for r in by_seed.values()],
        "median": medians(by_seed.values()) if len(members) == whole.n_partitions else None,
        "own_seeds_base_percent": round(own_base, 3),
        "own_seeds_clean_percent": round(plurality_of(own_seeds, members), 3),
        "lost_to_own_seeds": (own_base - base).round(3).tolist(),
        "seed_0_again_same_bits": same_bits(runs[0], whole) if 0 in runs else None,
        "standard_deviation": deviations(table, whole.n_partitions),
        "row": whole_row(row, own, whole, own_seeds),
        "accuracies_percent": table.round(2).tolist(),
    }


def medians(results: Iterable[RowResult]) -> list[int | None]:
    """Return the largest attack size that half of the test set withstands, of whole rows."""
    return [evaluate(result).median for result in results]


def deviations(table: NDArray[np.float64], k: int) -> dict[str, float]:
    """Return the standard deviations that the accuracies, shape (seeds, members), come to."""
    seed, rest = variance_parts(table)
    variances = {
        "between_seeds": seed,
        "between_seeds_at_most": seed_at_most(table),
        "rest_of_one_member": rest,
        "row_with_one_seed": seed + rest / k,
        "row_with_own_seeds": (seed + rest) / k,
    }
    return {name: round(float(np.sqrt(value)), 3) for name, value in variances.items()}


def whole_row(row: str, own: str, whole: RowResult, own_seeds: RowResult) -> dict[str, float]:
    """Return the base accuracies of the whole rows, and what one seed for all loses there."""
    recipes = load_recipes()
    ours, ours_own = evaluate(whole).base, evaluate(own_seeds).base
    paper, paper_own = recipes[row].paper.base, recipes[own].paper.base
    return {
        "base_percent": round(ours, 3),
        "paper_base_percent": paper,
        "lost_to_own_seeds": round(ours_own - ours, 3),
        "paper_lost_to_own_seeds": round(paper_own - paper, 3),
    }


def main() -> None:
    """Summarise every row that was trained."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, help="--out of train.py")
    parser.add_argument("--results", type=Path, default=Path("research/results"))
    parser.add_argument("--out", type=Path, required=True, help="a json file")
    given = parser.parse_args()
    found: dict[str, dict[int, RowResult]] = {}
    for home in sorted(given.runs.glob("seed-*/*/result.json")):
        number = int(home.parent.parent.name.removeprefix("seed-"))
        found.setdefault(home.parent.name, {})[number] = read_result(home.parent)
    summary = {row: summarise(row, runs, given.results) for row, runs in sorted(found.items())}
    given.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    for row, numbers in summary.items():
        shown = {name: value for name, value in numbers.items() if name != "accuracies_percent"}
        print(row, json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
