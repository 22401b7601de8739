"""A small dataset as files, and a way to run the command line in this process."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from poisonproof.cli._app import run


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call


def mails(n: int, seed: int) -> list[list[object]]:
    """Return rows of two noisy features, a contributor, a weight and a label."""
    rng = np.random.default_rng(seed)
    spam = rng.random(n) < 0.5
    X = rng.normal(size=(n, 2)) + np.where(spam, 1.5, -1.5)[:, np.newaxis]
    return [
        [repr(a), repr(b), f"user{i % 40}", "1.0", "spam" if bad else "ham"]
        for i, ((a, b), bad) in enumerate(zip(X.tolist(), spam.tolist(), strict=True))
    ]


def write_csv(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> Path:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


@pytest.fixture
def train_csv(tmp_path: Path) -> Path:
    rows = [[a, b, kind] for a, b, _, _, kind in mails(400, 0)]
    return write_csv(tmp_path / "train.csv", ["length", "links", "kind"], rows)


@pytest.fixture
def test_csv(tmp_path: Path) -> Path:
    rows = [[kind, b, a] for a, b, _, _, kind in mails(100, 1)]
    return write_csv(tmp_path / "test.csv", ["kind", "links", "length"], rows)


@pytest.fixture
def model(cli: Cli, train_csv: Path, tmp_path: Path) -> Path:
    path = tmp_path / "model"
    result = cli(
        *("train", train_csv, "--label", "kind", "--classes", "ham,spam"),
        *("-k", 20, "--model", "naive-bayes", "--out", path),
    )
    assert result.code == 0, result.err
    return path
