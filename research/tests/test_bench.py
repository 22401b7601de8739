"""Command ``bench``: real images through the whole path."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from poisonproof_research.cli import run


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """scikit-learn's digits as a dataset of 28 x 28 images under the name mnist."""
    monkeypatch.setenv("POISONPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    small, labels = load_digits(return_X_y=True)
    images = np.zeros((len(small), 28, 28), dtype=np.uint8)
    images[:, 2:26, 2:26] = small.reshape(-1, 8, 8).repeat(3, 1).repeat(3, 2) * 15
    (tmp_path / "source").mkdir()
    np.savez(
        tmp_path / "source" / "mnist.npz",
        x_train=images[:1500],
        y_train=labels[:1500].astype(np.uint8),
        x_test=images[1500:],
        y_test=labels[1500:].astype(np.uint8),
    )
    assert run(["data", "mnist", "--from", str(tmp_path / "source"), "--unpublished"]) == 0
    return tmp_path


def test_a_bench_trains_and_certifies_every_k_and_writes_the_figures(
    digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = digits / "bench.json"
    assert run(["bench", "mnist", "-k", "19", "-k", "41", "--out", str(out)]) == 0
    few, many = json.loads(out.read_text())["runs"]
    assert (few["k"], many["k"]) == (19, 41)
    assert few["clean_accuracy"] > 0.9
    assert few["median_radius"] <= 9 < many["median_radius"] <= 20
    assert "Paper" in capsys.readouterr().out


def test_a_dataset_that_is_not_imported_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "mnist", "--cache", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "python -m poisonproof_research data mnist" in error
