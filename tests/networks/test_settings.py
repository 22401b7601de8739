"""What torch is set to outside changes no member, and is as it was afterwards."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from poisonproof.exceptions import InvalidInputError
from poisonproof.networks import TorchLearner
from poisonproof.networks.device import deterministic
from tests.networks import own_networks as own
from tests.networks.partitions import partitioned, random_parts


@contextmanager
def within(put, value, usual):
    put(value)
    try:
        yield
    finally:
        put(usual)


def _put_precision(value):
    torch.backends.mkldnn.conv.fp32_precision = value


def _put_onednn(value):
    torch.backends.mkldnn.enabled = value


SETTINGS = {
    "float64": lambda: within(torch.set_default_dtype, torch.float64, torch.float32),
    "bfloat16": lambda: within(torch.set_default_dtype, torch.bfloat16, torch.float32),
    "meta tensors": lambda: within(torch.set_default_device, "meta", None),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "flushed subnormals": lambda: within(torch.set_flush_denormal, True, False),
    "coarse products": lambda: within(torch.set_float32_matmul_precision, "medium", "highest"),
    "coarse convolutions": lambda: within(_put_precision, "bf16", "none"),
    "no oneDNN": lambda: within(_put_onednn, False, True),
    "two threads": lambda: within(torch.set_num_threads, 2, 1),
}
LEARNERS = {
    "stacked": TorchLearner("mlp", epochs=1, input_scale=1 / 255),
    "own": TorchLearner(own.TurnsOneDNNOff, epochs=1, input_scale=1 / 255),
    "single": TorchLearner("nin", image_shape=(1, 8, 8), epochs=1, vote_rows=8),
    "graph": TorchLearner(
        "resnet10", image_shape=(1, 8, 8), width=8, execution="graph", epochs=1, vote_rows=8
    ),
}
PARTS = [(x, y) for x, y in random_parts((20, 7), (64,))]


def trained(name):
    ensemble = LEARNERS[name].fit_members(partitioned(PARTS, (64,)), range(2), 10, 0)
    return ensemble.digests(), ensemble.scores(PARTS[0][0][:8])


@pytest.fixture(scope="module")
def usual():
    before = torch.get_num_threads()
    with within(torch.set_num_threads, 1, before):
        yield {name: trained(name) for name in LEARNERS}


def _chosen():
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.mkldnn.conv.fp32_precision,
        torch.backends.mkldnn.matmul.fp32_precision,
        torch.backends.mkldnn.enabled,
        torch.get_num_threads(),
    )


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", LEARNERS)
def test_the_callers_settings_change_no_member_and_are_given_back(usual, name, setting):
    with SETTINGS[setting]():
        chosen = _chosen()
        digests, scores = trained(name)
        assert _chosen() == chosen
    assert digests == usual[name][0]
    assert np.array_equal(scores, usual[name][1])


def test_threads_that_would_cut_through_lanes_are_refused():
    learner = TorchLearner("mlp", epochs=1, threads=2)
    with pytest.raises(InvalidInputError, match=r"one thread.*n_jobs"):
        learner.fit_members(partitioned(PARTS, (64,)), [0], 10, 0)


def test_the_first_thread_that_leaves_does_not_give_back_what_the_other_relies_on():
    """As when a server asks a model from several of its threads."""
    inside, finished = threading.Event(), threading.Event()
    spec = LEARNERS["single"].resolve((1, 8, 8), 10)
    seen = []

    def slow():
        with deterministic(spec):
            inside.set()
            finished.wait(30)
            seen.append((torch.get_default_dtype(), torch.backends.cudnn.allow_tf32))

    tf32 = torch.backends.cudnn.allow_tf32
    with within(torch.set_default_dtype, torch.float64, torch.float32):
        with deterministic(spec):
            other = threading.Thread(target=slow)
            other.start()
            assert inside.wait(30)
        finished.set()
        other.join()
        assert seen == [(torch.float32, False)]
        assert (torch.get_default_dtype(), torch.backends.cudnn.allow_tf32) == (torch.float64, tf32)
