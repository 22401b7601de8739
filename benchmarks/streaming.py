"""Partitioning a table larger than memory, against a hash-partitioned write of the same table.

    python benchmarks/streaming.py --rows 20000000 --folder DIR --out FILE

A Parquet folder of 20 columns (numbers, an integer contributor among them) and a label is written
first. Then, each in a process of its own: `partition_stream` with the content hash; DuckDB's COPY
with PARTITION_BY a hash of all columns, if DuckDB is installed; pyarrow's `write_dataset` by a
cheap key, on fewer rows, because it is slow. Time is from the first byte read to the last written;
partition digests, which no reference has, are timed by themselves. All engines may use all cores.
Memory is the largest sum over the process and its workers, looked at every 0.2 s, all libraries
included.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from closed_form_common import machine

N_COLUMNS = 20
FILE_ROWS = 1_000_000
MEMORY = 2**30
ARROW_SHARE = 20
"""pyarrow gets this part of the rows."""


def make_table(folder: Path, n_rows: int) -> None:
    """Write normal numbers and integers, a file per million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    for start in range(0, n_rows, FILE_ROWS):
        rng = np.random.default_rng(start)
        size = min(FILE_ROWS, n_rows - start)
        columns: dict[str, Any] = {
            f"x{j}": rng.normal(size=size) if j % 4 else rng.integers(0, 10**6, size)
            for j in range(N_COLUMNS)
        }
        columns["label"] = rng.integers(0, 10, size)
        pq.write_table(pa.table(columns), folder / f"{start:012}.parquet")


def ours(table: Path, out: Path, k: int) -> dict[str, float]:
    """Partition with the content hash."""
    from poisonproof import DPAClassifier
    from poisonproof.data import DataSource, Schema
    from poisonproof.estimators import partition_stream

    classes = [str(label) for label in range(10)]
    classifier = DPAClassifier(n_partitions=k, classes=np.array(classes), n_jobs=os.cpu_count())
    source = DataSource(table, Schema(label="label", classes=classes))
    start = time.perf_counter()
    rows = partition_stream(classifier, source, out, memory=MEMORY)
    written = time.perf_counter()
    rows.partition_digests()
    digested = time.perf_counter()
    sample = range(0, k, max(1, k // 20))
    read = [len(rows.shard(index)) for index in sample]
    return {
        "seconds": written - start,
        "digests_seconds": digested - written,
        "rows": int(rows.sizes.sum()),
        "read_rows_per_second": sum(read) / (time.perf_counter() - digested),
        "runs": len(rows.offsets),
    }


def duckdb(table: Path, out: Path, k: int) -> dict[str, float]:
    """Partition by a hash of all feature columns, with the same bound of memory."""
    import duckdb as engine

    columns = ", ".join(f"x{j}" for j in range(N_COLUMNS))
    connection = engine.connect()
    connection.execute("SET memory_limit='900MB'")
    connection.execute("SET preserve_insertion_order=false")
    connection.execute(f"SET temp_directory='{out}.spill'")
    start = time.perf_counter()
    connection.execute(
        f"COPY (SELECT *, hash({columns}) % {k} AS p FROM '{table}/*.parquet') "
        f"TO '{out}' (FORMAT parquet, PARTITION_BY (p), OVERWRITE_OR_IGNORE)"
    )
    seconds = time.perf_counter() - start
    count = connection.execute(f"SELECT count(*) FROM '{table}/*.parquet'").fetchone()
    return {"seconds": seconds, "rows": int(count[0]) if count else 0}


def pyarrow(table: Path, out: Path, k: int) -> dict[str, float]:
    """Partition by a key that costs nothing to compute: less work than a hash of the row."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow import RecordBatch, array, int32, schema

    files = sorted(table.glob("*.parquet"))
    files = files[: max(1, len(files) // ARROW_SHARE)]
    count = 0

    def batches() -> Any:
        nonlocal count
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(batch_size=2**17):
                key = array((batch.column(0).to_numpy() % k).astype(np.int32))
                count += batch.num_rows
                yield RecordBatch.from_arrays([*batch.columns, key], [*batch.schema.names, "p"])

    names = pq.read_schema(files[0])
    start = time.perf_counter()
    ds.write_dataset(
        batches(),
        out,
        schema=names.append(schema([("p", int32())]).field(0)),
        format="parquet",
        partitioning=ds.partitioning(schema([("p", int32())])),
        max_partitions=k,
        max_open_files=k + 16,
    )
    return {"seconds": time.perf_counter() - start, "rows": count}


ENGINES: dict[str, Callable[[Path, Path, int], dict[str, float]]] = {
    "poisonproof": ours,
    "duckdb": duckdb,
    "pyarrow": pyarrow,
}


def in_child(name: str, table: Path, out: Path, k: int) -> dict[str, Any]:
    """Run one engine in a process of its own and return what it measured."""
    out.mkdir()
    command = [sys.executable, __file__, "--child", name, "--folder", str(table), "-k", str(k)]
    try:
        running = subprocess.Popen(
            [*command, "--target", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        peaks = {"Rss": 0.0, "Pss": 0.0}
        while running.poll() is None:
            for kind, peak in peaks.items():
                peaks[kind] = max(peak, memory_mib(running.pid, kind))
            time.sleep(0.2)  # looking costs the engine time
        output, errors = (stream.decode() for stream in running.communicate())
        size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    finally:
        shutil.rmtree(out)
        shutil.rmtree(f"{out}.spill", ignore_errors=True)
    if running.returncode:
        return {"failed": errors.strip().splitlines()[-1][:300]}
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    result |= {f"peak_{kind.lower()}_mib": peak for kind, peak in peaks.items()}
    result["rows_per_second"] = result["rows"] / result["seconds"]
    return {**result, "gigabytes_written": size / 1e9}


def memory_mib(process: int, kind: str) -> float:
    """Return the memory of a process and all below it.

    Rss counts pages that processes share (libraries) for each of them, Pss once.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        below = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has just ended
        return 0.0
    own = sum(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))
    return own / 1024 + sum(memory_mib(int(other), kind) for other in below)


def main() -> None:
    """Make the table, run every engine, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("-k", type=int, default=1000)
    parser.add_argument("--folder", type=Path, required=True, help="Scratch folder; made, removed.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=list(ENGINES))
    parser.add_argument("--child", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--target", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder, k = arguments.folder, arguments.k
    if arguments.child:
        print(json.dumps(ENGINES[arguments.child](folder, arguments.target, k)))
        return
    result: dict[str, Any] = {
        "machine": machine(os.cpu_count() or 1),
        "rows": arguments.rows,
        "k": k,
    }
    folder.mkdir(parents=True)
    try:
        make_table(folder / "table", arguments.rows)
        for name in arguments.only:
            if importlib.util.find_spec(name) is None:
                result[name] = {"failed": "not installed"}
                continue
            result[name] = in_child(name, folder / "table", folder / name, k)
            print(name, json.dumps(result[name]), flush=True)
    finally:
        shutil.rmtree(folder)
    speed = {name: result.get(name, {}).get("rows_per_second") for name in ENGINES}
    for name in ("duckdb", "pyarrow"):
        if speed[name] and speed["poisonproof"]:
            result[f"throughput_against_{name}"] = speed["poisonproof"] / speed[name]
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
