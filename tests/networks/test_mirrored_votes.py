"""Members that look at a sample and at its mirror image."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks import NetworkSpec, TorchLearner
from poisonproof.networks.ensemble import restore_members
from tests.networks.partitions import partitioned, random_parts

LEARNERS = {
    "graph": {"network": "resnet10", "width": 4, "execution": "graph"},
    "single": {"network": "resnet10", "width": 4, "execution": "single"},
    "stacked": {"network": "mlp", "hidden": (8,), "execution": "stacked"},
}


SHAPE = (3, 8, 8)


@pytest.fixture(scope="module")
def images():
    return random_parts([40], SHAPE, seed=1)[0][0]


def members(name, **changes):
    options = {"epochs": 2, "batch_size": 16, "stack_width": 2, "vote_rows": 16}
    learner = TorchLearner(**LEARNERS[name], **options, image_shape=SHAPE, **changes)
    return learner.fit_members(
        partitioned(random_parts((30, 18, 32), SHAPE), SHAPE), range(3), 10, 0
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_an_image_and_its_mirror_image_get_the_same_scores(images, name):
    mirror = images[..., ::-1]
    asked = members(name, mirrored_votes=True)
    assert np.array_equal(asked.scores(images), asked.scores(mirror))
    assert np.array_equal(asked.votes(images), asked.votes(mirror))
    plain = members(name)
    assert not np.array_equal(plain.scores(images), plain.scores(mirror))


def test_votes_follow_the_mean_of_both_scores_and_training_is_the_same(images):
    plain, mirrored = members("single"), members("single", mirrored_votes=True)
    for one, other in zip(plain.members, mirrored.members, strict=True):
        assert one.digest() == other.digest()
    both = np.log([plain.scores(images), plain.scores(images[..., ::-1])]).mean(axis=0)
    assert np.array_equal(mirrored.votes(images), both.argmax(axis=2))


def test_it_is_part_of_the_specification_and_travels_with_the_members(images):
    mirrored = members("graph", mirrored_votes=True)
    back = restore_members(*mirrored.export())
    assert back.spec.mirrored_votes
    assert np.array_equal(back.votes(images), mirrored.votes(images))
    assert mirrored.spec.digest() != members("graph").spec.digest()


def test_specifications_without_it_read_as_they_were_written():
    spec = NetworkSpec("nin", (1, 28, 28), 10, execution="single")
    assert "mirrored_votes" not in spec.to_json()
    assert NetworkSpec.from_json(spec.to_json()) == spec
    assert "mirrored_votes" not in TorchLearner("mlp").specification()


def test_vectors_have_no_mirror_image():
    with pytest.raises(InvalidInputError, match="mirrored_votes needs images"):
        NetworkSpec("mlp", (5,), 3, mirrored_votes=True)
