"""The deep engine on one CUDA device: speed, isolation, reproducibility, a whole MNIST run.

One command runs everything and writes a JSON file:

    PYTHONPATH=src python benchmarks/deep_h200.py --mnist mnist.npz --out results.json

Single parts: ``--only mnist,speed,isolation,processes``. Sample-steps count real rows only: no
padding, no dummy lanes. Augmentation, copies and learning-rate tables are part of the timed work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from poisonproof.engines.torch import TorchEnsemble, TorchLearner
from poisonproof.engines.torch.rows import partition_rows
from poisonproof.engines.torch.single import train_member
from poisonproof.partition import PixelSum
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Silent

SHAPES = {28: (1, 28, 28), 32: (3, 32, 32)}
CIFAR_SIZES = (31, 73)  # published partition sizes of CIFAR-10 at k = 1000


def data_from_parts(parts: list[tuple[np.ndarray, np.ndarray]]) -> PartitionedData:
    """Put partitions together as they are."""
    X = np.concatenate([x for x, _ in parts])
    y = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    offsets = np.cumsum([0, *(len(labels) for _, labels in parts)])
    return PartitionedData(X, y, np.arange(len(y)), offsets)


def mnist_parts(path: Path, n_partitions: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Cut MNIST by its pixel sums, as published."""
    with np.load(path) as file:
        X, y = file["x_train"], file["y_train"]
    place = PixelSum(n_partitions=n_partitions).assign(X)
    return [(X[place == i], y[place == i]) for i in range(n_partitions)]


