"""Time and memory of the main jobs at an earlier commit and now, alternating in one run.

    python benchmarks/against_commit.py COMMIT --out benchmarks/results/against_commit.json
    python benchmarks/against_commit.py COMMIT --cuda --out benchmarks/results/against_commit.json

The commit is checked out into a temporary folder (with ``--tree`` it is there already); both
versions run in the same environment, each job in a process of its own, the first of each pair in
turn. CPU time and peak memory of the process and of what it starts count, on a GPU the time of
training and voting and the peak of the device's memory; the medians of the pairs' ratios (now over
then) are printed. GPU jobs also say whether members and votes are the same, bit for bit. The file
keeps what the other mode has written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
COMMAND = "import sys; from poisonproof.cli import main; sys.argv[0] = 'poisonproof'; main()"
MNIST = """
import os
import numpy as np
from poisonproof import DPAClassifier
from sklearn.pipeline import make_pipeline
from poisonproof.features import Deskew, OrientationHistogram
from poisonproof.members.closed_form import KernelRidgeClassifier
with np.load(os.environ["POISONPROOF_DATA"] + "/mnist.npz") as mnist:
    X, y, X_test = (mnist[name] for name in ("x_train", "y_train", "x_test"))
maps = make_pipeline(
    Deskew(), OrientationHistogram(n_orientations=8, cell=4, block=1, signed=True, root=True)
)
member = KernelRidgeClassifier("rbf", gamma=2.0, alpha=0.01, precision="single")
model = DPAClassifier(member, 1200, features=maps, partitioner="pixel_sum", classes=range(10))
certificates = model.fit(X, y).certify(X_test)
assert np.median(certificates.radius) > 400
"""
DEEP = """
from sklearn.datasets import load_digits
from poisonproof import DPAClassifier, TorchLearner
X, y = load_digits(return_X_y=True)
X = X.reshape(-1, 8, 8).repeat(2, axis=1).repeat(2, axis=2).reshape(len(X), -1) / 16
learner = TorchLearner("nin", image_shape=(1, 16, 16), epochs=1, batch_size=32)
model = DPAClassifier(learner, 12, classes=range(10)).fit(X, y)
model.votes(X[:200])
"""
CUDA = """
import hashlib, json, os, time
import numpy as np
import torch
from poisonproof import DPAClassifier, TorchLearner
with np.load(os.environ["POISONPROOF_DATA"] + "/mnist.npz") as mnist:
    X, y, X_test = (mnist[name] for name in ("x_train", "y_train", "x_test"))
X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)[:2000]
about = {"image_shape": (1, 28, 28), "device": "cuda", "input_scale": 1 / 255}
learner = TorchLearner(**about, **OPTIONS)
def model(epochs, rows):
    changed = learner.set_params(epochs=epochs)
    made = DPAClassifier(changed, MEMBERS, partitioner="pixel_sum", classes=range(10))
    return made.fit(X[:rows], y[:rows])
model(1, MEMBERS).votes(X_test[:10])  # compiles what will be timed
torch.cuda.reset_peak_memory_stats()
start = time.perf_counter()
fitted = model(EPOCHS, ROWS)
trained = time.perf_counter()
votes = fitted.votes(X_test)
ended = time.perf_counter()
same = [*fitted.ensemble_.digests(), hashlib.sha256(np.ascontiguousarray(votes)).hexdigest()]
print(json.dumps({
    "training": trained - start, "voting": ended - trained,
    "device_mb": torch.cuda.max_memory_allocated() / 2**20,
    "bits": hashlib.sha256("".join(same).encode()).hexdigest(),
}))
"""
CUDA_JOBS = {
    "NiN, kernels of its own": {
        "MEMBERS": "200",
        "ROWS": "10_000",
        "EPOCHS": "60",
        "OPTIONS": '{"network": "nin", "augmentation": "crop"}',
    },
    "ResNet-10, CUDA graphs": {
        "MEMBERS": "16",
        "ROWS": "8_000",
        "EPOCHS": "20",
        "OPTIONS": '{"network": "resnet10", "augmentation": "crop", "mixup": 0.2}',
    },
    "multilayer perceptron, stacked": {
        "MEMBERS": "512",
        "ROWS": "60_000",
        "EPOCHS": "60",
        "OPTIONS": '{"network": "mlp"}',
    },
}
MOVED = {
    "poisonproof.members.closed_form": "poisonproof.learners.closed_form",
    "from sklearn.pipeline import make_pipeline": (
        "from poisonproof.features import make_frozen_pipeline as make_pipeline"
    ),
}
"""Code of the jobs below, and what stood for it before the packages were merged."""


def write_tables(folder: Path) -> None:
    """Write a training table of 40,000 rows and 5,000 rows to certify."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(45_000, 12)).round(4)
    kinds = np.array(["bad", "good"])[(X[:, :4].sum(axis=1) + rng.normal(size=45_000) > 0) * 1]
    names = ",".join([*(f"x{i}" for i in range(12)), "kind"])
    lines = [",".join([*map(str, row), kind]) for row, kind in zip(X, kinds, strict=True)]
    (folder / "rows.csv").write_text("\n".join([names, *lines[:40_000]]) + "\n")
    (folder / "new.csv").write_text("\n".join([names, *lines[40_000:]]) + "\n")
    unlabelled = [line.rpartition(",")[0] for line in (names, *lines[40_000:])]
    (folder / "unlabelled.csv").write_text("\n".join(unlabelled) + "\n")


