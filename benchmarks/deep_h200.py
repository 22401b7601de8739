"""The deep engine on one CUDA device: speed, isolation, reproducibility, on real partitions.

Pack the data first (MNIST and CIFAR-10), then run all sections, or some:

    python -m poisonproof_research data mnist --pack packs/mnist
    python -m poisonproof_research data cifar10 --pack packs/cifar10
    PYTHONPATH=src python benchmarks/deep_h200.py --data packs --out results.json
    PYTHONPATH=src python benchmarks/deep_h200.py --data packs --out results.json --only resnet

Sections are added to the file that is there. Sample-steps count real rows only: no padding, no
dummy lanes. Augmentation, copies and learning-rate tables are part of the timed work. With
compiled kernels in the cache the default sections take about 90 seconds; ``mnist``, the whole
published model, takes two minutes more and is run when it is named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from deep_data import SHAPES, Part, join, nin, packed, partitions, resnet
from deep_loop import eager_rate, ordinary_loop

from poisonproof.networks import TorchEnsemble, TorchLearner
from poisonproof.partition.partitioned import PartitionedData
from poisonproof.progress import Silent

read = cache(packed)


def timed_fit(model: TorchLearner, data: PartitionedData) -> tuple[TorchEnsemble, float]:
    """Train all members; return the ensemble and the seconds."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    ensemble = model.fit_members(data, range(len(data)), 10, 0, progress=Silent())
    torch.cuda.synchronize()
    return ensemble, time.perf_counter() - start


def small_parts(args: argparse.Namespace, side: int, count: int) -> list[Part]:
    """Return partitions of 25 to 81 rows: MNIST at k = 1200, CIFAR-10 at k = 1000."""
    name, k = ("mnist", 1200) if side == 28 else ("cifar10", 1000)
    return partitions(read(args.data, name), k)[:count]


def speed(args: argparse.Namespace, side: int) -> dict[str, object]:
    """Sample-steps per second of NiN against a sequential eager loop, in the same run."""
    parts = small_parts(args, side, 256 if side == 28 else 192)
    timed_fit(nin(side, epochs=2), join(parts[:1]))
    data = join(parts)
    _, seconds = timed_fit(nin(side, epochs=args.epochs), data)
    eager = {name: eager_rate(parts[1:4], SHAPES[side], name) for name in ("tf32", "bfloat16")}
    rate = len(data.y) * args.epochs / seconds
    return {
        "members": len(parts),
        "rows": len(data.y),
        "epochs": args.epochs,
        "seconds": seconds,
        "sample_steps_per_second": rate,
        "eager_sequential": eager,
        "times_eager": rate / max(eager.values()),
    }


def attacked(parts: list[Part]) -> tuple[int, dict[str, list[Part]]]:
    """Insert into, delete from and enlarge the largest partition."""
    largest = max(range(len(parts)), key=lambda i: len(parts[i][1]))
    X, y = parts[largest]
    changed = {
        "insert": (np.concatenate([X, X[:1] ^ 1]), np.concatenate([y, y[:1]])),
        "delete": (X[1:], y[1:]),
        "enlarge": (np.concatenate([X, X ^ 3]), np.concatenate([y, y])),
    }
    return largest, {
        name: [part if i == largest else p for i, p in enumerate(parts)]
        for name, part in changed.items()
    }


