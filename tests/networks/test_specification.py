"""The specification: frozen, digestible, complete."""

from __future__ import annotations

import dataclasses
import json

import pytest

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks import Augmentation, NetworkSpec

BASE = NetworkSpec(
    "nin", (1, 28, 28), 10, execution="single", device="cuda", milestones=(61, 121, 161)
)
OTHERS = {
    "network": "nin4",
    "input_shape": (1, 32, 32),
    "n_classes": 11,
    "hidden": (65,),
    "width": 65,
    "epochs": 201,
    "batch_size": 64,
    "learning_rate": 0.2,
    "momentum": 0.8,
    "nesterov": False,
    "weight_decay": 0.0,
    "schedule": "cosine",
    "milestones": (60, 120, 160),
    "gamma": 0.1,
    "warmup_epochs": 1,
    "mixup": 0.1,
    "augmentation": Augmentation(crop=4),
    "normalize": "channel",
    "input_scale": 0.5,
    "seed_rule": "shared",
    "stack_width": 16,
    "tile_rows": 32,
    "dtype": "bfloat16",
    "device": "cpu",
    "threads": 2,
    "vote_rows": 64,
    "mirrored_votes": True,
    "version": 2,
}


def test_round_trips_through_json_text():
    spec = dataclasses.replace(BASE, augmentation=Augmentation(crop=4, flip=True))
    read = NetworkSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert read == spec
    assert read.digest() == spec.digest()


@pytest.mark.parametrize("name", OTHERS)
def test_every_field_changes_the_digest(name):
    assert dataclasses.replace(BASE, **{name: OTHERS[name]}).digest() != BASE.digest()


def test_no_field_is_left_out_of_the_digest_test():
    names = {field.name for field in dataclasses.fields(NetworkSpec)}
    assert names - set(OTHERS) == {"execution", "factory"}


def test_a_foreign_field_is_refused():
    with pytest.raises(InvalidInputError, match="no field colour"):
        NetworkSpec.from_json({**BASE.to_json(), "colour": 1})
    with pytest.raises(InvalidInputError, match="no field optimizer"):
        NetworkSpec.from_json({**BASE.to_json(), "optimizer": "adamw"})


def test_all_problems_are_reported_at_once():
    with pytest.raises(InvalidInputError, match=r"epochs.*learning_rate.*needs images"):
        NetworkSpec("nin", (784,), 10, execution="single", epochs=0, learning_rate=-1.0)


def test_the_published_rates_last_61_60_40_39_epochs():
    rates = [BASE.rate(epoch, 0, 1) for epoch in range(200)]
    assert rates[:61] == [0.1] * 61
    assert rates[61] == pytest.approx(0.02)
    assert rates[121] == pytest.approx(0.004)
    assert rates[199] == pytest.approx(0.0008)


def test_warm_up_rises_and_cosine_falls():
    spec = dataclasses.replace(BASE, schedule="cosine", warmup_epochs=2, epochs=10)
    rates = [spec.rate(epoch, step, 4) for epoch in range(10) for step in range(4)]
    assert rates[0] == pytest.approx(0.1 / 8)
    assert rates[7] == pytest.approx(0.1)
    assert rates[8:] == sorted(rates[8:], reverse=True)


def test_negative_augmentation_is_refused():
    with pytest.raises(InvalidInputError, match="crop"):
        Augmentation(crop=-1)
