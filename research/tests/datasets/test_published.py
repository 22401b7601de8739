"""The published datasets are recognised, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from builders import write_cifar_binary, write_gtsrb, write_idx

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.datasets import import_images, load_images


@pytest.mark.parametrize(
    ("name", "write", "title"),
    [
        ("mnist", write_idx, "MNIST"),
        ("fashion-mnist", write_idx, "Fashion-MNIST"),
        ("cifar10", write_cifar_binary, "CIFAR-10"),
        ("gtsrb", write_gtsrb, "GTSRB"),
    ],
)
def test_other_files_are_not_the_published_ones(name, write, title, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"not the published {title}: the "):
        import_images(name, write(tmp_path / "source"), cache=tmp_path / "cache")
    assert not (tmp_path / "cache" / name).exists()


@pytest.fixture
def real_mnist() -> Path:
    folder = os.environ.get("POISONPROOF_DATA")
    if not folder or not Path(folder, "mnist.npz").is_file():
        pytest.skip("POISONPROOF_DATA names no folder with mnist.npz")
    return Path(folder, "mnist.npz")


@pytest.mark.mnist
def test_the_real_mnist_is_the_published_one(real_mnist: Path, tmp_path: Path) -> None:
    import_images("mnist", real_mnist, cache=tmp_path)
    dataset = load_images("mnist", tmp_path)
    assert dataset.published
    assert (len(dataset.x_train), len(dataset.x_test)) == (60_000, 10_000)


@pytest.mark.mnist
def test_one_flipped_label_is_not_the_published_mnist(real_mnist: Path, tmp_path: Path) -> None:
    with np.load(real_mnist) as archive:
        arrays = {key: archive[key] for key in archive}
    arrays["y_train"][59_999] = (arrays["y_train"][59_999] + 1) % 10
    np.savez(tmp_path / "poisoned.npz", **arrays)
    with pytest.raises(InvalidInputError, match="MD5 of train-labels-idx1-ubyte"):
        import_images("mnist", tmp_path / "poisoned.npz", cache=tmp_path / "cache")
    import_images("mnist", tmp_path / "poisoned.npz", cache=tmp_path / "cache", published=False)
    assert not load_images("mnist", tmp_path / "cache").published