def isolated(model: TorchLearner, parts: list[Part], other_width: int) -> dict[str, object]:
    """Look at every member after each attack, on other lanes and in another stack width."""
    largest, attacks = attacked(parts)
    before, _ = timed_fit(model, join(parts))
    test = parts[0][0]
    votes, result = before.votes(test), {}
    for name, changed in attacks.items():
        after, _ = timed_fit(model, join(changed))
        weights = np.array(before.digests()) != np.array(after.digests())
        ballots = (votes != after.votes(test)).any(axis=0)
        result[name] = np.flatnonzero(weights | ballots).tolist()
    other = [*range(len(parts) - 1, len(parts) // 2, -1), 3]
    expected = [before.members[i].digest() for i in other]
    moved = model.fit_members(join(parts), other, 10, 0)
    model.set_params(stack_width=other_width)
    narrow = model.fit_members(join(parts), other, 10, 0)
    return {
        "members": len(parts),
        "rows": [min(len(y) for _, y in parts), max(len(y) for _, y in parts)],
        "largest": largest,
        "changed_members": result,
        "isolated": all(value == [largest] for value in result.values()),
        "lane_moved_same_bits": [m.digest() for m in moved.members] == expected,
        "other_stack_width_same_bits": [m.digest() for m in narrow.members] == expected,
    }


def isolation(args: argparse.Namespace) -> dict[str, object]:
    """NiN at both shapes, 80 partitions, the stack as in production."""
    return {
        f"{side}x{side}": isolated(nin(side, epochs=5), small_parts(args, side, 80), 16)
        for side in SHAPES
    }


def resnet_speed(args: argparse.Namespace) -> dict[str, object]:
    """ResNet-10 from graphs: ten CIFAR-10 partitions of k = 50, by the number of tracks."""
    parts = partitions(read(args.data, "cifar10"), 50)
    data, epochs = join(parts), 20
    timed_fit(resnet(epochs=1, stack_width=1), join(parts[:1]))
    found: dict[str, object] = {"members": len(parts), "rows": len(data.y), "epochs": epochs}
    for tracks in (1, 5, 10):
        model = resnet(epochs=epochs, stack_width=tracks)
        torch.cuda.reset_peak_memory_stats()
        _, short = timed_fit(model.set_params(epochs=epochs // 4), data)
        _, seconds = timed_fit(model.set_params(epochs=epochs), data)
        found[f"{tracks} tracks"] = {
            "seconds": seconds,
            "sample_steps_per_second": len(data.y) * epochs / seconds,
            # Recording graphs and copying home cost the same however long members train.
            "without_start": len(data.y) * (epochs - epochs // 4) / (seconds - short),
            "peak_gib": torch.cuda.max_memory_reserved() / 2**30,
        }
    few = join(parts[:2])
    timed_fit(resnet(epochs=1, execution="single", dtype="bfloat16"), join(parts[:1]))
    _, seconds = timed_fit(resnet(epochs=5, execution="single", dtype="bfloat16"), few)
    found["one by one, eager"] = {"sample_steps_per_second": len(few.y) * 5 / seconds}
    return found


def resnet_profile(args: argparse.Namespace) -> dict[str, object]:
    """Return the device's time by kernel in milliseconds when one track is alone."""
    part = join(partitions(read(args.data, "cifar10"), 50)[:1])
    model = resnet(epochs=4, stack_width=1)
    timed_fit(model, part)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        _, seconds = timed_fit(model, part)
    times: dict[str, float] = defaultdict(float)
    for kernel in profile.key_averages():
        times[kernel.key[:70]] += kernel.self_device_time_total / 1e3
    largest = dict(sorted(times.items(), key=lambda item: -item[1])[:25])
    return {"seconds": seconds, "busy_ms": sum(times.values()), "milliseconds": largest}


def resnet_isolation(args: argparse.Namespace) -> dict[str, object]:
    """ResNet-10 from graphs, ten partitions of about 1,000 rows."""
    return isolated(resnet(epochs=2), partitions(read(args.data, "cifar10"), 50), 3)


def agreement(args: argparse.Namespace) -> dict[str, object]:
    """Compare 20 members with the ordinary loop of the same recipe in float32."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    data = read(args.data, "mnist")
    X, y, parts = data.x_test, data.y_test, small_parts(args, 28, 20)
    ensemble, _ = timed_fit(nin(28), join(parts))
    ours = (ensemble.votes(X) == y[:, None]).mean(axis=0)
    losses = [_loss(ensemble.scores(p)[:, i], labels) for i, (p, labels) in enumerate(parts)]
    test = torch.from_numpy(X[:, None]).cuda().float()
    theirs, their_losses = [], []
    for own, labels in parts:
        module = ordinary_loop(own, labels, (1, 28, 28), 200, "float32")
        with torch.no_grad():
            chosen = torch.cat([module(block).argmax(dim=1) for block in test.split(1000)])
            soft = torch.softmax(module(torch.from_numpy(own[:, None]).cuda().float()), dim=1)
        theirs.append(float((chosen.cpu().numpy() == y).mean()))
        their_losses.append(_loss(soft.cpu().numpy(), labels))
    gap = ours - np.array(theirs)
    return {
        "members": len(parts),
        "test_accuracy": [float(ours.mean()), float(np.mean(theirs))],
        "training_loss": [float(np.mean(losses)), float(np.mean(their_losses))],
        "mean_difference": float(gap.mean()),
        "standard_error": float(gap.std(ddof=1) / len(gap) ** 0.5),
    }


def _loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(probabilities[np.arange(len(labels)), labels] + 1e-12).mean())


def nin_digests(args: argparse.Namespace) -> dict[str, object]:
    """Train a few NiN members and return their digests; run by `processes`."""
    ensemble, _ = timed_fit(nin(28, epochs=10), join(small_parts(args, 28, 16)))
    return {"digests": ensemble.digests()}


def resnet_digests(args: argparse.Namespace) -> dict[str, object]:
    """Train a few ResNet members and return their digests; run by `processes`."""
    parts = partitions(read(args.data, "cifar10"), 50)[:4]
    ensemble, _ = timed_fit(resnet(epochs=2), join(parts))
    return {"digests": ensemble.digests()}


def processes(args: argparse.Namespace, section: str) -> dict[str, object]:
    """Compare two fresh processes with empty compile caches, the second under load."""
    answers = []
    for loaded in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.json"
            load = _start_load() if loaded else None
            command = [sys.executable, __file__, "--data", str(args.data), "--only", section]
            subprocess.run(
                [*command, "--out", str(out)],
                check=True,
                env={**os.environ, "TRITON_CACHE_DIR": f"{folder}/triton"},
            )
            if load is not None:
                load.terminate()
                load.wait()
            answers.append(json.loads(out.read_text())[section]["digests"])
    return {"members": len(answers[0]), "same_digests": answers[0] == answers[1]}


def _start_load() -> subprocess.Popen[bytes]:
    """Keep the device and a CPU core busy with other work."""
    code = (
        "import torch\na = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
        "while True:\n    a = torch.tanh(a @ a)\n"
    )
    return subprocess.Popen([sys.executable, "-c", code])


def mnist(args: argparse.Namespace) -> dict[str, object]:
    """Train all 1200 members of the published MNIST model and let them vote on the test set."""
    start = time.perf_counter()
    data = read(args.data, "mnist")
    parts = join(partitions(data, 1200))
    ready = time.perf_counter()
    ensemble, _ = timed_fit(nin(28), parts)
    trained = time.perf_counter()
    votes = ensemble.votes(data.x_test)
    voted = time.perf_counter()
    counts = np.stack([(votes == c).sum(axis=1) for c in range(10)], axis=1)
    return {
        "read_seconds": ready - start,
        "train_seconds": trained - ready,
        "vote_seconds": voted - trained,
        "total_seconds": voted - start,
        "sample_steps_per_second": len(parts.y) * 200 / (trained - ready),
        "member_accuracy": float((votes == data.y_test[:, None]).mean()),
        "ensemble_accuracy": float((counts.argmax(axis=1) == data.y_test).mean()),
        "failures": len(ensemble.failures()),
        "peak_device_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


SECTIONS: dict[str, Callable[[argparse.Namespace], dict[str, object]]] = {
    "speed-28": lambda args: speed(args, 28),
    "speed-32": lambda args: speed(args, 32),
    "isolation": isolation,
    "resnet": resnet_speed,
    "resnet-isolation": resnet_isolation,
    "resnet-profile": resnet_profile,
    "resnet-processes": lambda args: processes(args, "resnet-digests"),
    "agreement": agreement,
    "processes": lambda args: processes(args, "nin-digests"),
    "mnist": mnist,
    "nin-digests": nin_digests,
    "resnet-digests": resnet_digests,
}
DEFAULT = ("speed-28", "speed-32", "isolation", "resnet", "resnet-isolation", "resnet-processes")


def main() -> None:
    """Run the sections asked for and write their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of packs")
    parser.add_argument("--only", default=",".join(DEFAULT), help=f"some of {', '.join(SECTIONS)}")
    parser.add_argument("--epochs", type=int, default=60, help="epochs of NiN's speed measurement")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    wanted = args.only.split(",")
    if unknown := [name for name in wanted if name not in SECTIONS]:
        parser.error(f"no section {', '.join(unknown)}; known: {', '.join(SECTIONS)}")
    found: dict[str, object] = json.loads(args.out.read_text()) if args.out.exists() else {}
    found |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name in wanted:
        start = time.perf_counter()
        found[name] = SECTIONS[name](args)
        print(name, f"{time.perf_counter() - start:.1f} s", found[name], flush=True)
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
