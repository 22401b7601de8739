"""Linear members on views of their images: each bit for bit alone, at k and shapes of real rows."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

from poisonproof import SSDPAClassifier
from poisonproof.exceptions import InvalidInputError, InvalidRowsError, MemberWarning
from poisonproof.networks import PretrainSpec, train_features
from poisonproof.partition import PartitionedData, SortedIndex, sample_digests
from poisonproof_research.networks.heads import HeadLearner, ViewTable

SIMCLR = PretrainSpec(
    "simclr", (1, 8, 8), epochs=25, batch_size=96, learning_rate=0.05, mean=(0.3,), std=(0.37,),
    width=8, map_rows=100, flip=True, smallest_view=0.4,
)  # fmt: skip
K, N = 30, 900
VIEWS = 6


@pytest.fixture(scope="module")
def simclr(images):
    found = train_features(images[:288], SIMCLR)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def learner(simclr):
    # 27 to 33 rows a member: batches of 20 are cut into tiles of 16, and neither is full.
    return HeadLearner(
        simclr, views=VIEWS, epochs=30, batch_size=20, milestones=(20,), stack_width=8,
        tile_rows=16, learning_rate=0.1,
    )  # fmt: skip


def parts_of(images, labels, n=N):
    where = SortedIndex(n_partitions=K).assign(images[:n])
    where[:12] = 3  # sizes differ, so that lanes wait for longer ones
    return PartitionedData.build(images[:n], labels[:n], where, sample_digests(images[:n]), K)


@pytest.fixture(scope="module")
def parts(images, labels):
    return parts_of(images, labels)


@pytest.fixture(scope="module")
def members(learner, parts):
    return learner.fit_members(parts, range(K), 10, 0)


def changed(before, after):
    pairs = zip(before.digests(), after.digests(), strict=True)
    return [place for place, (a, b) in enumerate(pairs) if a != b]


def test_flipped_labels_reach_the_member_of_their_partition_alone(
    learner, members, parts, images, labels
):
    flipped = labels.copy()
    rows = parts.rows(17)
    flipped[rows] = (flipped[rows] + 1) % 10
    after = learner.fit_members(parts_of(images, flipped), range(K), 10, 0)
    assert changed(members, after) == [17]
    asked = images[N : N + 150].reshape(150, -1)
    others = [place for place in range(K) if place != 17]
    assert np.array_equal(members.votes(asked)[:, others], after.votes(asked)[:, others])


def test_members_do_not_depend_on_stack_mates_order_or_rows_elsewhere(
    learner, members, parts, images, labels
):
    some = [21, 3, 4]
    again = learner.fit_members(parts, some, 10, 0)
    assert again.digests() == [members.digests()[place] for place in some]
    order = np.random.default_rng(3).permutation(N)
    where = parts.assignment[order]
    X, y = images[:N][order], labels[:N][order]
    mixed = PartitionedData.build(X, y, where, sample_digests(X), K)
    assert changed(members, learner.fit_members(mixed, range(K), 10, 0)) == []
    keep = where != 5
    fewer = PartitionedData.build(X[keep], y[keep], where[keep], sample_digests(X[keep]), K)
    assert changed(members, learner.fit_members(fewer, range(K), 10, 0)) == [5]


def test_members_learn(members, images, labels):
    votes = members.votes(images[N : N + 300].reshape(300, -1))
    assert (votes == labels[N : N + 300, None]).mean() > 0.4


def test_members_vote_on_images_as_they_are(members, simclr, images):
    asked = images[N : N + 40]
    vectors = simclr.transform(asked)
    weights = members.members[4].tensors
    scores = vectors @ weights["1.weight"].T + weights["1.bias"]
    assert np.array_equal(members.votes(asked)[:, 4], scores.argmax(axis=1))
    soft = np.exp(scores - scores.max(axis=1, keepdims=True))
    soft /= soft.sum(axis=1, keepdims=True)
    assert np.allclose(members.scores(asked)[:, 4], soft, atol=1e-5)


def test_votes_do_not_depend_on_the_other_samples(members, images):
    X = images[N : N + 150].reshape(150, -1)
    votes = members.votes(X)
    assert np.array_equal(members.votes(X[::-1]), votes[::-1])
    assert np.array_equal(members.votes(X[131:132])[0], votes[131])


def test_training_follows_a_loop_over_the_views_of_each_row(simclr, images, labels):
    """One member, one batch per epoch: the textbook's descent on the views that were drawn."""
    from poisonproof.networks.augmentation import Purpose, Stream, below

    one = HeadLearner(simclr, views=4, epochs=3, batch_size=64, milestones=(2,), stack_width=1)
    X, y = images[:40], labels[:40]
    parts = PartitionedData.build(X, y, np.zeros(40, np.int64), sample_digests(X), 1)
    none = clone(one).set_params(epochs=1, learning_rate=1e-30)
    first = none.fit_members(parts, [0], 10, 5).members[0].tensors
    weight, bias = (torch.from_numpy(first[name].copy()) for name in ("1.weight", "1.bias"))
    rows = parts.rows(0)
    views = torch.from_numpy(ViewTable(simclr, 4).vectors(X[rows])).float()
    stream, place = Stream(5, torch.zeros(1, dtype=torch.int64)), torch.arange(40)
    speed = [torch.zeros_like(weight), torch.zeros_like(bias)]
    for epoch in range(3):
        shown = below(stream.words(Purpose.VIEW, epoch, place)[0, :, 0], 4)
        values = [weight.requires_grad_(), bias.requires_grad_()]
        scores = views[place, shown] @ weight.T + bias
        loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y[rows]))
        slopes = torch.autograd.grad(loss, values)
        speed = [0.9 * old + new for old, new in zip(speed, slopes, strict=True)]
        rate = 0.2 if epoch >= 2 else 1.0
        weight, bias = (v.detach() - rate * s for v, s in zip(values, speed, strict=True))
    found = one.fit_members(parts, [0], 10, 5).members[0].tensors
    assert np.allclose(found["1.weight"], weight.numpy(), atol=1e-4)
    assert np.allclose(found["1.bias"], bias.numpy(), atol=1e-4)


