"""Throughput and memory of `ContentHash` on one core.

    python benchmarks/content_hash.py --out benchmarks/results/content_hash.json

Every case is timed against the obvious loop in the same run: one BLAKE2b per row, of the row's raw
bytes. That loop hashes the container, not the values, so it is a yardstick and no alternative. The
promises checked are 100 MB/s on 60,000 x 784 bytes, 400,000 rows/s on 1,000,000 x 20 float64, and
1 GiB for 100,000 sparse rows of 2^20 columns, data included. The exit code is 1 where one is
broken. Times are CPU time of the one thread that works, so that other work on the machine
counts as little as it can.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from poisonproof.partition import ContentHash, partition_data

K = 1000
GIB = 2**30


def image_bytes() -> Any:
    """Return rows like MNIST's: 784 bytes, four in five of them zero, in runs."""
    rng = np.random.default_rng(0)
    X = rng.integers(1, 256, (60_000, 784), dtype=np.uint8)
    X.reshape(60_000, 112, 7)[rng.random((60_000, 112)) < 0.8] = 0
    return X


def table_of_floats() -> Any:
    """Return a million rows of 20 float64."""
    return np.random.default_rng(0).normal(size=(1_000_000, 20))


def sparse_rows() -> Any:
    """Return 100,000 rows of 2^20 columns with 100 values each."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 2**20, (100_000, 100), dtype=np.int32)
    columns.sort(axis=1)
    X = sp.csr_matrix(
        (rng.random(10_000_000), columns.ravel(), np.arange(100_001) * 100), shape=(100_000, 2**20)
    )
    X.sum_duplicates()
    return X


def naive_dense(X: Any) -> None:
    """Hash the raw bytes of each row."""
    for row in X:
        hashlib.blake2b(row.tobytes(), digest_size=32).digest()


def naive_sparse(X: Any) -> None:
    """Hash the stored indices and values of each row."""
    for start, stop in zip(X.indptr, X.indptr[1:], strict=False):
        raw = X.indices[start:stop].tobytes() + X.data[start:stop].tobytes()
        hashlib.blake2b(raw, digest_size=32).digest()


CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "images": (image_bytes, naive_dense),
    "floats": (table_of_floats, naive_dense),
    "sparse": (sparse_rows, naive_sparse),
}


def best_times(first: Callable[[], Any], second: Callable[[], Any], repeats: int) -> list[float]:
    """Return the shortest CPU time of each, run in turn so both see the same machine."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for i, work in enumerate((first, second)):
            start = time.process_time()
            work()
            best[i] = min(best[i], time.process_time() - start)
    return best


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(s for s in status.read_text().splitlines() if s.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(case: str, repeats: int) -> dict[str, Any]:
    """Measure one case in this process."""
    make, naive = CASES[case]
    X = make()
    base = peak_memory()
    partitioner = ContentHash(n_partitions=K)
    seconds, reference = best_times(lambda: partitioner.assign(X), lambda: naive(X), repeats)
    size = X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes
    result = {
        "rows": X.shape[0],
        "columns": X.shape[1],
        "dtype": str(X.dtype),
        "cpu_seconds": round(seconds, 4),
        "rows_per_second": round(X.shape[0] / seconds),
        "megabytes_per_second": round(size / seconds / 1e6, 1),
        "naive_cpu_seconds": round(reference, 4),
        "time_over_naive": round(seconds / reference, 2),
        "data_mib": round(base / 2**20),
        "peak_mib": round(peak_memory() / 2**20),
    }
    if case == "images":
        y = np.zeros(X.shape[0], dtype=np.int64)
        cut = best_times(lambda: partition_data(X, y, partitioner), lambda: None, repeats)[0]
        result["partition_data_cpu_seconds"] = round(cut, 4)
    return result


def broken_promises(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line for each promise that the figures break."""
    checks = {
        "images: 100 MB/s": results["images"]["megabytes_per_second"] >= 100,
        "floats: 400,000 rows/s": results["floats"]["rows_per_second"] >= 400_000,
        "sparse: 1 GiB": results["sparse"]["peak_mib"] * 2**20 <= GIB,
    }
    return [promise for promise, kept in checks.items() if not kept]


def main() -> int:
    """Run every case in a process of its own, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--case", choices=CASES, help="measure one case and print its figures")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.repeats)))
        return 0
    results = {}
    print("case          rows  seconds    rows/s    MB/s  / naive  peak MiB")
    for case in CASES:
        command = [sys.executable, __file__, "--case", case, "--repeats", str(options.repeats)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        results[case] = found
        print(
            f"{case:8} {found['rows']:9,} {found['cpu_seconds']:8.3f} "
            f"{found['rows_per_second']:9,} {found['megabytes_per_second']:7.0f} "
            f"{found['time_over_naive']:8.2f} {found['peak_mib']:9,}"
        )
    broken = broken_promises(results)
    for promise in broken:
        print(f"BROKEN  {promise}")
    if options.out:
        machine = {"processor": platform.machine(), "python": platform.python_version()}
        machine |= {"numpy": np.__version__}
        figures = {"machine": machine, "results": results, "broken": broken}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
