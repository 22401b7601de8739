from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from builders import (
    binary_batch,
    cifar_batches,
    write_cifar_archive,
    write_cifar_binary,
    write_cifar_png,
    write_cifar_python,
)
from PIL import Image

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.datasets import import_images, load_images
from poisonproof_research.datasets.published_files import BATCHES, batch_md5s


def load(source: Path, tmp_path: Path):
    import_images("cifar10", source, cache=tmp_path / "cache", published=False)
    return load_images("cifar10", tmp_path / "cache")


@pytest.mark.parametrize(
    "write", [write_cifar_binary, write_cifar_python, write_cifar_png, write_cifar_archive]
)
def test_every_form_gives_the_same_images(write: Callable[[Path], Path], tmp_path: Path) -> None:
    dataset = load(write(tmp_path / "source"), tmp_path)
    batches = cifar_batches()
    for split, names in BATCHES.items():
        images = np.concatenate([batches[name][0] for name in names]).reshape(-1, 3, 32, 32)
        np.testing.assert_array_equal(getattr(dataset, f"x_{split}"), images)
        labels = [label for name in names for label in batches[name][1]]
        assert getattr(dataset, f"y_{split}").tolist() == labels


def test_rewritten_batches_have_the_digests_of_the_binary_files(tmp_path: Path) -> None:
    dataset = load(write_cifar_png(tmp_path / "source"), tmp_path)
    batches = cifar_batches()
    expected = [hashlib.md5(binary_batch(*batches[n])).hexdigest() for n in BATCHES["train"]]
    assert batch_md5s(dataset.x_train, dataset.y_train, 4) == expected


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    source = write_cifar_binary(tmp_path / "source")
    (source / "data_batch_4.bin").unlink()
    with pytest.raises(InvalidInputError, match=r"lacks data_batch_4\.bin"):
        load(source, tmp_path)


def test_a_folder_without_batches_says_which_forms_are_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="binary batches, python batches or PNG files"):
        load(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("write", "name", "words"),
    [
        (write_cifar_binary, "data_batch_2.bin", "whole records"),
        (write_cifar_python, "data_batch_2", "damaged or truncated"),
        (write_cifar_png, "data_batch_2.png", "cannot be decoded"),
        (write_cifar_png, "train_lables.json", "not a list of labels"),
    ],
)
def test_a_truncated_batch_is_named(
    write: Callable[[Path], Path], name: str, words: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "source") / name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInputError, match=words) as caught:
        load(path.parent, tmp_path)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("7", "between"),
        ("[[1], [2]]", "between"),
        ("[1.5]", "between"),
        ('["1"]', "between"),
        ("[1e5]", "between"),
        ("[99999999999999999999]", "too large"),
        ("[1, 2]", r"holds 4 images, but .*train_lables\.json has 2 labels for 5 such batches"),
    ],
)
def test_a_file_that_is_no_list_of_labels_is_refused(
    labels: str, words: str, tmp_path: Path
) -> None:
    source = write_cifar_png(tmp_path / "source")
    (source / "train_lables.json").write_text(labels)
    with pytest.raises(InvalidInputError, match=words) as caught:
        load(source, tmp_path)
    assert "train_lables.json" in str(caught.value)


def test_a_batch_that_is_shorter_than_its_labels_moves_no_other_label(tmp_path: Path) -> None:
    source = write_cifar_png(tmp_path / "source")
    with Image.open(source / "data_batch_2.png") as batch:
        batch.crop((0, 0, 1024, 3)).save(source / "data_batch_2.png")
    with pytest.raises(InvalidInputError, match=r"data_batch_2\.png holds 3 images, but"):
        load(source, tmp_path)
