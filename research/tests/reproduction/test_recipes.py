"""The recipes that ship are the rows of the paper, with its numbers."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from shapes import write_recipes

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks import FrozenNetwork
from poisonproof_research.networks.refine_spec import PUBLISHED, published
from poisonproof_research.reproduction import (
    data_from_cache,
    load_recipes,
    make_partitions,
    select_rows,
)
from poisonproof_research.reproduction.learner import make_learner


@pytest.fixture
def rotnet_shape():
    """A map that has a specification and no weights."""
    return FrozenNetwork(published("rotnet-mnist"), {}, {})


def test_all_sixteen_dpa_rows_are_there():
    recipes = load_recipes()
    tables = Counter(recipe.table for recipe in recipes.values() if recipe.method == "dpa")
    assert tables == {"table1": 7, "table3": 7, "table4": 2}
    assert all(recipe.id == name for name, recipe in recipes.items())


@pytest.mark.parametrize("data", ["mnist", "cifar10", "gtsrb"])
def test_every_ss_dpa_row_is_there_with_sorted_hashed_and_one_seed_partitions(data):
    rows = [r for r in load_recipes().values() if r.method == "ss-dpa" and r.data.name == data]
    by_table = {
        table: [r.n_partitions for r in rows if r.table == table]
        for table in ("table1", "table2", "table3")
    }
    assert by_table["table1"] == by_table["table2"] == by_table["table3"] != []
    for row in rows:
        assert row.partitioner == ("pixel_sum" if row.table == "table2" else "sorted")
        assert row.learner["seed_rule"] == ("shared" if row.table == "table3" else "partition")
        assert row.features in PUBLISHED


def test_ss_dpa_members_on_mnist_have_the_published_schedule(rotnet_shape):
    recipe = load_recipes()["mnist-ssdpa-1200-hash"]
    learner = make_learner(recipe, "cpu", rotnet_shape)
    spec = learner.resolve((1, 28, 28), 10)
    assert (spec.schedule.epochs, spec.schedule.batch_size, spec.lane_rows) == (100, 128, 88)
    rates = [spec.schedule.rate(epoch, 0, 1) for epoch in (0, 35, 36, 70, 71, 85, 86, 99)]
    assert rates == pytest.approx([0.1, 0.1, 0.02, 0.02, 0.004, 0.004, 0.0008, 0.0008])
    assert spec.schedule.augmentation.crop == 4
    assert spec.schedule.normalize == "none"


@pytest.mark.parametrize("name", [r.id for r in load_recipes().values() if r.method == "dpa"])
def test_every_row_trains_the_published_network_with_the_published_schedule(name):
    recipe = load_recipes()[name]
    learner = make_learner(recipe, "cpu")
    spec = learner.resolve(tuple(recipe.learner["image_shape"]), recipe.data.n_classes)
    on_cuda = make_learner(recipe, "cuda").resolve(spec.input_shape, spec.n_classes)
    assert on_cuda.execution == "fused"
    assert (spec.network, spec.epochs, spec.batch_size) == ("nin", 200, 128)
    assert (spec.learning_rate, spec.momentum, spec.nesterov) == (0.1, 0.9, True)
    assert spec.weight_decay == 5e-4
    rates = [spec.rate(epoch, 0, 1) for epoch in (0, 60, 61, 120, 121, 160, 161, 199)]
    expected = [0.1, 0.1, 0.02, 0.02, 0.004, 0.004, 0.0008, 0.0008]
    assert rates == pytest.approx(expected)
    assert spec.augmentation.crop == 4
    assert spec.augmentation.flip == (recipe.data.name == "cifar10")
    assert spec.normalize == "channel"
    assert spec.seed_rule == ("shared" if recipe.table == "table3" else "partition")


@pytest.mark.parametrize(
    ("table", "rows", "words"),
    [
        ("table9", (), "no 'table9'; known are table1, table2, table3, table4"),
        ("table1", ("mnist-dpa-1",), "no row 'mnist-dpa-1' in table1"),
        ("table4", ("mnist-dpa-1200",), "no row 'mnist-dpa-1200' in table4"),
    ],
)
def test_a_wrong_name_is_answered_with_the_known_ones(table, rows, words):
    with pytest.raises(InvalidInputError, match=words):
        select_rows(load_recipes(), table, rows)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("[learner.small]", "[learner.big]", "small is missing"),
        ("seed = 0", "sed = 0", "sed"),
        ("[data]", "[data", "shapes.toml is wrong"),
        ("shapes-dpa-12-oneseed", "shapes-dpa-12", "two rows"),
    ],
)
def test_a_recipe_file_with_a_mistake_is_refused_by_name(tmp_path, data, before, after, words):
    path = write_recipes(tmp_path / "r", data) / "shapes.toml"
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(InvalidInputError, match=words):
        load_recipes(path.parent)


def test_partitions_of_other_sizes_than_published_are_refused(tmp_path, data):
    folder = write_recipes(tmp_path / "r", data, smallest=1)
    recipe = load_recipes(folder)["shapes-dpa-12"]
    with pytest.raises(InvalidInputError, match=r"published are 1 to .*Nothing was trained"):
        make_partitions(recipe, data)


@pytest.mark.mnist
@pytest.mark.parametrize("name", ["mnist", "cifar10", "gtsrb", "gtsrb-equalized"])
def test_the_published_data_falls_into_the_published_partitions(name):
    cache = os.environ.get("POISONPROOF_CACHE")
    if cache is None or not (Path(cache) / name.removesuffix("-equalized")).exists():
        pytest.skip(f"POISONPROOF_CACHE names no folder with {name}")
    data = data_from_cache(name)
    for recipe in load_recipes().values():
        if recipe.data.name == name:
            data.check(recipe.data)
            _, parts = make_partitions(recipe, data)
            assert parts.n_rows == recipe.data.n_train
