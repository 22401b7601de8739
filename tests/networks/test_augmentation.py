"""Augmentation against slow, obvious references."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from poisonproof.networks.augmentation import Purpose, Stream, augment, below, purposes
from poisonproof.networks.specification import Augmentation


def drawer(lanes, rows, epoch=2):
    stream = Stream(11, torch.tensor(lanes))
    return lambda purpose: stream.words(purpose, epoch, rows)


@pytest.fixture
def images():
    return torch.rand(2, 6, 3, 10, 10, generator=torch.Generator().manual_seed(0)) + 0.1


ROWS = torch.arange(6)


def test_crop_and_flip_are_slices_of_a_padded_image(images):
    draw = drawer([3, 8], ROWS)
    out = augment(images, Augmentation(crop=4, flip=True), draw).numpy()
    words = draw(Purpose.CROP)
    padded = np.pad(images.numpy(), [(0, 0)] * 3 + [(4, 4), (4, 4)])
    for lane in range(2):
        for row in range(6):
            dy, dx = (int(below(words[lane, row, j], 9)) for j in range(2))
            expected = padded[lane, row, :, dy : dy + 10, dx : dx + 10]
            if below(words[lane, row, 2], 2):
                expected = expected[:, :, ::-1]
            assert np.array_equal(out[lane, row], expected)


def test_cutout_blackens_one_square(images):
    draw = drawer([3, 8], ROWS)
    out = augment(images, Augmentation(cutout=4), draw)
    for lane in range(2):
        for row in range(6):
            black = (out[lane, row] == 0).all(dim=0)
            assert 4 <= black.sum() <= 16
            assert torch.equal(out[lane, row][:, ~black], images[lane, row][:, ~black])


def test_affine_of_nothing_changes_nothing(images):
    rule = Augmentation(rotate=1e-9)
    assert torch.allclose(augment(images, rule, drawer([3, 8], ROWS)), images, atol=1e-5)


def test_affine_agrees_with_torchs_grid_sample(images):
    draw = drawer([3, 8], ROWS)
    rule = Augmentation(rotate=20.0, scale=0.1)
    out = augment(images, rule, draw)
    signed = (draw(Purpose.AFFINE) >> 8).float() * 2**-24 * 2 - 1
    angle, size = signed[..., 0] * np.pi / 9, 1 + signed[..., 1] * 0.1
    cosine, sine = torch.cos(angle) / size, torch.sin(angle) / size
    zero = torch.zeros_like(sine)
    matrix = torch.stack([cosine, sine, zero, -sine, cosine, zero], -1).view(-1, 2, 3)
    grid = torch.nn.functional.affine_grid(matrix, (12, 3, 10, 10), align_corners=True)
    expected = torch.nn.functional.grid_sample(images.flatten(0, 1), grid, align_corners=True)
    assert torch.allclose(out.flatten(0, 1), expected, atol=1e-4)


def test_colour_keeps_the_order_of_grey_values(images):
    out = augment(images, Augmentation(brightness=0.3), drawer([3, 8], ROWS))
    ratio = (out / images).flatten(2)
    assert torch.allclose(ratio.amin(dim=2), ratio.amax(dim=2), atol=1e-5)
    assert ratio.min() >= 0.7 - 1e-5
    assert ratio.max() <= 1.3 + 1e-5


@pytest.mark.parametrize(
    "rule",
    [
        Augmentation(crop=4, flip=True),
        Augmentation(rotate=15.0, scale=0.1, shift=0.1),
        Augmentation(brightness=0.3, contrast=0.3, saturation=0.3),
        Augmentation(cutout=4),
    ],
)
def test_an_image_changes_alike_on_any_lane(images, rule):
    both = augment(images, rule, drawer([3, 8], ROWS))
    second = augment(images[1:], rule, drawer([8], ROWS))
    assert torch.equal(both[1], second[0])
    assert not torch.equal(both, images)
    assert len(purposes(rule)) == 1
