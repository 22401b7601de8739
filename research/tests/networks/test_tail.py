"""Members on frozen features: the published network, many at once, each bit for bit alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from poisonproof import SSDPAClassifier
from poisonproof.exceptions import InvalidInputError
from poisonproof.networks.augmentation import Stream
from poisonproof.partition import PartitionedData, SortedIndex, sample_digests
from poisonproof_research.networks.tails import (
    Tail,
    TailLearner,
    normal_weights,
    third_block,
    windows,
)

K = 6
N = 72


@pytest.fixture(scope="module")
def learner(rotnet):
    return TailLearner(
        rotnet,
        epochs=3,
        batch_size=16,
        milestones=(2,),
        augmentation={"crop": 1},
        stack_width=4,
        vote_rows=32,
    )


def fitted(learner, images, labels):
    classifier = SSDPAClassifier(learner, n_partitions=K, classes=range(10))
    return classifier.fit(images[:N].reshape(N, -1), labels[:N])


@pytest.fixture(scope="module")
def classifier(learner, images, labels):
    return fitted(learner, images, labels)


def test_stacked_members_compute_what_the_plain_module_computes():
    torch.manual_seed(0)
    modules = [third_block() for _ in range(3)]
    names = [n for n in modules[0].state_dict() if "num_batches" not in n]
    state = {n: torch.stack([m.state_dict()[n] for m in modules]) for n in names}
    trained = Tail.parameter_names(state)
    for name in trained:
        state[name].requires_grad_(True)
    maps, counts = torch.randn(3, 5, 192, 4, 4), torch.tensor([5, 3, 0])
    tail = Tail(state, torch.float32)
    columns = windows(maps.flatten(0, 1)).view(3, 5, 16, -1)
    scores = tail.train_scores(columns, counts, counts > 0)
    loss = (scores[0] ** 2).sum() + (scores[1, :3] ** 2).sum()
    found = torch.autograd.grad(loss, [state[name] for name in trained])
    for lane, count in enumerate([5, 3]):
        plain = modules[lane].train()(maps[lane, :count])
        assert torch.allclose(plain, scores[lane, :count], atol=1e-5)
        (plain**2).sum().backward()
        for name, gradient in zip(trained, found, strict=True):
            expected = dict(modules[lane].named_parameters())[name].grad
            assert torch.allclose(gradient[lane], expected, atol=1e-4), name
        for name, value in modules[lane].named_buffers():
            if "num_batches" not in name:
                assert torch.allclose(state[name][lane], value, atol=1e-5), name
    assert all((state[n][2] == modules[2].state_dict()[n]).all() for n in names)
    with torch.no_grad():
        votes = tail.vote_scores(windows(maps[0]))
        assert torch.allclose(votes[1], modules[1].eval()(maps[0]), atol=1e-5)


def test_a_flipped_label_changes_one_member(learner, classifier, images, labels):
    flipped = labels.copy()
    flipped[7] = (flipped[7] + 1) % 10
    other = fitted(learner, images, flipped)
    before, after = classifier.ensemble_.digests(), other.ensemble_.digests()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_members_do_not_depend_on_stack_mates_or_order(learner, classifier, images, labels):
    order = np.random.default_rng(3).permutation(N)
    other = SSDPAClassifier(learner, n_partitions=K, classes=range(10))
    other.fit(images[:N][order].reshape(N, -1), labels[:N][order])
    assert other.ensemble_.digests() == classifier.ensemble_.digests()
    X = images[:N]
    where = SortedIndex(n_partitions=K).assign(X)
    parts = PartitionedData.build(X, labels[:N], where, sample_digests(X), K)
    alone = learner.fit_members(parts, [4], 10, 0)
    assert alone.digests() == classifier.ensemble_.digests()[4:5]


def test_votes_do_not_depend_on_the_other_samples(classifier, images):
    X = images[N : N + 50].reshape(50, -1)
    votes = classifier.votes(X)
    assert votes.shape == (50, K)
    assert np.array_equal(classifier.votes(X[9:10])[0], votes[9])


def test_a_partition_that_does_not_fit_its_lane_is_refused(rotnet, images, labels):
    narrow = TailLearner(rotnet, epochs=1, batch_size=16, lane_rows=8, augmentation={"crop": 1})
    with pytest.raises(InvalidInputError, match=r"has 12 rows, but lane_rows=8"):
        fitted(narrow, images, labels)


def test_normal_first_weights_have_the_published_spread():
    stream = Stream(0, torch.tensor([3, 8]))
    state = normal_weights(third_block(), stream)
    for name, spread in (("0.weight", 2 / (192 * 9)), ("3.weight", 2 / 192), ("11.weight", 0.2)):
        values = state[name]
        assert values.var().item() == pytest.approx(spread, rel=0.05)
        assert abs(values.mean().item()) < 4 * np.sqrt(spread / values.numel())
        assert not torch.equal(values[0], values[1])
        assert 2.5 < values.abs().max().item() / np.sqrt(spread) < 7
    assert not state["11.bias"].any()
    assert (state["1.weight"] == 1).all()
    alone = normal_weights(third_block(), Stream(0, torch.tensor([8])))
    assert all(torch.equal(alone[name][0], state[name][1]) for name in state)


def test_other_first_weights_make_other_members(learner, classifier, images, labels):
    from sklearn.base import clone

    normal = clone(learner).set_params(first_weights="normal")
    other = fitted(normal, images, labels).ensemble_
    assert not set(other.digests()) & set(classifier.ensemble_.digests())
    with pytest.raises(InvalidInputError, match="first_weights must be one of uniform, normal"):
        clone(learner).set_params(first_weights="zero").resolve((1, 8, 8), 10)
