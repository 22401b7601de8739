"""Soundness, tightness and speed of every certificate.

    PYTHONPATH=research python benchmarks/certificates.py --out benchmarks/results/certificates.json

First, random small cases of every certificate against exhaustive attack: none may be unsound, and
the share that equals the truth is reported. Then real shapes, against formulas written down row by
row as published: radii must be equal (finite aggregation) or at least as large (run-off), and the
ratio of times is reported. Last, collective certificates of committed votes. The exit code is 1
where a case is unsound or a radius is too small.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the oracles live with the tests
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "research" / "tests"))

from random_cases import CASES as RESEARCH_CASES
from random_cases import EXACT as RESEARCH_EXACT

from poisonproof.certificates import certify_scores
from poisonproof_research.methods.collective import collective_certificate
from poisonproof_research.methods.shared_buckets import (
    certify_finite_aggregation,
    certify_shared_runoff,
    make_spread,
)
from poisonproof_research.reproduction import read_result
from tests.certificates.random_cases import CASES as PRODUCT_CASES
from tests.certificates.random_cases import EXACT as PRODUCT_EXACT

CASES = PRODUCT_CASES | RESEARCH_CASES
EXACT = PRODUCT_EXACT | RESEARCH_EXACT
N_CLASSES = 10
RESEARCH = Path(__file__).resolve().parents[1] / "research"
RESULTS = RESEARCH / "results"
BUCKETS = RESEARCH / "experiments" / "finite_aggregation" / "results"
COLLECTIVE = (
    ("cifar10-dpa-50", 50, 4, "exact"),
    ("cifar10-dpa-50", 200, 4, "exact"),
    ("cifar10-dpa-50", 1000, 8, "exact"),
    ("cifar10-dpa-50", 1000, 8, "bound"),
    ("cifar10-dpa-50", 10_000, 8, "bound"),
    ("gtsrb-dpa-50", 12_630, 19, "bound"),
    ("mnist-dpa-1200", 10_000, 100, "bound"),
    ("mnist-dpa-1200", 10_000, 446, "bound"),
    ("cifar10-fa-50-4", 200, 4, "exact"),
    ("cifar10-fa-50-4", 10_000, 8, "bound"),
)
"""Row of a table, test rows, attack size, method; the larger attacks are the rows' medians."""
SHARED = {"cifar10-fa-50-4": make_spread(50, 4)}
"""Rows whose members share buckets."""


def check_cases(name: str, n_cases: int) -> dict[str, Any]:
    """Compare one certificate with exhaustive attack."""
    rng = np.random.default_rng(1)
    start = time.perf_counter()
    outcomes = [CASES[name](rng) for _ in range(n_cases)]
    tight = sum(outcome.claimed == outcome.truth for outcome in outcomes)
    unsound = sum(outcome.unsound for outcome in outcomes)
    return {
        "certificate": name,
        "cases": n_cases,
        "unsound": unsound,
        "tight": tight / n_cases,
        "kept": not unsound and (tight == n_cases or name not in EXACT),
        "seconds": round(time.perf_counter() - start, 1),
    }


def gap(counts: NDArray[Any], leader: int, rival: int) -> int:
    """Return what `rival` must gain on `leader` to overtake it."""
    return int(counts[leader]) - int(counts[rival]) + (rival > leader)


def need(powers: NDArray[Any], amount: int) -> int:
    """Return how many of the largest powers sum up to `amount`."""
    total, used = 0, 0
    for power in sorted(powers.tolist(), reverse=True):
        if total >= amount:
            break
        total, used = total + power, used + 1
    return used


def finite_aggregation_reference(votes: NDArray[Any], members: NDArray[Any]) -> int:
    """Certify one row as published, one rival after the other."""
    counts = np.bincount(votes, minlength=N_CLASSES)
    label = int(counts.argmax())
    attacks = []
    for rival in set(range(N_CLASSES)) - {label}:
        weights = 1 + (votes == label).astype(int) - (votes == rival)
        powers = weights[members].sum(axis=1)
        attacks.append(need(powers, gap(counts, label, rival)))
    return min(attacks) - 1


def finalists(scores: NDArray[Any]) -> tuple[NDArray[Any], int, int]:
    """Hold the election of one row: first choices, winner, other finalist."""
    counts = np.bincount(scores.argmax(axis=1), minlength=N_CLASSES)
    one, two = sorted(range(N_CLASSES), key=lambda label: (-counts[label], label))[:2]
    for_one = int((scores[:, one] > scores[:, two]).sum())
    return counts, *((one, two) if 2 * for_one > len(scores) - (one < two) else (two, one))


def runoff_reference(scores: NDArray[Any], members: NDArray[Any] | None = None) -> int:
    """Certify one row of scores without ties as published; disjoint partitions or buckets."""
    first, k = scores.argmax(axis=1), len(scores)
    members = np.arange(k)[:, None] if members is None else members
    counts, winner, finalist = finalists(scores)

    def needed(weights: NDArray[Any], amount: int) -> int:
        return need(weights[members].sum(axis=1), amount)

    def overtake(leader: int, rival: int) -> int:
        weights = 1 + (first == leader).astype(int) - (first == rival)
        return needed(weights, gap(counts, leader, rival))

    rivals = [label for label in range(N_CLASSES) if label != winner]
    attacks = []
    for rival in rivals:
        loyal = scores[:, winner] > scores[:, rival]
        lead = 2 * int(loyal.sum()) - k + (rival > winner)
        reach = 0 if rival == finalist else overtake(finalist, rival)
        attacks.append(max(reach, needed(2 * loyal.astype(int), lead)))
    alone = {rival: overtake(winner, rival) for rival in rivals}
    for one, two in combinations(rivals, 2):
        weights = 1 + 2 * (first == winner).astype(int) - (first == one) - (first == two)
        both = needed(weights, gap(counts, winner, one) + gap(counts, winner, two))
        attacks.append(max(alone[one], alone[two], both))
    return min(attacks) - 1


