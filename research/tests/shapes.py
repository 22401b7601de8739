"""A tiny dataset, recipes for it, and results made from it by the real code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from poisonproof.networks import PretrainSpec, train_features
from poisonproof_research.reproduction import Recipe, RowData, load_recipes, write_pack

K = 12
CLASSES = 3

RECIPES = """
[data]
name = "shapes"
title = "Shapes"
n_train = {n_train}
n_test = {n_test}
n_classes = 3
sha256 = "{sha256}"
figure = "9a"

[learner.small]
kind = "torch"
image_shape = [1, 6, 6]
network = "mlp"
hidden = [8]
epochs = {epochs}
batch_size = 8
learning_rate = 0.05
milestones = [4]
augmentation = {{ crop = 1 }}
normalize = "partition"
stack_width = 1
deviations = ["It is small."]

[[row]]
id = "shapes-dpa-12"
table = "table1"
method = "dpa"
partitioner = "pixel_sum"
n_partitions = 12
partition_sizes = [{smallest}, {largest}]
learner = "small"
seed = 0
seed_rule = "partition"
[row.paper]
clean = 90.0
base = 70.0
median = 4
minutes = 0.5

[[row]]
id = "shapes-dpa-12-oneseed"
table = "table3"
method = "dpa"
partitioner = "pixel_sum"
n_partitions = 12
partition_sizes = [{smallest}, {largest}]
learner = "small"
seed = 0
seed_rule = "shared"
[row.paper]
clean = 90.0
base = 70.0
"""

SSDPA_DATA = """
[data]
name = "shapes"
title = "Shapes"
n_train = 240
n_test = 60
n_classes = 3
sha256 = "{sha256}"
figure = "9b"
"""
SSDPA_ROW = """
[[row]]
id = "shapes-ssdpa-{name}"
table = "{table}"
method = "ss-dpa"
partitioner = "sorted"
n_partitions = {k}
partition_sizes = [{size}, {size}]
learner = "{learner}"
features = "{features}"
seed = 0
seed_rule = "{rule}"
[row.paper]
clean = 90.0
base = 70.0
median = 4
minutes = 0.5
"""


def make_data(n_train: int = 240, n_test: int = 60) -> RowData:
    """Return gray images whose bright third tells the class."""
    rng = np.random.default_rng(0)

    def split(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, CLASSES, n)
        x = rng.integers(0, 120, (n, 6, 6))
        for label in range(CLASSES):
            x[y == label, 2 * label : 2 * label + 2] += 100
        return x.astype(np.uint8), y.astype(np.int64)

    (x_train, y_train), (x_test, y_test) = split(n_train), split(n_test)
    sums = x_train.reshape(n_train, -1).sum(axis=1, dtype=np.int64)
    return RowData("shapes", CLASSES, x_train, y_train, x_test, y_test, sums)


def write_recipes(folder: Path, data: RowData, *, epochs: int = 6, **changes: object) -> Path:
    """Write recipe files for `data`."""
    sizes = np.bincount(data.sums % K, minlength=K)
    values = {
        "n_train": len(data.y_train),
        "n_test": len(data.y_test),
        "sha256": data.digest,
        "epochs": epochs,
        "smallest": sizes.min(),
        "largest": sizes.max(),
        **changes,
    }
    folder.mkdir(exist_ok=True)
    (folder / "shapes.toml").write_text(RECIPES.format(**values))
    return folder


def write_ssdpa_recipes(
    folder: Path, section: str, rows: Sequence[tuple[str, str, int, str]], **names: str
) -> Path:
    """Write a recipe file with the section of a learner, and rows (name, table, k, seed rule)."""
    text = SSDPA_DATA.format(sha256=make_data().digest) + section
    for name, table, k, rule in rows:
        text += SSDPA_ROW.format(name=name, table=table, k=k, size=240 // k, rule=rule, **names)
    (folder / "shapes-ssdpa.toml").write_text(text)
    return folder


def save_features(folder: Path, spec: PretrainSpec) -> Path:
    """Write features of the training images to a folder, named by their method."""
    train_features(make_data().x_train, spec).save(folder / f"{spec.method}-shapes")
    return folder


@pytest.fixture(scope="session")
def data() -> RowData:
    return make_data()


@pytest.fixture
def recipes_folder(tmp_path: Path, data: RowData) -> Path:
    return write_recipes(tmp_path / "recipes", data)


@pytest.fixture
def recipe(recipes_folder: Path) -> Recipe:
    return load_recipes(recipes_folder)["shapes-dpa-12"]


@pytest.fixture
def pack(tmp_path: Path, data: RowData) -> Path:
    write_pack(data, tmp_path / "pack", largest=3000)
    return tmp_path / "pack"
