"""SS-DPA rows of linear members on views: rows on the same images share what was mapped."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapes import make_data, save_features, write_ssdpa_recipes

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks import PretrainSpec
from poisonproof_research.cli import run
from poisonproof_research.networks.heads import ViewTable
from poisonproof_research.reproduction import (
    Options,
    evaluate,
    load_recipes,
    read_result,
    run_row,
    write_pack,
)
from poisonproof_research.reproduction.page import write_report

LEARNER = """
[learner.head]
kind = "head"
network = "linear-on-views"
views = 4
epochs = 40
batch_size = 16
learning_rate = 0.1
milestones = [30]
gamma = 0.2
stack_width = 5
deviations = ["It is small."]
"""
ROWS = [
    ("12", "table1", 12, "partition"),
    ("6", "table1", 6, "partition"),
    ("12-oneseed", "table3", 12, "shared"),
]
SPEC = PretrainSpec(
    "simclr", (1, 6, 6), epochs=10, batch_size=48, learning_rate=0.05, width=8, map_rows=64,
    smallest_view=0.5,
)  # fmt: skip
NAMES = ("shapes-ssdpa-12", "shapes-ssdpa-6", "shapes-ssdpa-12-oneseed")


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return save_features(tmp_path_factory.mktemp("features"), SPEC)


@pytest.fixture(scope="module")
def recipes_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    return write_ssdpa_recipes(folder, LEARNER, ROWS, learner="head", features="simclr-shapes")


@pytest.fixture
def mapped(monkeypatch):
    """Numbers of images that were mapped, launch after launch."""
    counts = []
    usual = ViewTable._mapped

    def counted(self, images, digests):
        counts.append(len(images))
        return usual(self, images, digests)

    monkeypatch.setattr(ViewTable, "_mapped", counted)
    return counts


def test_rows_made_by_one_command_map_every_image_once(
    features, recipes_folder, tmp_path, mapped, capsys
):
    data, out = make_data(), tmp_path / "results"
    write_pack(data, tmp_path / "pack")
    words = ["reproduce", "--rows", ",".join(NAMES), "--device", "cpu", "--out", str(out)]
    words += ["--data", str(tmp_path / "pack"), "--features", str(features)]
    assert run([*words, "--recipes", str(recipes_folder)]) == 0
    assert sum(mapped) == len(np.unique(data.x_train, axis=0)) == 240
    recipes = load_recipes(recipes_folder)
    for name in NAMES:
        result = read_result(out / name)
        assert result.is_complete
        assert result.origin["specification"]["views"] == 4
        assert result.origin["features"]["name"] == "simclr-shapes"
        assert result.threat == "label_flip"
        assert evaluate(result).clean > 50
        # The same row alone, on features read again.
        alone = run_row(recipes[name], data, tmp_path / "alone", Options("cpu", features=features))
        assert np.array_equal(alone.digests, result.digests)
        assert np.array_equal(alone.counts, result.counts)
        if result.votes is not None:
            assert np.array_equal(alone.votes, result.votes)
    write_report(recipes, out, tmp_path / "docs")
    assert "`simclr-shapes`" in (tmp_path / "docs" / "reproduction.md").read_text()


def test_results_of_members_without_views_are_refused(features, recipes_folder, tmp_path):
    recipes = load_recipes(recipes_folder)
    recipe = recipes[NAMES[0]]
    plain = {"kind": "torch", "network": "linear", "seed_rule": "partition", "epochs": 2}
    other = dataclasses.replace(recipe, learner={**plain, "batch_size": 16})
    run_row(other, make_data(), tmp_path, Options("cpu", features=features))
    with pytest.raises(InvalidInputError, match="network is 'linear', not 'linear-on-views'"):
        write_report(recipes, tmp_path, tmp_path / "docs")
    with pytest.raises(InvalidInputError, match="result of shapes-ssdpa-12"):
        run_row(recipe, make_data(), tmp_path, Options("cpu", features=features))