def simulated_scores(n: int, k: int) -> NDArray[np.float32]:
    """Return scores of members that favour the true label by a margin of the row's own."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((n, k, N_CLASSES), dtype=np.float32)
    truth, margin = rng.integers(0, N_CLASSES, n), rng.exponential(2.0, n).astype(np.float32)
    scores[np.arange(n), :, truth] += margin[:, None]
    return scores


def compare(
    name: str,
    shape: str,
    ours: Callable[[], NDArray[np.int64]],
    reference: Callable[[int], int],
    checked: int,
) -> dict[str, Any]:
    """Time all rows against the reference on some of them."""
    start = time.perf_counter()
    radius = ours()
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    plain = np.array([reference(row) for row in range(checked)])
    plain_seconds = (time.perf_counter() - start) * len(radius) / checked
    return {
        "certificate": name,
        "shape": shape,
        "seconds": round(seconds, 2),
        "reference_seconds": round(plain_seconds, 1),
        "reference_rows": checked,
        "times_faster": round(plain_seconds / seconds),
        "equal_to_reference": float((radius[:checked] == plain).mean()),
        "above_reference": float((radius[:checked] > plain).mean()),
        "median_radius": float(np.median(radius)),
        "kept": bool((radius[:checked] >= plain).all()),
    }


def measure_speed(n: int, checked: int) -> list[dict[str, Any]]:
    """Compare the certificates of one row each with their references."""
    votes = simulated_scores(n, 1000).argmax(axis=2).astype(np.int8)
    votes = np.tile(votes, (1, 4))
    wide, narrow = make_spread(1000, 4), make_spread(50, 4)
    results = [
        compare(
            "finite aggregation",
            f"{n:,} x 4,000 members, d = 4",
            lambda: certify_finite_aggregation(votes, N_CLASSES, wide).radius,
            lambda row: finite_aggregation_reference(votes[row], wide.members_of_bucket),
            checked,
        )
    ]
    for k in (50, 1000):
        scores = simulated_scores(n, k)
        results.append(
            compare(
                "run-off",
                f"{n:,} x {k:,} members",
                lambda scores=scores: certify_scores(scores).radius,
                lambda row, scores=scores: runoff_reference(scores[row]),
                checked,
            )
        )
    scores = simulated_scores(n, 200)
    results.append(
        compare(
            "run-off, finite aggregation",
            f"{n:,} x 200 members, d = 4",
            lambda: certify_shared_runoff(scores, narrow).radius,
            lambda row: runoff_reference(scores[row], narrow.members_of_bucket),
            checked,
        )
    )
    return results


def measure_collective() -> list[dict[str, Any]]:
    """Report how far the exact collective certificate and the bound go, on committed votes."""
    results = []
    for row, n, size, method in COLLECTIVE:
        result = read_result((BUCKETS if row in SHARED else RESULTS) / row)
        votes = result.votes[:n]
        start = time.perf_counter()
        found = collective_certificate(
            votes,
            result.n_classes,
            size,
            membership=SHARED.get(row),
            method=method,
            time_limit=60,
        )
        results.append(
            {
                "row": row,
                "rows": len(votes),
                "members": votes.shape[1],
                "attack": size,
                "method": method,
                "separately": int(found.separately[0]),
                "at_most": int(found.changed[0]),
                "attained": int(found.attained[0]),
                "exact": bool(found.exact[0]),
                "seconds": round(time.perf_counter() - start, 2),
            }
        )
    return results


def show_cases(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Check all certificates on small cases, printing each."""
    results = []
    for name in options.names or CASES:
        result = check_cases(name, options.cases)
        print(
            "{certificate}: {cases:,} cases, unsound={unsound}, tight {tight:.2%}".format(**result)
        )
        results.append(result)
    return results


def show_speed(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure real shapes, printing each."""
    results = measure_speed(options.rows, options.reference_rows)
    for result in results:
        print(
            "{certificate}, {shape}: {seconds:.1f} s, {times_faster:,} times faster than by row; "
            "radius equal on {equal_to_reference:.0%}, larger on {above_reference:.0%}".format(
                **result
            )
        )
    return results


def show_collective(_: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure collective certificates, printing each."""
    results = measure_collective()
    for result in results:
        print(
            "collective, {row}, {rows:,} x {members:,}, attack {attack}, {method}: at most "
            "{at_most} fall ({separately} separately, {attained} attained), {seconds} s".format(
                **result
            )
        )
    return results


def _joined(earlier: dict[str, Any] | None, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put new results in the place of earlier ones of the same certificates."""
    known = {} if earlier is None else {one["certificate"]: one for one in earlier["results"]}
    return list((known | {one["certificate"]: one for one in results}).values())


SECTIONS = {"cases": show_cases, "speed": show_speed, "collective": show_collective}


def main() -> int:
    """Run the sections asked for and keep the others of an earlier report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--names", nargs="+", choices=CASES, help="some certificates' cases only")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--reference-rows", type=int, default=50)
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    options = parser.parse_args()
    found = {name: SECTIONS[name](options) for name in options.sections}
    if options.out:
        report = json.loads(options.out.read_text()) if options.out.exists() else {}
        for name, results in found.items():
            report[name] = {
                "command": " ".join(["python", *sys.argv]),
                "python": platform.python_version(),
                "numpy": np.__version__,
                "machine": platform.machine(),
                "results": _joined(report.get(name), results) if options.names else results,
            }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(result.get("kept", True) for some in found.values() for result in some) else 1


if __name__ == "__main__":
    sys.exit(main())