def jobs(folder: Path) -> dict[str, Callable[[Path, str], list[str]]]:
    """Return the arguments of Python for each job, given a source tree and a name for outputs."""

    def command(*words: str) -> Callable[[Path, str], list[str]]:
        return lambda tree, name: ["-c", COMMAND, *(word.replace("NAME", name) for word in words)]

    def script(text: str) -> Callable[[Path, str], list[str]]:
        def found(tree: Path, name: str) -> list[str]:
            code = text
            if (tree / "src/poisonproof/learners").exists():
                for now, then in MOVED.items():
                    code = code.replace(now, then)
            return ["-c", code]

        return found

    table = ("--label", "kind", "--classes", "bad,good")
    listed = {
        "help": command("--help"),
        "train": command("train", f"{folder}/rows.csv", *table, "-k", "200", "--out", "NAME"),
        "predict": command("predict", "NAME", f"{folder}/unlabelled.csv", "--out", "NAME.csv"),
        "certify": command("certify", "NAME", f"{folder}/new.csv", "--label", "kind"),
        "deep members on the CPU": script(DEEP),
    }
    if "POISONPROOF_DATA" in os.environ:
        listed["MNIST, k = 1,200"] = script(MNIST)
    return listed


def measure(arguments: list[str], tree: Path, folder: Path) -> tuple[float, float]:
    """Run Python on a source tree; return its CPU seconds and peak memory in MB."""
    paths = os.pathsep.join(map(str, (tree / "src", tree / "research", tree)))
    environment = os.environ | {"PYTHONPATH": paths}
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)[:200]} failed in {tree}.")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def on_cuda(trees: dict[str, Path], pairs: int, only: str) -> dict[str, Any]:
    """Train and vote on a GPU with both versions in turn; return ratios and whether bits agree."""
    found: dict[str, Any] = {}
    for job, values in CUDA_JOBS.items():
        if only not in job:
            continue
        code = CUDA
        for name, value in values.items():
            code = code.replace(name, value)
        runs: dict[str, list[dict[str, Any]]] = {version: [] for version in trees}
        for pair in range(pairs):
            for version in list(trees) if pair % 2 == 0 else list(trees)[::-1]:
                environment = os.environ | {"PYTHONPATH": str(trees[version] / "src")}
                done = subprocess.run(
                    [sys.executable, "-c", code], env=environment, check=True, capture_output=True
                )
                runs[version].append(json.loads(done.stdout.splitlines()[-1]))
        bits = {run["bits"] for some in runs.values() for run in some}
        ratios = {
            what: round(
                statistics.median(
                    now[what] / then[what]
                    for now, then in zip(runs["now"], runs["then"], strict=True)
                ),
                3,
            )
            for what in ("training", "voting", "device_mb")
        }
        found[job] = {"ratios": ratios, "same_members_and_votes": len(bits) == 1, "runs": runs}
        print(f"{job}: {ratios}, same members and votes: {len(bits) == 1}", flush=True)
    return found


@contextmanager
def checked_out(commit: str, tree: Path | None, folder: Path) -> Iterator[Path]:
    """Give the files of a commit: `tree`, if they are there already."""
    if tree is not None:
        yield tree.absolute()
        return
    git, before = ["git", "-C", str(ROOT), "worktree"], folder / "before"
    subprocess.run([*git, "add", "--detach", "--quiet", str(before), commit], check=True)
    try:
        yield before
    finally:
        subprocess.run([*git, "remove", "--force", str(before)], check=True)


def on_cpu(trees: dict[str, Path], pairs: int, only: str, folder: Path) -> dict[str, Any]:
    """Run the jobs with both versions in turn; return CPU time and memory, and their ratios."""
    found: dict[str, Any] = {}
    write_tables(folder)
    for job, make in jobs(folder).items():
        if only not in job:
            continue
        runs = []
        for pair in range(pairs):
            order = list(trees) if pair % 2 == 0 else list(trees)[::-1]
            if job == "train":
                for version in order:
                    shutil.rmtree(folder / f"model-{version}", ignore_errors=True)
            took = {
                version: measure(make(trees[version], f"model-{version}"), trees[version], folder)
                for version in order
            }
            runs.append(took)
        ratio = [statistics.median(p["now"][i] / p["then"][i] for p in runs) for i in (0, 1)]
        found[job] = {
            "cpu_ratio": round(ratio[0], 3),
            "memory_ratio": round(ratio[1], 3),
            "cpu_seconds": {v: [round(p[v][0], 2) for p in runs] for v in ("then", "now")},
            "memory_mb": {v: [round(p[v][1]) for p in runs] for v in ("then", "now")},
        }
        print(f"{job}: CPU time x {ratio[0]:.2f}, peak memory x {ratio[1]:.2f}", flush=True)
    return found


def main() -> None:
    """Time both versions and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="the version to compare with")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of runs (default: 3)")
    parser.add_argument("--only", default="", help="a part of a job's name")
    parser.add_argument("--cuda", action="store_true", help="the jobs for a GPU")
    parser.add_argument("--tree", type=Path, help="where the commit's files are already")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        checked_out(options.commit, options.tree, Path(name)) as before,
    ):
        trees = {"then": before, "now": ROOT}
        if options.cuda:
            found = on_cuda(trees, options.pairs, options.only)
        else:
            found = on_cpu(trees, options.pairs, options.only, Path(name))
    if options.out is not None:
        about = {"commit": options.commit, "pairs": options.pairs, "cores": os.cpu_count()}
        kept = json.loads(options.out.read_text()) if options.out.exists() else {}
        kept["on a GPU" if options.cuda else "on a CPU"] = {**about, "jobs": found}
        options.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
