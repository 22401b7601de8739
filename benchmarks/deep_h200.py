"""The deep engine on one CUDA device: speed, isolation, reproducibility, a whole MNIST run.

One command runs everything and writes a JSON file:

    PYTHONPATH=src python benchmarks/deep_h200.py --mnist mnist.npz --out results.json

Single parts: ``--only mnist,speed,isolation,agreement,processes``. Sample-steps count real rows
only: no padding, no dummy lanes. Augmentation, copies and learning-rate tables are part of the
timed work.
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
from poisonproof.learners.torch.networks import build
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


def ordinary_loop(
    X: np.ndarray, y: np.ndarray, shape: tuple[int, ...], epochs: int, precision: str
) -> torch.nn.Module:
    """Train one member as one writes it by hand: eager, data and augmentation on the device."""
    spec = learner(shape[1], execution="single").resolve(shape, 10)
    module = build(spec).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        module.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [61, 121, 161], 0.2)
    images = torch.from_numpy(X.reshape(-1, *shape)).cuda().float()
    mean, std = (f(images, dim=(0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))
    images = torch.nn.functional.pad(images, (4, 4, 4, 4))
    images, labels = (images - mean) / std, torch.from_numpy(y.astype(np.int64)).cuda()
    module.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(y), device="cuda").split(128):
            x = _random_crop(images[rows], shape[1], flip=shape[0] == 3)
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
                scores = module(x.contiguous(memory_format=torch.channels_last))
            loss = torch.nn.functional.cross_entropy(scores.float(), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        schedule.step()
    module.eval()
    return torch.nn.Sequential(_Normalise(mean, std), module)


class _Normalise(torch.nn.Module):
    def __init__(self, mean: torch.Tensor, std: torch.Tensor) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the partition's own normalisation."""
        return (x - self.mean) / self.std


def _random_crop(padded: torch.Tensor, side: int, *, flip: bool) -> torch.Tensor:
    count = len(padded)
    offset = torch.randint(0, 9, (2, count, 1), device=padded.device)
    place = torch.arange(side, device=padded.device)
    y, x = offset[0] + place, offset[1] + place
    if flip:
        x = torch.where(torch.rand(count, 1, device=padded.device) < 0.5, x.flip(1), x)
    image = torch.arange(count, device=padded.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


def eager_rate(
    parts: list[tuple[np.ndarray, np.ndarray]], shape: tuple[int, ...], precision: str
) -> float:
    """Return the sample-steps per second of the ordinary loop, one member after the other."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    ordinary_loop(*parts[0], shape, 10, precision)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for X, y in parts:
        ordinary_loop(X, y, shape, 60, precision)
    torch.cuda.synchronize()
    return 60 * sum(len(y) for _, y in parts) / (time.perf_counter() - start)


def agreement(args: argparse.Namespace) -> dict[str, object]:
    """Compare 20 members with the ordinary loop of the same recipe in float32."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    parts = mnist_parts(args.mnist, 1200)[:20]
    with np.load(args.mnist) as file:
        X, y = file["x_test"], file["y_test"]
    ensemble, _ = timed_fit(learner(28), data_from_parts(parts))
    votes = ensemble.votes(X)
    ours = (votes == y[:, None]).mean(axis=0)
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
        eager = {name: eager_rate(parts[1:4], shape, name) for name in ("tf32", "bfloat16")}
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
PARTS = {f.__name__: f for f in (mnist, speed, isolation, agreement, processes)}


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
