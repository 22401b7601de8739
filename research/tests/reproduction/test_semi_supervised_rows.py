"""SS-DPA rows: features first, then members, certified against flipped labels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from shapes import make_data, save_features, write_ssdpa_recipes
from sklearn.datasets import load_digits

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks import PretrainSpec
from poisonproof_research.cli import run
from poisonproof_research.reproduction import (
    Options,
    RowData,
    certify_result,
    data_from_pack,
    evaluate,
    load_recipes,
    make_partitions,
    read_result,
    run_row,
    write_pack,
)
from poisonproof_research.reproduction.page import write_report

K = 12
LEARNER = """
[learner.tail]
kind = "tail"
network = "nin-tail"
epochs = 2
batch_size = 32
milestones = [1]
augmentation = { crop = 1 }
stack_width = 4
deviations = ["It is small."]
"""
ROWS = [("12", "table1", K, "partition")]
SPEC = PretrainSpec("rotnet", (1, 6, 6), epochs=1, batch_size=32, crop=1, map_rows=32)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return save_features(tmp_path_factory.mktemp("features"), SPEC)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    names = {"learner": "tail", "features": "rotnet-shapes"}
    return load_recipes(write_ssdpa_recipes(folder, LEARNER, ROWS, **names))


@pytest.fixture(scope="module")
def recipe(recipes):
    return recipes["shapes-ssdpa-12"]


@pytest.fixture(scope="module")
def results(recipe, features, tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    run_row(recipe, make_data(), out, Options(device="cpu", features=features))
    return out


def test_a_row_is_certified_against_flipped_labels_and_names_its_features(recipe, results):
    result = read_result(results / recipe.id)
    assert result.is_complete
    assert certify_result(result).threat.name == "label_flip"
    about = result.origin["features"]
    assert (about["name"], about["epochs"]) == ("rotnet-shapes", 1)
    assert len(about["sha256"]) == 64
    assert set(result.sizes.tolist()) == {20}
    assert 0 <= evaluate(result).clean <= 100


def test_a_row_in_pieces_is_the_same_row(recipe, features, results, tmp_path):
    some = Options(device="cpu", features=features, members=range(5))
    run_row(recipe, make_data(), tmp_path, some)
    again = run_row(recipe, make_data(), tmp_path, Options(device="cpu", features=features))
    whole = read_result(results / recipe.id)
    assert np.array_equal(again.digests, whole.digests)
    assert np.array_equal(again.votes, whole.votes)


def test_features_of_other_samples_are_refused(recipe, features, tmp_path):
    data = make_data()
    changed = data.x_train.copy()
    changed[0, 0, 0] ^= 1
    other = dataclasses.replace(data, x_train=changed)
    facts = dataclasses.replace(recipe.data, sha256=other.digest)
    moved = dataclasses.replace(recipe, data=facts)
    with pytest.raises(InvalidInputError, match="learned from other samples"):
        run_row(moved, other, tmp_path, Options(device="cpu", features=features))
    assert not (tmp_path / recipe.id).exists()


def test_flipped_labels_leave_the_features_valid_and_touch_their_own_members(
    recipe, features, results, tmp_path
):
    data = make_data()
    flipped = data.y_train.copy()
    flipped[:2] = (flipped[:2] + 1) % 3
    other = dataclasses.replace(data, y_train=flipped)
    facts = dataclasses.replace(recipe.data, sha256=other.digest)
    moved = dataclasses.replace(recipe, data=facts)
    after = run_row(moved, other, tmp_path, Options(device="cpu", features=features))
    before = read_result(results / recipe.id)
    changed = (before.digests != after.digests).any(axis=1)
    assert 1 <= changed.sum() <= 2


def test_the_page_speaks_of_flipped_labels_and_pretraining(recipes, results, tmp_path):
    write_report(recipes, results, tmp_path)
    page = (tmp_path / "reproduction.md").read_text()
    assert "label flips" in page
    assert "`rotnet-shapes`" in page
    assert "figure-9b.svg" in page


def test_features_are_trained_resumed_and_shown_from_the_command_line(tmp_path, capsys):
    pack, out = tmp_path / "pack", tmp_path / "map"
    digits = (load_digits().images[:52] * 15).astype(np.uint8)
    images = np.pad(digits, ((0, 0), (10, 10), (10, 10)))
    sums = images[:40].reshape(40, -1).sum(axis=1, dtype=np.int64)
    y = load_digits().target[:52].astype(np.int64)
    write_pack(RowData("mnist", 10, images[:40], y[:40], images[40:], y[40:], sums), pack)
    words = ["features", "train", "rotnet-mnist", "--data", str(pack)]
    words += ["--out", str(out), "--device", "cpu", "--epochs", "2"]
    assert run([*words, "--stop-after", "1"]) == 0
    assert not (out / "features.safetensors").exists()
    assert run(words) == 0
    assert run(["features", "show", "--out", str(out)]) == 0
    assert "2 epochs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["features", "train", "rotnet-mnist"], "--out DIR"),
        (["features", "grow", "rotnet-mnist", "--out", "x"], "train, refine, show"),
        (["features", "show", "--out", "nowhere"], "features train"),
    ],
)
def test_bad_input_is_one_line_and_code_2(words, message, capsys):
    assert run(words) == 2
    assert message in capsys.readouterr().err


def test_linear_members_stand_on_the_features_of_images(recipe, features, tmp_path):
    linear = {
        "kind": "torch",
        "network": "linear",
        "epochs": 60,
        "batch_size": 16,
        "learning_rate": 0.01,
        "normalize": "partition",
        "seed_rule": "partition",
    }
    heads = dataclasses.replace(recipe, learner=linear)
    result = run_row(heads, make_data(), tmp_path, Options(device="cpu", features=features))
    assert result.origin["specification"]["input_shape"] == [192 * 2 * 2]
    assert result.threat == "label_flip"
    assert evaluate(result).clean > 50


def test_resized_images_need_the_order_of_the_published_ones(recipe, tmp_path):
    data = make_data()
    resized = dataclasses.replace(
        recipe, data=dataclasses.replace(recipe.data, resized=True), features=""
    )
    with pytest.raises(InvalidInputError, match="Import or pack the dataset again"):
        make_partitions(resized, data)
    ranks = np.arange(240)[::-1].copy()
    ordered = dataclasses.replace(data, ranks=ranks)
    write_pack(ordered, tmp_path)
    back = data_from_pack(tmp_path)
    assert back.digest == data.digest
    _, parts = make_partitions(resized, back)
    assert np.array_equal(parts.sizes, np.full(K, 20))
