"""Members on learned maps, and refined clusters, on a CUDA device; run with ``pytest -m gpu``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.datasets import load_digits

from poisonproof.networks import FrozenNetwork, PretrainSpec, train_features
from poisonproof.networks.pretraining.loop import RunLimits
from poisonproof.partition import PartitionedData, sample_digests
from poisonproof_research.networks.heads import HeadLearner, ViewTable
from poisonproof_research.networks.refine_spec import RefineSpec, published
from poisonproof_research.networks.refining import refine_clusters
from poisonproof_research.networks.tails import TailLearner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch's compiler warns of itself: of what it imports, and of what could be faster.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return images of 28 x 28 bytes and their labels."""
    X, y = load_digits(return_X_y=True)
    coarse = (X * 15).astype(np.uint8).reshape(-1, 8, 8)
    return np.pad(coarse.repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2))), y


def specification(name: str, engine: str) -> PretrainSpec:
    spec = published(name, epochs=3, batch_size=64, device="cuda", dtype="bfloat16", engine=engine)
    rate = 0.05 if spec.method == "rotnet" else 0.01
    return replace(spec, learning_rate=rate, warmup_epochs=0, milestones=(), map_rows=128)


def samples(spec: PretrainSpec, n: int) -> np.ndarray:
    channels, side = spec.input_shape[0], spec.input_shape[1]
    gray = np.pad(digits()[0][:n], ((0, 0), (0, side - 28), (0, side - 28)))
    return np.repeat(gray[:, None], channels, axis=1)


@pytest.mark.parametrize("engine", ["eager", "compiled"])
def test_refined_clusters_have_the_same_bits_after_a_stop(engine, tmp_path):
    spec = specification("simclr-cifar10", engine)
    X = samples(spec, 256)
    features = train_features(X, spec)
    clusters = RefineSpec(
        4,
        random_starts=2,
        head_epochs=2,
        agreement_epochs=2,
        agreement_batch=64,
        label_epochs=2,
        label_batch=64,
        smallest_share=0.0,
    )
    whole = refine_clusters(X, features, clusters)
    for done in (1, 3):
        limits = RunLimits(stop_after=done)
        assert refine_clusters(X[::-1], features, clusters, folder=tmp_path, limits=limits) is None
    assert refine_clusters(X, features, clusters, folder=tmp_path).digest() == whole.digest()
    assert np.isfinite(whole.history).all()


@pytest.fixture(scope="module")
def rotnet() -> FrozenNetwork:
    spec = replace(specification("rotnet-mnist", "eager"), epochs=1)
    found = train_features(samples(spec, 256), spec)
    assert found is not None
    return found


def parts_of(y: np.ndarray) -> PartitionedData:
    X = digits()[0][: len(y)].reshape(len(y), -1)
    return PartitionedData.build(X, y, np.arange(len(y)) % 12, sample_digests(X), 12)


def test_a_flipped_label_reaches_the_member_of_its_partition_alone(rotnet):
    learner = TailLearner(rotnet, epochs=4, batch_size=32, milestones=(3,), stack_width=8)
    y = digits()[1][:240]
    flipped = y.copy()
    flipped[7] = (y[7] + 1) % 10
    before, after = (
        learner.fit_members(parts_of(labels), range(12), 10, 0) for labels in (y, flipped)
    )
    changed = [a != b for a, b in zip(before.digests(), after.digests(), strict=True)]
    assert np.flatnonzero(changed).tolist() == [7]
    alone = learner.fit_members(parts_of(y), [5], 10, 0)
    assert alone.digests()[0] == before.digests()[5]
    asked = digits()[0][240:300].reshape(60, -1)
    assert np.array_equal(alone.votes(asked)[:, 0], before.votes(asked)[:, 5])
    assert (before.votes(asked)[:, 5] == before.votes(asked[::-1])[::-1, 5]).all()


@pytest.fixture(scope="module")
def simclr() -> FrozenNetwork:
    spec = replace(specification("simclr-cifar10", "eager"), epochs=1, width=16, map_rows=512)
    found = train_features(samples(spec, 256), spec)
    assert found is not None
    return found


def test_views_of_an_image_are_the_same_whichever_images_are_mapped_with_it(simclr):
    X = samples(simclr.spec, 300)
    together = ViewTable(simclr, 5).vectors(X)
    assert np.isfinite(together).all()
    assert (np.abs(together - simclr.transform(X)[:, None]).max(axis=2) > 0).any(axis=1).all()
    table = ViewTable(simclr, 5)
    for row in (299, 0, 130):
        assert np.array_equal(table.vectors(X[row : row + 1])[0], together[row])
    assert np.array_equal(table.vectors(X[::-1]), together[::-1])


def test_heads_keep_their_bits_in_other_stacks_and_beside_other_labels(simclr):
    learner = HeadLearner(simclr, views=5, epochs=8, milestones=(6,), stack_width=8)
    X, y = samples(simclr.spec, 1200), digits()[1][:1200]
    where = np.where(np.arange(1200) < 600, 3, np.arange(1200) % 30)  # 600 rows, and 20 or so

    def parts(labels):
        return PartitionedData.build(X, labels, where, sample_digests(X), 30)

    before = learner.fit_members(parts(y), range(30), 10, 0)
    assert not before.failures()
    flipped = np.where(where == 7, (y + 1) % 10, y)
    after = learner.fit_members(parts(flipped), range(30), 10, 0)
    changed = [a != b for a, b in zip(before.digests(), after.digests(), strict=True)]
    assert np.flatnonzero(changed).tolist() == [7]
    some = learner.fit_members(parts(y), [21, 3, 5], 10, 0)
    assert some.digests() == [before.digests()[place] for place in (21, 3, 5)]
    fresh = FrozenNetwork(simclr.spec, simclr.tensors, simclr.law)
    again = HeadLearner(fresh, views=5, epochs=8, milestones=(6,), stack_width=8)
    assert again.fit_members(parts(y), [5], 10, 0).digests() == before.digests()[5:6]
    asked = samples(simclr.spec, 1400)[1200:]
    votes = before.votes(asked)
    assert np.array_equal(some.votes(asked), votes[:, [21, 3, 5]])
    assert np.array_equal(before.votes(asked[::-1]), votes[::-1])
