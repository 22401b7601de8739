"""A deep member keeps its bits whatever happens in the other partitions, at production shapes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from poisonproof.networks import TorchLearner
from poisonproof.networks.batches import Lanes
from tests.networks.partitions import partitioned, random_parts

N_CLASSES = 10


def insert(part):
    X, y = part
    return np.concatenate([X, X[:1] ^ 1]), np.concatenate([y, y[:1]])


def delete(part):
    X, y = part
    return X[1:], y[1:]


def enlarge(part):
    X, y = part
    return np.concatenate([X, X[::-1] ^ 3]), np.concatenate([y, y])


ATTACKS = {"insert": insert, "delete": delete, "enlarge": enlarge}


def fitted(learner, parts, shape, which=None, n_jobs=1):
    data = partitioned(parts, shape)
    which = range(len(parts)) if which is None else which
    return learner.fit_members(data, which, N_CLASSES, 7, n_jobs=n_jobs)


def changed(before, after, X):
    """Return the members that differ in weights or votes."""
    digests = np.array(before.digests()) != np.array(after.digests())
    votes = (before.votes(X) != after.votes(X)).any(axis=0)
    return set(np.flatnonzero(digests | votes).tolist())


def attacked(parts, attack):
    """Apply an attack to the largest partition, which padding to the longest would follow."""
    largest = max(range(len(parts)), key=lambda i: len(parts[i][1]))
    return [attack(p) if i == largest else p for i, p in enumerate(parts)], largest


class Setting:
    """A learner, its data, and the ensemble they give."""

    def __init__(self, learner, sizes, shape):
        self.learner, self.shape = learner, shape
        self.parts = random_parts(sizes, shape, N_CLASSES)
        self.X = random_parts([8], shape, seed=1)[0][0]
        self.ensemble = fitted(learner, self.parts, shape, n_jobs=2)


def nin(shape, sizes):
    augmentation = "crop" if shape[0] == 1 else "crop-flip"
    learner = TorchLearner("nin", augmentation=augmentation, epochs=1, vote_rows=8)
    return Setting(learner, sizes, shape)


@pytest.fixture(scope="module")
def nin28():
    return nin((1, 28, 28), (25, 81, 40))


@pytest.fixture(scope="module")
def nin32():
    return nin((3, 32, 32), (31, 73))


@pytest.fixture(scope="module")
def resnet32():
    """Two members on their way at once, of one and of two batch widths."""
    learner = TorchLearner(
        "resnet10", execution="graph", epochs=1, batch_size=32, augmentation="strong", mixup=0.2,
        stack_width=2, vote_rows=8,
    )  # fmt: skip
    return Setting(learner, (20, 41), (3, 32, 32))


@pytest.fixture(scope="module")
def stack():
    """Partitions of several batches each: lanes freeze at different steps."""
    learner = TorchLearner("mlp", hidden=(256,), epochs=1, input_scale=1 / 255, normalize="none")
    return Setting(learner, (400, 520, 700, 610, 480, 0, 3), (784,))


@pytest.mark.parametrize("attack", ["insert", "enlarge"])
def test_nin_28_keeps_every_other_member(nin28, attack):
    parts, touched = attacked(nin28.parts, ATTACKS[attack])
    after = fitted(nin28.learner, parts, nin28.shape, n_jobs=2)
    assert changed(nin28.ensemble, after, nin28.X) == {touched}


def test_nin_32_keeps_every_other_member(nin32):
    parts, touched = attacked(nin32.parts, delete)
    after = fitted(nin32.learner, parts, nin32.shape)
    assert changed(nin32.ensemble, after, nin32.X) == {touched}


@pytest.mark.parametrize("attack", ["insert", "delete"])
def test_resnet_on_tracks_keeps_every_other_member(resnet32, attack):
    parts, touched = attacked(resnet32.parts, ATTACKS[attack])
    after = fitted(resnet32.learner, parts, resnet32.shape)
    assert changed(resnet32.ensemble, after, resnet32.X) == {touched}


@pytest.mark.parametrize("attack", ATTACKS)
def test_stack_keeps_every_other_member(stack, attack):
    parts, touched = attacked(stack.parts, ATTACKS[attack])
    after = fitted(stack.learner, parts, stack.shape)
    assert changed(stack.ensemble, after, stack.X) == {touched}


def test_stack_member_keeps_its_bits_when_its_lane_moves(stack):
    order = [4, 6, 3, 0]
    moved = fitted(stack.learner, stack.parts, stack.shape, which=order)
    expected = [stack.ensemble.digests()[i] for i in order]
    assert moved.digests() == expected
    assert np.array_equal(moved.votes(stack.X), stack.ensemble.votes(stack.X)[:, order])


def test_stack_member_keeps_its_bits_under_another_split_into_launches(stack):
    alone = [
        fitted(stack.learner, stack.parts, stack.shape, which=[i]).digests()[0] for i in (0, 3, 6)
    ]
    assert alone == [stack.ensemble.digests()[i] for i in (0, 3, 6)]


def test_workers_only_schedule(nin28):
    order = [2, 0]
    serial = fitted(nin28.learner, nin28.parts, nin28.shape, which=order, n_jobs=1)
    assert serial.digests() == [nin28.ensemble.digests()[i] for i in order]


def test_the_check_finds_a_stack_tiled_by_the_longest_partition(stack):
    def leaky(parts):
        tile_rows = max(len(y) for _, y in parts) // 8
        learner = TorchLearner(**{**stack.learner.get_params(), "tile_rows": tile_rows})
        return fitted(learner, parts, stack.shape)

    parts, touched = attacked(stack.parts, enlarge)
    assert changed(leaky(stack.parts), leaky(parts), stack.X) > {touched}


def test_the_check_finds_nin_padded_to_the_longest_partition(nin28, monkeypatch):
    original = Lanes.batch

    def leaky(parts):
        longest = max(len(y) for _, y in parts)

        def padded(self, step, width):
            x, targets = original(self, step, width)
            black = torch.zeros(1, longest - width, *x.shape[2:])
            none = torch.zeros(1, longest - width, targets.shape[2])
            return torch.cat([x, black], dim=1), torch.cat([targets, none], dim=1)

        monkeypatch.setattr(Lanes, "batch", padded)
        return fitted(nin28.learner, parts, nin28.shape)  # other processes lack the patch

    parts, touched = attacked(nin28.parts[:2], insert)
    assert changed(leaky(nin28.parts[:2]), leaky(parts), nin28.X) > {touched}
