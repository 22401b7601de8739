"""A learned map is a function of the samples and the specification, however it was run."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
import torch

from poisonproof.exceptions import InvalidInputError, InvalidRowsError, StoreError
from poisonproof.networks import (
    PRETRAINING,
    LearnedFeatures,
    PretrainSpec,
    load_features,
    train_features,
)
from poisonproof.networks.pretraining.loop import RunLimits
from poisonproof.networks.pretraining.tasks import RotNet

from .conftest import ROTNET

SHORT = replace(ROTNET, epochs=2)


def test_no_function_that_trains_takes_labels():
    for function in (train_features, RotNet.loss, RotNet.__init__):
        assert not {"y", "labels", "targets"} & set(inspect.signature(function).parameters)


def test_the_order_of_samples_leaves_no_trace(images, rotnet):
    shuffled = np.random.default_rng(0).permutation(96)
    assert train_features(images[:96][shuffled], ROTNET).digest() == rotnet.digest()


def test_other_samples_make_another_map(images):
    first = train_features(images[:64], SHORT)
    changed = images[:64].copy()
    changed[3, 4, 4] ^= 1
    assert train_features(changed, SHORT).digest() != first.digest()


def test_a_stopped_run_goes_on_to_the_same_bits(images, rotnet, tmp_path):
    for done in (1, 2):
        stopped = train_features(
            images[:96], ROTNET, folder=tmp_path, limits=RunLimits(stop_after=done)
        )
        assert stopped is None
    assert train_features(images[:96], ROTNET, folder=tmp_path).digest() == rotnet.digest()


class Counter:
    """A listener that keeps what it was told."""

    def start(self, total, description):
        self.total, self.done, self.calls = total, 0, 0

    def advance(self, amount=1):
        self.done, self.calls = self.done + amount, self.calls + 1

    def stop(self):
        self.stopped = True


def test_the_bar_moves_with_every_step_and_starts_where_a_run_goes_on(images, tmp_path):
    spec, heard = replace(SHORT, batch_size=32), Counter()
    limits = RunLimits(stop_after=1)
    assert train_features(images[:96], spec, folder=tmp_path, limits=limits, progress=heard) is None
    assert (heard.total, heard.done, heard.stopped) == (6, 3, True)
    train_features(images[:96], spec, folder=tmp_path, progress=heard)
    assert (heard.total, heard.done, heard.calls) == (6, 6, 4)


def test_another_run_in_the_folder_is_refused(images, tmp_path):
    train_features(images[:64], SHORT, folder=tmp_path, limits=RunLimits(stop_after=1))
    with pytest.raises(StoreError, match="another run"):
        train_features(images[:64], replace(SHORT, seed=1), folder=tmp_path)


def test_watching_changes_nothing(images, rotnet):
    seen = []

    def watch(report, current):
        seen.append((report.epoch, current().transform(images[:5]).shape))

    assert train_features(images[:96], ROTNET, watch=watch).digest() == rotnet.digest()
    assert [epoch for epoch, _ in seen] == [1, 2, 3]


def test_the_loss_falls(rotnet):
    losses = [loss for loss, _ in rotnet.history]
    assert losses[-1] < losses[0]


def test_loss_and_gradients_are_those_of_the_plain_module():
    torch.manual_seed(0)
    task = RotNet(replace(ROTNET, crop=0))
    # In double precision: of millions of activations some lie so near zero or to another one that
    # single precision rounds them to the other side in one of the two, and gradients jump there.
    task.dtype, (*body, linear) = torch.float64, task.module.double()
    linear.float()
    images = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8)
    ours, _ = task.loss(images, {})
    ours.backward()
    found = {name: p.grad.clone() for name, p in task.module.named_parameters()}
    task.module.zero_grad()
    x = torch.nn.Sequential(*body).train()(task.views(images, {}).double())
    plain = torch.nn.functional.cross_entropy(
        linear(x.float()), torch.arange(4).repeat_interleave(6)
    )
    plain.backward()
    assert ours.item() == pytest.approx(plain.item(), rel=1e-5)
    for name, p in task.module.named_parameters():
        scale = p.grad.abs().max()
        assert torch.allclose(found[name], p.grad, atol=float(1e-4 * scale)), name


def test_a_map_is_saved_once_and_read_back(rotnet, images, tmp_path):
    rotnet.save(tmp_path)
    back = load_features(tmp_path)
    assert back.digest() == rotnet.digest()
    assert back.spec == rotnet.spec
    assert back.history == rotnet.history
    assert np.array_equal(back.transform(images[:9]), rotnet.transform(images[:9]))


def test_a_damaged_map_is_refused(rotnet, tmp_path):
    path = rotnet.save(tmp_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError, match="damaged"):
        load_features(tmp_path)
    with pytest.raises(StoreError, match="features train"):
        load_features(tmp_path / "nothing")


def test_features_of_an_image_do_not_depend_on_its_company(rotnet, images):
    together = rotnet.transform(images[:40])
    assert together.shape == (40, 192 * 2 * 2)
    for row in (0, 17, 39):
        assert np.array_equal(rotnet.transform(images[row : row + 1])[0], together[row])


def test_a_map_is_a_transformer_of_images_and_of_flat_rows(rotnet, images, tmp_path):
    rotnet.save(tmp_path)
    mapped = LearnedFeatures(tmp_path).fit(images[:1])
    expected = rotnet.transform(images[:5])
    for rows in (images[:5], images[:5].reshape(5, 64), images[:5].reshape(5, 64) * 1.0):
        assert np.array_equal(mapped.transform(rows), expected)
    for wrong in (images[:5] / 2, images[:5] - 300.0, images[:5] + np.nan, np.full((5, 64), "a")):
        with pytest.raises(InvalidRowsError, match="integer pixels"):
            mapped.transform(wrong)


@pytest.mark.parametrize("bad", [np.zeros((4, 8, 8)), np.zeros((4, 9, 8), np.uint8)])
def test_other_images_are_refused(bad):
    with pytest.raises(InvalidRowsError, match="uint8"):
        train_features(bad, SHORT)


def test_no_images_are_refused():
    with pytest.raises(InvalidRowsError, match="no images"):
        train_features(np.zeros((0, 8, 8), np.uint8), SHORT)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "jigsaw"}, "method must be one of rotnet"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"mean": (0.5, 0.5)}, "one number per channel"),
        ({"engine": "fast"}, "engine must be one of"),
    ],
)
def test_a_wrong_specification_says_what_is_allowed(change, words):
    with pytest.raises(InvalidInputError, match=words):
        replace(ROTNET, **change)


def test_the_published_schedules():
    spec = PretrainSpec(**PRETRAINING["rotnet"])
    rates = [spec.rate(epoch, 0, 1) for epoch in (0, 59, 60, 119, 120, 159, 160, 199)]
    assert rates == pytest.approx([0.1, 0.1, 0.02, 0.02, 0.004, 0.004, 0.0008, 0.0008])
    simclr = PretrainSpec(**PRETRAINING["simclr"])
    assert simclr.rate(0, 0, 97) < simclr.rate(9, 96, 97) == pytest.approx(simclr.rate(10, 0, 97))
    assert simclr.rate(999, 0, 97) < 1e-4
    assert PretrainSpec.from_json(simclr.to_json()) == simclr
