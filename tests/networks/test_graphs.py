"""Members on tracks: the code that replays CUDA graphs, run on a CPU without recording."""

from __future__ import annotations

import gc

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks import TorchLearner
from poisonproof.networks.device import autocast, deterministic
from poisonproof.networks.graphs import SGD, FlatModule, Track
from poisonproof.networks.specification import NetworkSpec
from tests.networks.partitions import partitioned, random_parts
from tests.networks.test_learner import dropout_module, norm_module, small_module

SHAPE = (3, 16, 16)
# Two full batches; one and a rest; only a rest; a rest of one row.
SIZES = (32, 25, 9, 33)
OPTIONS = {
    "width": 8,
    "epochs": 2,
    "batch_size": 16,
    "augmentation": "strong",
    "mixup": 0.2,
    "schedule": "cosine",
}


def resnet(execution="graph", **changes):
    return TorchLearner("resnet10", execution=execution, **{**OPTIONS, **changes})


def fitted(learner, parts, which=None, shape=SHAPE):
    which = range(len(parts)) if which is None else which
    return learner.fit_members(partitioned(parts, shape), which, 10, 0)


def bits(ensemble):
    return [member.digest() for member in ensemble.members]


@pytest.fixture(scope="module")
def parts():
    return random_parts(SIZES, SHAPE)


@pytest.fixture(scope="module")
def members(parts):
    return fitted(resnet(), parts)


def test_a_track_trains_the_same_function_as_single(parts):
    ours = fitted(resnet(learning_rate=1e-3), parts)
    usual = fitted(resnet("single", learning_rate=1e-3), parts)
    for one, other in zip(ours.members, usual.members, strict=True):
        assert list(one.tensors) == list(other.tensors)
        for name in one.tensors:
            assert np.allclose(one.tensors[name], other.tensors[name], atol=1e-4), name
    X = random_parts([20], SHAPE, seed=1)[0][0]
    assert np.array_equal(ours.votes(X), usual.votes(X))


def test_tracks_are_forgotten_when_training_ends(parts):
    # A track that only the collector of garbage can find would keep its device memory.
    gc.collect()
    gc.disable()
    try:
        fitted(resnet(epochs=1), parts)
        assert not [thing for thing in gc.get_objects() if type(thing) is Track]
    finally:
        gc.enable()


@pytest.mark.parametrize("tracks", [1, 3])
def test_the_number_of_tracks_only_schedules(parts, members, tracks):
    assert bits(fitted(resnet(stack_width=tracks), parts)) == bits(members)


def test_a_member_keeps_its_bits_whoever_was_on_the_track_before(parts, members):
    order = [3, 0, 2]
    assert bits(fitted(resnet(stack_width=1), parts, order)) == [bits(members)[i] for i in order]


def test_only_the_touched_member_changes(parts, members):
    X, y = parts[3]
    attacked = [*parts[:3], (np.concatenate([X, X ^ 3]), np.concatenate([y, y]))]
    after = fitted(resnet(stack_width=2), attacked)
    assert [a == b for a, b in zip(bits(members), bits(after), strict=True)] == [True] * 3 + [False]
    test = random_parts([20], SHAPE, seed=1)[0][0]
    assert np.array_equal(members.votes(test)[:, :3], after.votes(test)[:, :3])


def test_a_diverging_member_abstains_and_the_rest_keep_their_bits(parts):
    learner = resnet()
    good = fitted(learner, parts)
    broken = [*parts]
    broken[1] = (np.full(parts[1][0].shape, np.nan, np.float32), parts[1][1])
    bad = fitted(learner, broken)
    assert [good.members[i].digest() for i in (0, 2, 3)] == [bits(bad)[i] for i in (0, 2, 3)]
    assert list(bad.failures()) == [1]
    assert (bad.votes(parts[0][0])[:, 1] == -1).all()


def test_a_member_that_explodes_abstains(parts):
    assert fitted(resnet(learning_rate=1e9), parts).failures()


