"""Time and memory of `certify_votes` on 10,000 x 3,000 votes.

    python benchmarks/certify_votes.py --out benchmarks/results/certify_votes.json

For every dtype the same votes are certified by poisonproof and by a straightforward reference in
the same run: one comparison and sum per class, then a sort of the counts. The promises checked are
under 1 s, and extra memory (beside the votes) of at most the size of the votes. The exit code is 1
where one is broken.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates import certify_votes

SECONDS_ALLOWED = 1.0
DTYPES = ("uint8", "int16", "int64")


def reference(votes: NDArray[Any], n_classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Certify as one would write it down, without a thought for memory."""
    counts = np.stack([(votes == label).sum(axis=1) for label in range(n_classes)], axis=1)
    labels = counts.argmax(axis=1)
    rivals = counts + (np.arange(n_classes) < labels[:, None])
    rivals[np.arange(len(votes)), labels] = -1
    return labels, (counts.max(axis=1) - rivals.max(axis=1)) // 2


def simulated_votes(n: int, k: int, n_classes: int, dtype: str) -> NDArray[Any]:
    """Return votes of members that are right on a row with a probability of its own."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, n_classes, (n, 1), dtype=dtype)
    noise = rng.integers(0, n_classes, (n, k), dtype=dtype)
    knows = rng.random((n, k), dtype=np.float32) < rng.random((n, 1), dtype=np.float32)
    return np.where(knows, truth, noise)


def best_time(work: Callable[[], Any], repeats: int) -> float:
    """Return the shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_memory(work: Callable[[], Any]) -> int:
    """Return the largest number of bytes allocated at once while working, the result included."""
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def measure(n: int, k: int, n_classes: int, dtype: str, repeats: int) -> dict[str, Any]:
    """Compare poisonproof with the reference on one dtype."""
    votes = simulated_votes(n, k, n_classes, dtype)
    certificates = certify_votes(votes, n_classes)
    labels, radius = reference(votes, n_classes)
    if not (
        np.array_equal(certificates.labels, labels) and np.array_equal(certificates.radius, radius)
    ):
        raise SystemExit(f"{dtype}: poisonproof and the reference disagree")
    seconds = best_time(lambda: certify_votes(votes, n_classes), repeats)
    targeted = best_time(lambda: certify_votes(votes, n_classes, target=0), repeats)
    plain = best_time(lambda: reference(votes, n_classes), max(1, repeats // 2))
    extra = peak_memory(lambda: certify_votes(votes, n_classes))
    plain_extra = peak_memory(lambda: reference(votes, n_classes))
    return {
        "dtype": dtype,
        "votes_mb": round(votes.nbytes / 1e6, 1),
        "seconds": round(seconds, 4),
        "seconds_targeted": round(targeted, 4),
        "reference_seconds": round(plain, 4),
        "times_faster": round(plain / seconds, 1),
        "extra_memory_mb": round(extra / 1e6, 1),
        "extra_memory_over_votes": round(extra / votes.nbytes, 3),
        "reference_extra_memory_over_votes": round(plain_extra / votes.nbytes, 3),
        "kept": seconds < SECONDS_ALLOWED and extra <= votes.nbytes,
    }


def main() -> int:
    """Run the benchmark and print one line per dtype."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=3_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    options = parser.parse_args()
    shape = options.rows, options.members, options.classes
    print(f"certify_votes on {shape[0]:,} x {shape[1]:,} votes, {shape[2]} classes")
    results = []
    for dtype in DTYPES:
        result = measure(*shape, dtype, options.repeats)
        results.append(result)
        print(
            f"{dtype:>6}: {result['seconds']:.3f} s, {result['times_faster']:.1f} times faster "
            f"than the reference; extra memory {result['extra_memory_mb']:.1f} MB = "
            f"{result['extra_memory_over_votes']:.2f} of the votes "
            f"(reference {result['reference_extra_memory_over_votes']:.2f})"
            f"{'' if result['kept'] else '  BROKEN'}"
        )
    if options.out:
        report = {
            "command": " ".join(["python", *sys.argv]),
            "rows": options.rows,
            "members": options.members,
            "classes": options.classes,
            "allowed": {"seconds": SECONDS_ALLOWED, "extra_memory_over_votes": 1.0},
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.machine(),
            "results": results,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(result["kept"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