def cifar_like_parts(n_partitions: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw partitions of CIFAR-10's shape and sizes; what the pixels show costs no time."""
    draw = np.random.default_rng(0)
    sizes = draw.integers(CIFAR_SIZES[0], CIFAR_SIZES[1] + 1, n_partitions)
    return [
        (draw.integers(0, 256, (m, 3, 32, 32), dtype=np.uint8), draw.integers(0, 10, m))
        for m in sizes
    ]


def learner(side: int, **changes: object) -> TorchLearner:
    """Return the published recipe on CUDA."""
    recipe = "nin-mnist" if side == 28 else "nin-cifar10"
    return TorchLearner.from_recipe(recipe, device="cuda", stack_width=64, **changes)


def timed_fit(model: TorchLearner, data: PartitionedData) -> tuple[TorchEnsemble, float]:
    """Train all members; return the ensemble and the seconds."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    ensemble = model.fit_members(data, range(len(data)), 10, 0, progress=Silent())
    torch.cuda.synchronize()
    return ensemble, time.perf_counter() - start


def speed(args: argparse.Namespace) -> dict[str, object]:
    """Sample-steps per second against a sequential eager loop, in the same run."""
    found: dict[str, object] = {}
    for side, shape in SHAPES.items():
        parts = mnist_parts(args.mnist, 1200)[:256] if side == 28 else cifar_like_parts(256)
        data = data_from_parts(parts)
        rows = len(data.y)
        warm = data_from_parts(parts[:1])
        timed_fit(learner(side, epochs=2), warm)
        epochs = args.epochs
        _, seconds = timed_fit(learner(side, epochs=epochs), data)
        eager = {}
        for dtype in ("float32", "bfloat16"):
            spec = learner(side, epochs=10, execution="single", dtype=dtype).resolve(shape, 10)
            few = [partition_rows(data[i], spec) for i in range(4)]
            train_member(spec, few[0], 0, torch.device("cuda"))
            torch.cuda.synchronize()
            start = time.perf_counter()
            for member in few[1:]:
                train_member(spec, member, 0, torch.device("cuda"))
            torch.cuda.synchronize()
            steps = 10 * sum(len(member) for member in few[1:])
            eager[dtype] = steps / (time.perf_counter() - start)
        rate = rows * epochs / seconds
        found[f"{side}x{side}"] = {
            "members": len(parts),
            "rows": rows,
            "epochs": epochs,
            "seconds": seconds,
            "sample_steps_per_second": rate,
            "eager_sequential": eager,
            "times_eager": rate / max(eager.values()),
        }
        print(side, found[f"{side}x{side}"], flush=True)
    return found


def isolation(args: argparse.Namespace) -> dict[str, object]:
    """Insert into, delete from and enlarge the largest partition; look at all the others."""
    found: dict[str, object] = {}
    for side in SHAPES:
        parts = mnist_parts(args.mnist, 1200)[:80] if side == 28 else cifar_like_parts(80)
        model = learner(side, epochs=5)
        largest = max(range(len(parts)), key=lambda i: len(parts[i][1]))
        X, y = parts[largest]
        attacks = {
            "insert": (np.concatenate([X, X[:1] ^ 1]), np.concatenate([y, y[:1]])),
            "delete": (X[1:], y[1:]),
            "enlarge": (np.concatenate([X, X ^ 3]), np.concatenate([y, y])),
        }
        before, _ = timed_fit(model, data_from_parts(parts))
        test = parts[0][0]
        votes = before.votes(test)
        result = {}
        for name, changed in attacks.items():
            attacked = [changed if i == largest else p for i, p in enumerate(parts)]
            after, _ = timed_fit(model, data_from_parts(attacked))
            weights = np.array(before.digests()) != np.array(after.digests())
            ballots = (votes != after.votes(test)).any(axis=0)
            result[name] = np.flatnonzero(weights | ballots).tolist()
        other = [*range(79, 39, -1), 3]
        moved = model.fit_members(data_from_parts(parts), other, 10, 0)
        narrow = model.set_params(stack_width=16).fit_members(data_from_parts(parts), other, 10, 0)
        expected = [before.members[i].digest() for i in other]
        found[f"{side}x{side}"] = {
            "largest": largest,
            "changed_members": result,
            "isolated": all(value == [largest] for value in result.values()),
            "lane_moved_same_bits": [m.digest() for m in moved.members] == expected,
            "other_stack_width_same_bits": [m.digest() for m in narrow.members] == expected,
        }
        print(side, found[f"{side}x{side}"], flush=True)
    return found


def digests(args: argparse.Namespace) -> dict[str, object]:
    """Train a few members and print their digests; run by `processes`."""
    parts = mnist_parts(args.mnist, 1200)[:16]
    ensemble, _ = timed_fit(learner(28, epochs=10), data_from_parts(parts))
    return {"digests": ensemble.digests()}


def processes(args: argparse.Namespace) -> dict[str, object]:
    """Compare two fresh processes with empty compile caches, the second under load."""
    answers = []
    for loaded in (False, True):
        with tempfile.TemporaryDirectory() as cache:
            out = Path(cache) / "out.json"
            load = _start_load() if loaded else None
            command = [sys.executable, __file__, "--mnist", str(args.mnist), "--only", "digests"]
            subprocess.run(
                [*command, "--out", str(out)],
                check=True,
                env={**os.environ, "TRITON_CACHE_DIR": f"{cache}/triton"},
            )
            if load is not None:
                load.terminate()
                load.wait()
            answers.append(json.loads(out.read_text())["digests"]["digests"])
    return {"members": len(answers[0]), "same_digests": answers[0] == answers[1]}


def _start_load() -> subprocess.Popen[bytes]:
    """Keep the device and a processor busy with other work."""
    code = (
        "import torch\na = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
        "while True:\n    a = torch.tanh(a @ a)\n"
    )
    return subprocess.Popen([sys.executable, "-c", code])


def mnist(args: argparse.Namespace) -> dict[str, object]:
    """Train all 1200 members of the published MNIST model and let them vote on the test set."""
    start = time.perf_counter()
    data = data_from_parts(mnist_parts(args.mnist, 1200))
    with np.load(args.mnist) as file:
        X, y = file["x_test"], file["y_test"]
    ready = time.perf_counter()
    ensemble, _ = timed_fit(learner(28), data)
    trained = time.perf_counter()
    votes = ensemble.votes(X)
    voted = time.perf_counter()
    counts = np.stack([(votes == c).sum(axis=1) for c in range(10)], axis=1)
    return {
        "read_seconds": ready - start,
        "train_seconds": trained - ready,
        "vote_seconds": voted - trained,
        "total_seconds": voted - start,
        "sample_steps_per_second": len(data.y) * 200 / (trained - ready),
        "member_accuracy": float((votes == y[:, None]).mean()),
        "ensemble_accuracy": float((counts.argmax(axis=1) == y).mean()),
        "failures": len(ensemble.failures()),
        "peak_device_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


# MNIST first: on a fresh machine its time then includes compiling the kernels.
PARTS = {f.__name__: f for f in (mnist, speed, isolation, processes)}


def main() -> None:
    """Run the parts asked for and write their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path, required=True, help="npz with x_train, y_train, ...")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--epochs", type=int, default=60, help="epochs of the speed measurement")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    for name in args.only.split(","):
        start = time.perf_counter()
        found[name] = (digests if name == "digests" else PARTS[name])(args)
        print(name, f"{time.perf_counter() - start:.1f} s", found[name], flush=True)
        args.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