def test_views_do_not_depend_on_company_order_or_what_came_before(simclr, images):
    together = ViewTable(simclr, VIEWS).vectors(images[:130])
    assert together.shape == (130, VIEWS, 64)
    assert together.dtype == np.float16
    table = ViewTable(simclr, VIEWS)
    for row in (129, 0, 57):
        assert np.array_equal(table.vectors(images[row : row + 1])[0], together[row])
    assert np.array_equal(table.vectors(images[:130][::-1]), together[::-1])
    assert len(table) == 130
    twice = ViewTable(simclr, VIEWS).vectors(images[[4, 9, 4]])
    assert np.array_equal(twice, together[[4, 9, 4]])
    more = ViewTable(simclr, VIEWS + 5).vectors(images[:7])
    assert np.array_equal(more[:, :VIEWS], together[:7])


def test_views_follow_pixels_and_seed(simclr, images):
    table = ViewTable(simclr, VIEWS)
    touched = images[:1].copy()
    touched[0, 3, 3] ^= 1
    before, after = table.vectors(images[:1]), table.vectors(touched)
    # One bit of one pixel: other frames, not almost the same vectors.
    assert (
        np.abs(before - after).max()
        > 20 * np.abs(simclr.transform(images[:1]) - simclr.transform(touched)).max()
    )
    assert not np.array_equal(ViewTable(simclr, VIEWS, seed=1).vectors(images[:1]), before)


def test_weights_of_the_features_cannot_change_under_what_is_kept(simclr):
    for frozen in (simclr, pickle.loads(pickle.dumps(simclr))):
        for array in frozen.tensors.values():
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0


def test_an_empty_partition_abstains(learner, images, labels):
    classifier = SSDPAClassifier(learner, n_partitions=6, classes=range(10))
    with pytest.warns(MemberWarning, match="2 members have no rows"):
        classifier.fit(images[:4].reshape(4, -1), labels[:4])
    votes = classifier.votes(images[N : N + 2].reshape(2, -1))
    assert (votes[:, 4:] == -1).all()
    assert (votes[:, :4] >= 0).all()


def test_pixels_that_are_not_whole_silence_their_own_member(learner, members, parts, images):
    X = images[:N].astype(np.float64)
    X[parts.rows(6)[0], 0, 0] = 0.5
    strange = replace(parts, X=X)
    found = learner.fit_members(strange, range(K), 10, 0)
    assert changed(members, found) == [6]
    assert "integer pixels" in found.failures()[6]


def test_maps_and_other_images_are_refused(rotnet, simclr, images, labels):
    with pytest.raises(InvalidInputError, match="TailLearner"):
        ViewTable(rotnet)
    with pytest.raises(InvalidInputError, match="method 'rotnet'"):
        HeadLearner(rotnet).resolve((1, 8, 8), 10)
    with pytest.raises(InvalidInputError, match="views must be at least 1, got 0"):
        ViewTable(simclr, 0)
    with pytest.raises(InvalidInputError, match="views must be at least 1, got 0"):
        HeadLearner(simclr, views=0).resolve((1, 8, 8), 10)
    with pytest.raises(InvalidRowsError, match="uint8"):
        ViewTable(simclr).vectors(images[:2].astype(np.float32))
    with pytest.raises(InvalidRowsError, match="shape"):
        ViewTable(simclr).vectors(images[:2, :7])
    with pytest.raises(InvalidInputError, match="does not fit samples"):
        SSDPAClassifier(HeadLearner(simclr), n_partitions=3, classes=range(10)).fit(
            images[:30, :7].reshape(30, -1), labels[:30]
        )
