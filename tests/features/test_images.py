"""Deskewing, orientation histograms and scattering do what they say."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_sample_images

from poisonproof.exceptions import InvalidInputError, InvalidRowsError
from poisonproof.features import Deskew, OrientationHistogram, PatchResponses, Scattering
from poisonproof.features.images import _direction_shares, _pool
from poisonproof.features.scattering import _filters


def stroke(slant: float, height: int = 28, width: int = 28) -> np.ndarray:
    """A soft line through the middle that leans by `slant` columns per row."""
    rows, columns = np.mgrid[:height, :width].astype(float)
    middle = (width - 1) / 2 + slant * (rows - (height - 1) / 2)
    ink = 255 * np.exp(-((columns - middle) ** 2) / 4)
    ink[:6] = ink[-6:] = 0
    return ink[np.newaxis]


def slant_of(image: np.ndarray) -> float:
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    row, column = (np.average(axis, weights=image) for axis in (rows, columns))
    covariance = np.average((rows - row) * (columns - column), weights=image)
    return float(covariance / np.average((rows - row) ** 2, weights=image))


@pytest.mark.parametrize("slant", [-0.6, -0.2, 0.0, 0.3, 0.7])
def test_deskewed_strokes_stand_upright_in_the_middle(slant) -> None:
    upright = Deskew().transform(stroke(slant)).reshape(28, 28)
    assert abs(slant_of(upright)) < 0.02
    assert abs(np.average(np.arange(28), weights=upright.sum(axis=0)) - 13.5) < 0.05
    assert upright.sum() == pytest.approx(stroke(slant).sum(), rel=1e-3)


def test_deskew_leaves_upright_and_empty_images_as_they_are() -> None:
    upright = np.round(stroke(0.0))
    np.testing.assert_array_equal(Deskew().transform(upright), upright.reshape(1, -1))
    empty = np.zeros((2, 9, 9))
    np.testing.assert_array_equal(Deskew().transform(empty), empty.reshape(2, -1))


def test_deskew_moves_all_channels_of_an_image_alike() -> None:
    image = stroke(0.4)
    colour = np.stack([image, image / 2, 0 * image], axis=-1)
    gray = Deskew().transform(image).reshape(28, 28)
    moved = Deskew().transform(colour).reshape(28, 28, 3)
    np.testing.assert_allclose(moved[..., 0], gray, atol=1e-3)
    np.testing.assert_allclose(moved[..., 1], gray / 2, atol=1e-3)


@pytest.mark.parametrize("n_orientations", [4, 8, 9])
def test_direction_shares_add_up_to_the_gradient(n_orientations) -> None:
    rng = np.random.default_rng(0)
    down, across = rng.standard_normal((2, 5, 5, 64)).astype(np.float32)
    shares = _direction_shares(down, across, n_orientations, signed=True)
    angles = 2 * np.pi * np.arange(n_orientations) / n_orientations
    np.testing.assert_allclose(np.tensordot(np.sin(angles), shares, 1), down, atol=1e-5)
    np.testing.assert_allclose(np.tensordot(np.cos(angles), shares, 1), across, atol=1e-5)
    assert (shares >= 0).all()
    assert ((shares > 0).sum(axis=0) <= 2).all()


def test_unsigned_directions_do_not_tell_dark_from_light() -> None:
    image = np.random.default_rng(0).random((3, 28, 28))
    unsigned, signed = OrientationHistogram(signed=False), OrientationHistogram()
    np.testing.assert_allclose(unsigned.transform(image), unsigned.transform(-image), atol=1e-6)
    assert np.abs(signed.transform(image) - signed.transform(-image)).max() > 0.01


def test_a_quarter_turn_turns_cells_and_directions() -> None:
    image = np.random.default_rng(0).random((1, 28, 28)).astype(np.float32)
    histogram = OrientationHistogram(n_orientations=8, cell=4, block=1)
    upright = histogram.transform(image).reshape(8, 7, 7)
    turned = histogram.transform(np.rot90(image, axes=(1, 2))).reshape(8, 7, 7)
    # Counter-clockwise on the page; directions are counted clockwise from "to the right".
    np.testing.assert_allclose(
        turned, np.roll(np.rot90(upright, axes=(1, 2)), -2, axis=0), atol=1e-6
    )


def test_every_pixel_inside_is_shared_out_whole() -> None:
    pooled = _pool(np.ones((28, 3), dtype=np.float32), 0, 4)
    np.testing.assert_allclose(pooled[1:-1], 4, atol=1e-6)


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("block", [1, 2])
def test_histograms_have_length_one_and_empty_images_none(block, root) -> None:
    images = np.random.default_rng(0).random((5, 28, 28))
    images[4] = 0.5
    features = OrientationHistogram(block=block, root=root).transform(images)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), [1, 1, 1, 1, 0], atol=1e-6)


def test_flat_rows_and_images_have_the_same_features() -> None:
    image = np.random.default_rng(0).integers(0, 256, (4, 12, 20), dtype=np.uint8)
    for transformer in (Deskew, OrientationHistogram, PatchResponses, Scattering):
        np.testing.assert_array_equal(
            transformer().transform(image),
            transformer(image_shape=(12, 20)).transform(image.reshape(4, -1)),
        )


def test_scattering_has_81_channels_of_7_by_7_for_mnist() -> None:
    assert Scattering().transform(np.zeros((1, 28, 28))).shape == (1, 81 * 49)


def test_scattering_starts_with_the_smoothed_image() -> None:
    image = np.random.default_rng(0).random((1, 28, 28))
    first = Scattering(n_orientations=2).transform(image)[0, :49].reshape(7, 7)
    smooth = gaussian_filter(np.pad(image[0], 8, mode="reflect"), 1.6)[8:-8:4, 8:-8:4]
    np.testing.assert_allclose(first, smooth, atol=5e-3)


def test_scattering_wavelets_have_mean_zero_and_the_average_mass_one() -> None:
    bank = _filters((36, 36), 2, 8)
    assert bank["average"][0, 0] == pytest.approx(1, abs=1e-3)
    assert max(abs(bank[f"{j}.{t}"][0, 0]) for j in range(2) for t in range(8)) < 1e-5


def test_scattering_moves_less_than_the_image_under_a_small_shift() -> None:
    image = stroke(0.3)
    shifted = np.roll(image, 1, axis=2)
    near, far = Scattering().transform(np.concatenate([image, shifted]))
    of_features = np.linalg.norm(near - far) / np.linalg.norm(near)
    of_pixels = np.linalg.norm(image - shifted) / np.linalg.norm(image)
    assert of_features < 0.75 * of_pixels


def test_patch_responses_are_those_of_the_formula() -> None:
    photographs = [
        image[:424, :640].reshape(106, 4, 160, 4, 3).mean(axis=(1, 3))
        for image in load_sample_images().images
    ]
    every = np.concatenate([evened(patches(photograph)) for photograph in photographs])
    values, vectors = np.linalg.eigh(np.cov(every.T))
    whiten = vectors @ np.diag((values + 0.1) ** -0.5) @ vectors.T
    drawn = np.random.Generator(np.random.Philox(key=0)).choice(len(every), 5, replace=False)
    white = (every[drawn] - every.mean(axis=0)) @ whiten
    white /= np.linalg.norm(white, axis=1, keepdims=True)
    image = np.random.default_rng(0).integers(0, 256, (9, 11, 3))
    alike = (evened(patches(image)) - every.mean(axis=0)) @ whiten @ white.T
    alike = alike.reshape(4, 6, 5)
    expected = [
        np.maximum(sign * alike[2 * i : 2 * i + 2, 3 * j : 3 * j + 3] - 0.5, 0).mean(axis=(0, 1))
        for sign in (1, -1)
        for i in range(2)
        for j in range(2)
    ]
    found = PatchResponses(5).transform(image[np.newaxis])
    np.testing.assert_allclose(found[0], np.concatenate(expected), atol=5e-3)


def patches(image: np.ndarray) -> np.ndarray:
    height, width, _ = image.shape
    return np.array(
        [
            np.moveaxis(image[i : i + 6, j : j + 6], 2, 0).ravel()
            for i in range(height - 5)
            for j in range(width - 5)
        ],
        dtype=np.float64,
    )


def evened(rows: np.ndarray) -> np.ndarray:
    centred = rows - rows.mean(axis=1, keepdims=True)
    return centred / np.sqrt(rows.var(axis=1, keepdims=True) + 10)


def test_an_image_too_large_for_patch_responses_spoils_itself_only() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 20, 20)).astype(np.float64)
    clean = PatchResponses(20).transform(images)
    images[1] = 1e308
    found = PatchResponses(20).transform(images)
    assert np.isnan(found[1]).all()
    assert found[[0, 2]].tobytes() == clean[[0, 2]].tobytes()


def test_patches_are_the_same_in_another_process_with_other_threads() -> None:
    code = (
        "import numpy as np; from poisonproof.features import PatchResponses;"
        "image = np.arange(3072).reshape(1, 32, 32, 3) % 251;"
        "print(PatchResponses(400).transform(image).tobytes().hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads},
            capture_output=True, text=True, check=True,
        ).stdout
        for threads in ("1", "3")
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.parametrize("channels", [1, 3])
def test_patch_responses_ignore_brightness_and_nearly_ignore_contrast(channels) -> None:
    image = np.random.default_rng(0).integers(0, 100, (1, 20, 20, channels))
    plain, brighter, stronger = PatchResponses(50).transform(
        np.concatenate([image, image + 50, 2 * image])
    )
    np.testing.assert_allclose(plain, brighter, atol=1e-6)
    np.testing.assert_allclose(plain, stronger, atol=0.05)
    assert plain.max() > 0.3


@pytest.mark.parametrize(
    ("transformer", "X", "error", "says"),
    [
        (Deskew(), np.zeros((2, 12)), InvalidRowsError, "not square"),
        (Deskew(image_shape=(3, 5)), np.zeros((2, 12)), InvalidRowsError, "15 pixels"),
        (Deskew(image_shape=(3,)), np.zeros((2, 3)), InvalidInputError, "image_shape must"),
        (Deskew(), np.array([["a"]]), InvalidRowsError, "must be numbers"),
        (Deskew(), np.zeros(4), InvalidRowsError, "shape"),
        (OrientationHistogram(cell=0), np.zeros((2, 16)), InvalidInputError, "cell must"),
        (OrientationHistogram(block=9), np.zeros((2, 16)), InvalidInputError, "block=9"),
        (Scattering(n_scales=5), np.zeros((2, 784)), InvalidInputError, "fewer scales"),
        (PatchResponses(0), np.zeros((2, 784)), InvalidInputError, "n_patches must"),
        (PatchResponses(), np.zeros((2, 36)), InvalidInputError, "7 x 7 pixels"),
        (PatchResponses(), np.zeros((2, 9, 9, 2)), InvalidInputError, "not of 2"),
    ],
)
def test_what_makes_no_sense_is_refused(transformer, X, error, says) -> None:
    with pytest.raises(error, match=says):
        transformer.transform(X)
