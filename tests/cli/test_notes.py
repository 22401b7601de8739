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
        assert ("the members tell nothing apart" in certified.err) == told
        assert ("scaled-kernel takes any units" in certified.err) == told


def test_held_out_contributors_that_wrote_most_rows_are_pointed_at(
    cli: Cli, tmp_path: Path
) -> None:
    rows = [[*row[:2], f"user{i % 40}", row[2]] for i, row in enumerate(spread(200, 1.0))]
    names = ["a", "b", "user", "kind"]
    told = []
    for busiest in [f"user{i}" for i in range(12)]:
        copies = [[float(i), 0.0, busiest, "ham"] for i in range(400)]
        data = write(tmp_path / "rows.csv", names, [*rows, *copies])
        schema = tmp_path / "rows.schema.json"
        cli("schema", data, "--label", "kind", "--groups", "user", "--out", schema)
        cli("schema", schema, "--freeze")
        out = tmp_path / busiest
        trained = cli("train", data, "--schema", schema, "-k", "5", "--out", out)
        assert trained.code == 0, trained.err
        told.append("contributors differ in size" in trained.err)
        if any(told) and not all(told):
            break
    assert any(told)
