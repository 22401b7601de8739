"""Command ``features refine``."""

from __future__ import annotations

import numpy as np
import pytest
from patterns import make_patterns

from poisonproof_research.cli import run
from poisonproof_research.reproduction import RowData, write_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    X, kinds = make_patterns(96)
    folder = tmp_path_factory.mktemp("pack")
    sums = X[:80].reshape(80, -1).sum(axis=1, dtype=np.int64)
    data = RowData("patterns", 4, X[:80], kinds[:80], X[80:], kinds[80:], sums)
    write_pack(data, folder)
    return str(folder)


def test_clusters_are_refined_resumed_and_shown_from_the_command_line(
    pack, features, tmp_path, capsys
):
    start, out = tmp_path / "map", tmp_path / "clusters"
    features.save(start)
    words = ["features", "refine", "clusters-cifar10", "--data", pack, "--start", str(start)]
    words += ["--device", "cpu", "--epochs", "3", "--out", str(out)]
    assert run([*words, "--stop-after", "2"]) == 0
    assert not (out / "clusters.safetensors").exists()
    assert run(words) == 0
    assert (out / "clusters.safetensors").exists()
    assert run(["features", "show", "--out", str(out)]) == 0
    assert "10 clusters of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"--start": None}, "--start DIR"),
        ({"--start": "nowhere"}, "features train"),
        ({"recipe": "simclr"}, "clusters-cifar10"),
    ],
)
def test_bad_input_is_one_line_and_code_2(changes, message, pack, tmp_path, capsys):
    options = {"--start": str(tmp_path)} | changes
    words = ["features", "refine", options.pop("recipe", "clusters-cifar10"), "--data", pack]
    words += ["--device", "cpu", "--out", str(tmp_path / "out")]
    for name, value in options.items():
        words += [] if value is None else [name, value]
    assert run(words) == 2
    assert message in capsys.readouterr().err
    assert np.all([not path.name.startswith("clusters") for path in tmp_path.rglob("*")])
