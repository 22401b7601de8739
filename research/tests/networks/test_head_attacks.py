"""Heads on views under hostile use: repeated images, updates, threads, infinite vectors."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from poisonproof import SSDPAClassifier
from poisonproof.networks import PretrainSpec, train_features
from poisonproof.partition import PartitionedData, SortedIndex, sample_digests
from poisonproof_research.networks.heads import HeadLearner, view_table

SIMCLR = PretrainSpec(
    "simclr", (1, 8, 8), epochs=1, batch_size=96, learning_rate=0.05, mean=(0.3,), std=(0.37,),
    width=8, map_rows=100, flip=True, smallest_view=0.4,
)  # fmt: skip
K = 10


@pytest.fixture(scope="module")
def simclr(images):
    found = train_features(images[:288], SIMCLR)
    assert found is not None
    return found


def heads(features):
    return HeadLearner(
        features, views=4, epochs=6, batch_size=20, milestones=(4,), stack_width=4, tile_rows=16,
        learning_rate=0.1,
    )  # fmt: skip


def classifier(features):
    return SSDPAClassifier(heads(features), n_partitions=K, classes=range(10))


def partitioned(images, labels, n=300):
    where = SortedIndex(n_partitions=K).assign(images[:n])
    return PartitionedData.build(images[:n], labels[:n], where, sample_digests(images[:n]), K)


def anew(features):
    return pickle.loads(pickle.dumps(features))


def test_a_flip_among_repeated_images_of_other_labels_reaches_one_member(simclr, images, labels):
    X = np.concatenate([images[:150], images[:60], images[:30]]).reshape(240, -1)
    y = np.concatenate([labels[:150], (labels[:60] + 1) % 10, labels[:30]])
    before = classifier(simclr).fit(X, y).ensemble_.digests()
    for row in (0, 155, 215, 100):
        flipped = y.copy()
        flipped[row] = (flipped[row] + 3) % 10
        after = classifier(simclr).fit(X, flipped).ensemble_.digests()
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1, row


def test_threads_that_share_features_train_the_same_members(simclr, images, labels):
    parts = partitioned(images, labels)
    expected = heads(anew(simclr)).fit_members(parts, range(K), 10, 0).digests()
    shared = anew(simclr)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(heads(shared).fit_members, parts, range(K), 10, 0) for _ in range(4)]
        assert all(one.result().digests() == expected for one in asked)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_vectors_that_are_not_finite_silence_their_own_member(simclr, images, labels, value):
    features, parts = anew(simclr), partitioned(images, labels)
    before = heads(features).fit_members(parts, range(K), 10, 0).digests()
    table = view_table(features, 4, 0)
    digest = table._digest(np.ascontiguousarray(images[parts.rows(4)[0]][None]))
    table._known[digest] = np.full_like(table._known[digest], value)
    found = heads(features).fit_members(parts, range(K), 10, 0)
    pairs = zip(before, found.digests(), strict=True)
    assert [place for place, (a, b) in enumerate(pairs) if a != b] == [4]
    assert list(found.failures()) == [4]
    assert (found.votes(images[:5])[:, 4] == -1).all()
