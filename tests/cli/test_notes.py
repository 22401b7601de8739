"""What the command line points at although nothing failed."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from tests.cli.conftest import Cli


def write(path: Path, names: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def spread(n: int, scale: float) -> list[list[object]]:
    rng = np.random.default_rng(0)
    kinds = rng.integers(2, size=n)
    points = scale * (rng.normal(size=(n, 2)) + 4 * kinds[:, None])
    return [
        [*point.tolist(), ("ham", "spam")[kind]] for point, kind in zip(points, kinds, strict=True)
    ]


def test_a_model_that_tells_nothing_apart_is_pointed_at(cli: Cli, tmp_path: Path) -> None:
    names, options = ["a", "b", "kind"], ("--label", "kind", "--classes", "ham,spam", "-k", "5")
    for scale, told in ((1.0, False), (1e6, True)):
        data = write(tmp_path / f"{scale}.csv", names, spread(80, scale))
        model = tmp_path / f"model-{scale}"
        trained = cli("train", data, *options, "--model", "kernel-ridge", "--out", model)
        assert trained.code == 0, trained.err
        test = write(tmp_path / f"test-{scale}.csv", names, spread(200, scale)[80:])
        certified = cli("certify", model, test, "--label", "kind")
        assert ("the model does not tell the classes apart" in certified.err) == told
        assert ("scaled-kernel takes any units" in certified.err) == told