@pytest.mark.parametrize("execution", ["single", "graph"])
def test_a_batch_torch_cannot_normalise_makes_one_member_abstain(execution):
    # At 8x8 the last stage is one pixel wide: batch norm over one row raises.
    parts = random_parts([17, 16], (3, 8, 8))
    ensemble = fitted(resnet(execution, augmentation=None), parts, shape=(3, 8, 8))
    assert list(ensemble.failures()) == [0]
    assert "ValueError" in ensemble.failures()[0]


def test_a_users_module_runs_on_tracks():
    parts = random_parts([20, 30], (64,))
    options = {"epochs": 3, "batch_size": 16, "input_scale": 1 / 255, "normalize": "none"}
    for factory in (small_module, norm_module):
        ours = fitted(TorchLearner(factory, execution="graph", **options), parts, shape=(64,))
        usual = fitted(TorchLearner(factory, **options), parts, shape=(64,))
        for one, other in zip(ours.members, usual.members, strict=True):
            for name in one.tensors:
                assert np.allclose(one.tensors[name], other.tensors[name], atol=1e-4), name


def frozen_module():
    return nn.Linear(64, 10).requires_grad_(False)


def silent_module():
    module = nn.Linear(64, 10)
    module.unused = nn.Linear(3, 3)
    return module


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (dropout_module, "random numbers"),
        (silent_module, "cannot be replayed"),
        (frozen_module, "parameters of dtype float32"),
    ],
)
def test_a_module_that_cannot_be_replayed_is_refused_before_the_start(factory, reason):
    parts = random_parts([20], (64,))
    with pytest.raises(InvalidInputError, match=reason):
        fitted(TorchLearner(factory, execution="graph", epochs=1), parts, shape=(64,))


@pytest.mark.parametrize("nesterov", [True, False])
def test_the_flat_update_is_torchs_sgd(nesterov):
    spec = NetworkSpec("mlp", (4,), 3, nesterov=nesterov, weight_decay=0.01)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(20, 3))
    other = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(20, 3))
    other.load_state_dict(module.state_dict())
    flat = FlatModule(module)
    rule = SGD(spec, flat.parameters)
    usual = torch.optim.SGD(
        other.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.01
    )
    for step in range(3):
        x = torch.randn(6, 3, 4, 4)
        flat.collect(module(x).square().mean())
        rule.step(flat.parameters, flat.gradients, torch.tensor([0.1 / (step + 1)]))
        usual.param_groups[0]["lr"] = 0.1 / (step + 1)
        usual.zero_grad()
        other(x).square().mean().backward()
        usual.step()
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, two, atol=1e-6)


def test_defaults_follow_from_network_and_device():
    on_cuda = TorchLearner("resnet10", device="cuda").resolve((3, 32, 32), 10)
    assert (on_cuda.execution, on_cuda.dtype, on_cuda.stack_width) == ("graph", "bfloat16", 8)
    on_cpu = TorchLearner("resnet10").resolve((3, 32, 32), 10)
    assert (on_cpu.execution, on_cpu.dtype, on_cpu.stack_width) == ("single", "float32", 32)
    assert TorchLearner("nin", device="cuda").resolve((3, 32, 32), 10).execution == "fused"


@pytest.mark.parametrize("changes", [{"batch_size": 24}, {"n_classes": 100}])
def test_what_the_kernels_lack_is_refused_with_the_way_out(changes):
    wanted = {"n_classes": 10, **changes}
    with pytest.raises(InvalidInputError, match="use execution='graph'"):
        NetworkSpec(
            "nin", (3, 32, 32), execution="fused", device="cuda", dtype="bfloat16", **wanted
        )
    NetworkSpec("nin", (3, 32, 32), execution="graph", device="cuda", dtype="bfloat16", **wanted)


def test_nothing_is_remembered_under_autocast():
    spec = resnet().resolve(SHAPE, 10)
    with deterministic(spec), autocast(spec):
        assert not torch.is_autocast_cache_enabled()
