"""``poisonproof features``: a map from the user's own images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Cli

pytest.importorskip("torch")
TRAIN = ("features", "train", "rotnet", "--epochs", "2", "--seed", "3")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "images.npy", rng.integers(0, 256, (40, 16, 16), dtype=np.uint8))
    return tmp_path / "images.npy"


def test_images_of_a_folder_and_of_a_npz_file_are_read(cli: Cli, tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (6, 16, 16), dtype=np.uint8)
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number}.png")
    (folder / "broken.png").write_bytes(b"no image")
    np.savez(tmp_path / "photos.npz", X=pixels)
    out = [tmp_path / "folder", tmp_path / "npz"]
    read = cli(*TRAIN, "--images", folder, "--size", "16x16", "--gray", "--out", out[0])
    assert read.code == 0, read.err
    assert "broken.png" in read.err
    assert cli(*TRAIN, "--images", tmp_path / "photos.npz", "--out", out[1]).code == 0
    shown = [cli("features", "show", "--out", path).out.splitlines()[-1] for path in out]
    assert shown[0] == shown[1]
    described = cli("features", "show", "--out", out[0]).out
    assert "rotnet on images of shape 1x16x16, 2 epochs" in described


def test_bad_input_is_one_line(cli: Cli, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "map"
    for arguments, words in (
        (["features", "train", "rotnet"], "--out DIR"),
        (["features", "train", "rotnet", "--out", out], "--images PATH"),
        (["features", "train", "magic", "--images", images, "--out", out], "rotnet, simclr"),
        (["features", "show", "--out", out], "features train"),
    ):
        result = cli(*arguments)
        assert result.code == 2, arguments
        assert words in result.err
        assert len(result.err.splitlines()) == 1
