"""SimCLR: views, loss, and the same promises as every learned map."""

from __future__ import annotations

import colorsys
from dataclasses import replace

import numpy as np
import pytest
import torch

from poisonproof.networks import PretrainSpec, train_features
from poisonproof.networks.augmentation import Stream
from poisonproof.networks.pretraining.loop import RunLimits
from poisonproof.networks.pretraining.tasks import SimCLR, _turned, contrast, make_views

SPEC = PretrainSpec(
    "simclr",
    (3, 8, 8),
    epochs=2,
    batch_size=32,
    learning_rate=0.1,
    nesterov=False,
    schedule="cosine",
    warmup_epochs=1,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
    flip=True,
    width=8,
    head=16,
    map_rows=32,
)


def colourful(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 3, 8, 8), dtype=np.uint8)


def draws(n: int) -> dict[int, torch.Tensor]:
    stream = Stream(0, torch.zeros(1, dtype=torch.int64))
    return {p: stream.words(p, 0, torch.arange(n))[0] for p in SimCLR.purposes}


def test_the_map_is_a_function_of_samples_however_it_was_run(tmp_path):
    X = colourful(64)
    whole = train_features(X, SPEC)
    assert train_features(X[::-1], SPEC, folder=tmp_path, limits=RunLimits(stop_after=1)) is None
    assert train_features(X, SPEC, folder=tmp_path).digest() == whole.digest()
    assert whole.transform(X[:5]).shape == (5, 64)
    assert np.array_equal(whole.transform(X[3:4])[0], whole.transform(X[:5])[3])


def test_turning_the_hue_is_what_the_standard_library_does():
    x, turn = torch.rand(40, 3, 1, 1), torch.rand(40) - 0.5
    turned = _turned(x, turn.view(-1, 1, 1))[:, :, 0, 0]
    for row in range(40):
        hue, saturation, value = colorsys.rgb_to_hsv(*x[row, :, 0, 0].tolist())
        expected = colorsys.hsv_to_rgb((hue + turn[row].item()) % 1, saturation, value)
        assert turned[row].tolist() == pytest.approx(expected, abs=1e-5)


def test_without_changes_a_view_is_the_image():
    still = replace(SPEC, smallest_view=1.0, flip=False, jitter_share=0.0, gray_share=0.0)
    images = torch.from_numpy(colourful(6))
    whole = draws(6)
    half = torch.full((6, 4), 1 << 31, dtype=torch.int64)  # one half: a square frame in the middle
    views = make_views(images, still, {**whole, 6: half}, 0)
    assert torch.allclose(views, images / 255.0, atol=1e-5)


def test_two_views_differ_and_stay_within_the_range_of_pixels():
    images = torch.from_numpy(colourful(16))
    first, second = (make_views(images, SPEC, draws(16), number) for number in (0, 1))
    assert (first != second).flatten(1).any(dim=1).all()
    assert min(first.min(), second.min()) >= 0
    assert max(first.max(), second.max()) <= 1


def test_mirroring_can_be_forbidden():
    images = torch.from_numpy(colourful(64))
    plain = replace(SPEC, smallest_view=1.0, jitter_share=0.0, gray_share=0.0)
    both = {
        flip: make_views(images, replace(plain, flip=flip), draws(64), 0) for flip in (True, False)
    }
    mirrored = (both[True] != both[False]).flatten(1).any(dim=1)
    assert 10 < int(mirrored.sum()) < 54
    assert torch.allclose(both[True][mirrored], both[False][mirrored].flip(3), atol=1e-4)


def test_the_loss_is_cross_entropy_of_the_partner_among_all_others():
    torch.manual_seed(0)
    z, n, temperature = torch.randn(10, 4), 5, 0.5
    unit = z / z.norm(dim=1, keepdim=True)
    total = 0.0
    for i in range(2 * n):
        cosines = unit @ unit[i] / temperature
        others = [j for j in range(2 * n) if j != i]
        total -= float(cosines[(i + n) % (2 * n)] - torch.logsumexp(cosines[others], 0))
    loss, share = contrast(z, temperature, 2.0)
    assert loss.item() == pytest.approx(2.0 * total / (2 * n), rel=1e-5)
    assert 0 <= share.item() <= 1


def test_gray_images_have_views_too():
    spec = replace(SPEC, input_shape=(1, 8, 8), mean=(0.5,), std=(0.25,), epochs=1)
    assert train_features(colourful(32)[:, :1], spec) is not None
