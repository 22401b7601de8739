"""Speed of learning maps without labels, against a plain eager loop in the same run.

Run: python benchmarks/pretraining.py --out benchmarks/results/pretraining_h200.json
Both sides do whole steps (forward, backward, update) in bfloat16, channels last. The plain loop is
an ordinary module with `torch.optim.SGD` on views that are there already: no augmentation, nothing
recorded, nothing compiled, kernels chosen freely. Ours also draws and makes the views, and is
deterministic. An image counts as two views (SimCLR) or four (RotNet).
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from poisonproof.networks import PRETRAINING, PretrainSpec
from poisonproof.networks.pretraining.loop import train_features
from poisonproof.networks.pretraining.tasks import contrast, make_task

VIEWS = {"rotnet": 4, "simclr": 2}


def plain_loop(spec: PretrainSpec, steps: int) -> float:
    """Return views per second of the ordinary loop, the network alone."""
    device = torch.device(spec.device)
    task = make_task(spec)
    model: Any = task.module
    if spec.method == "simclr":
        model = nn.Sequential(task.module["encoder"], task.module["head"])  # type: ignore[index]
    model = model.to(device).to(memory_format=torch.channels_last).train()
    n = spec.batch_size * VIEWS[spec.method]
    x = torch.randn(n, *spec.input_shape, device=device).contiguous(
        memory_format=torch.channels_last
    )
    y = (
        torch.arange(4, device=device).repeat_interleave(n // 4)
        if spec.method == "rotnet"
        else None
    )
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=spec.momentum, weight_decay=spec.weight_decay
    )

    def step() -> None:
        with torch.autocast(spec.device, torch.bfloat16, enabled=spec.dtype == "bfloat16"):
            out = model(x)
        if y is None:
            loss = contrast(out.float(), spec.temperature, spec.loss_scale)[0]
        else:
            loss = nn.functional.cross_entropy(out.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return n * _rate(step, steps, device)


def _rate(step: Callable[[], None], steps: int, device: torch.device) -> float:
    for _ in range(max(3, steps // 10)):
        step()
    _wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    _wait(device)
    return steps / (time.perf_counter() - began)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def ours(spec: PretrainSpec, images: Any, kernels: Path | None) -> tuple[float, float]:
    """Return views per second of whole epochs (the median but the first), and seconds to start.

    With `kernels` one more epoch is run, and where its time goes is written there.
    """
    speeds: list[float] = []
    began = time.perf_counter()
    started: list[float] = []
    profiler = None if kernels is None else _profiler(spec.device)

    def watch(report: Any, _current: Any) -> None:
        speeds.append(report.images_per_second)
        if not started:
            started.append(time.perf_counter() - began)
        if profiler is not None and report.epoch == spec.epochs:
            profiler.start()

    longer = replace(spec, epochs=spec.epochs + (profiler is not None))
    with tempfile.TemporaryDirectory() as folder:
        train_features(images, longer, folder=Path(folder), watch=watch)
    if profiler is not None and kernels is not None:
        profiler.stop()
        kernels.write_text(_table(profiler, spec.device))
    return VIEWS[spec.method] * median(speeds[1 : spec.epochs]), started[0]


def _profiler(device: str) -> Any:
    activities = torch.profiler.ProfilerActivity
    kind = activities.CUDA if device == "cuda" else activities.CPU
    return torch.profiler.profile(activities=[kind])


def _table(profiler: Any, device: str) -> str:
    by = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    found = profiler.key_averages()
    return str(found.table(sort_by=by, row_limit=80, max_name_column_width=90)) + "\n"


def main() -> None:
    """Measure and print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", default="rotnet,simclr")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--engines", default="eager,compiled")
    parser.add_argument("--images", type=int, default=0, help="0: as many as the dataset has")
    parser.add_argument("--batch-size", type=int, help="instead of the recipe's")
    parser.add_argument("--steps", type=int, default=100, help="steps of the plain loop")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--profile", type=Path, help="write one epoch's kernels, engine by engine")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    sizes = {"rotnet": 60000, "simclr": 50000}
    found = []
    for name in given.recipes.split(","):
        half = "bfloat16" if given.device == "cuda" else "float32"
        known = {**PRETRAINING[name], "epochs": given.epochs}
        spec = PretrainSpec(**known, device=given.device, dtype=half)
        spec = replace(spec, warmup_epochs=0, milestones=(), learning_rate=0.01)
        spec = replace(spec, batch_size=given.batch_size or spec.batch_size)
        rng = np.random.default_rng(0)
        shape = (given.images or sizes[name], *spec.input_shape)
        images = rng.integers(0, 256, shape, dtype=np.uint8)
        plain = plain_loop(spec, given.steps)
        for engine in given.engines.split(","):
            kernels = given.profile and given.profile.with_suffix(f".{name}.{engine}.txt")
            speed, start = ours(replace(spec, engine=engine), images, kernels)
            again = plain_loop(spec, given.steps)
            entry = {
                "recipe": name,
                "engine": engine,
                "views_per_second": round(speed),
                "plain_views_per_second": [round(plain), round(again)],
                "ratio": round(speed / max(plain, again), 3),
                "seconds_to_first_epoch": round(start, 1),
            }
            found.append(entry)
            print(json.dumps(entry), flush=True)
    about = {
        "torch": torch.__version__,
        "processor": torch.cuda.get_device_name() if given.device == "cuda" else platform.machine(),
    }
    if given.out is not None:
        given.out.write_text(json.dumps({"about": about, "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
