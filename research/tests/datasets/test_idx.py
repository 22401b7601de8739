from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import idx_bytes, mnist_arrays, write_idx

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.datasets import import_images, load_images
from poisonproof_research.datasets.published_files import IDX_FILES, idx_md5, parse_idx


def load(source: Path, tmp_path: Path):
    import_images("mnist", source, cache=tmp_path / "cache", published=False)
    return load_images("mnist", tmp_path / "cache")


def write_npz(path: Path, **changes: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **(mnist_arrays() | changes))
    return path


@pytest.mark.parametrize("form", ["idx", "gz", "npz", "npz file", "nested", "dotted names"])
def test_every_form_gives_the_same_arrays_and_digest(form: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    if form.startswith("npz"):
        npz = write_npz(source / "anything.npz")
        source = npz if form == "npz file" else source
    elif form == "nested":
        write_idx(source / "MNIST" / "raw", packed=True)
    else:
        write_idx(source, packed=form == "gz")
    if form == "dotted names":
        for path in source.iterdir():
            path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    dataset = load(source, tmp_path)
    for key, expected in mnist_arrays().items():
        np.testing.assert_array_equal(getattr(dataset, key), expected)
    assert dataset.x_train.dtype == np.uint8
    assert dataset.y_train.dtype == np.int64
    assert dataset.class_names == tuple("0123456789")
    np.testing.assert_array_equal(dataset.classes, np.arange(10))
    reference = load(write_idx(tmp_path / "reference"), tmp_path)
    assert dataset.digest == reference.digest


def test_the_digest_is_that_of_the_idx_file_itself() -> None:
    import hashlib

    array = mnist_arrays()["x_test"]
    assert idx_md5(array) == hashlib.md5(idx_bytes(array)).hexdigest()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    source = write_idx(tmp_path / "source")
    (source / IDX_FILES["y_test"]).unlink()
    with pytest.raises(InvalidInputError, match="lacks t10k-labels-idx1-ubyte"):
        load(source, tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_file_is_named(packed: bool, tmp_path: Path) -> None:
    source = write_idx(tmp_path / "source", packed=packed)
    path = source / (IDX_FILES["x_train"] + (".gz" if packed else ""))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match=r"train-images.* is .*truncated"):
        load(source, tmp_path)


def test_a_truncated_npz_is_named(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "source" / "mnist.npz")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match=r"mnist\.npz is damaged or truncated"):
        load(path.parent, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_train": np.arange(30) % 11}, "label 10 of the train images is 10; allowed are 0 to 9"),
        ({"y_train": np.zeros(29, np.uint8)}, "30 train images but 29 labels"),
        ({"y_train": np.zeros(30)}, "one integer per image"),
        ({"x_train": np.zeros((30, 28, 28))}, "holds float64"),
        ({"x_train": np.zeros((30, 784), np.uint8)}, r"shape \(30, 784\)"),
        ({"x_test": np.array([None])}, "damaged"),
    ],
)
def test_arrays_that_are_no_digits_are_refused(
    changes: dict[str, object], words: str, tmp_path: Path
) -> None:
    source = write_npz(tmp_path / "source" / "mnist.npz", **changes)
    with pytest.raises(InvalidInputError, match=words):
        load(source, tmp_path)


def test_a_header_that_promises_more_than_memory_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="promises"):
        parse_idx(bytes([0, 0, 8, 3]) + b"\xff" * 12, 3, "file")


def test_two_equally_near_files_are_not_chosen_between(tmp_path: Path) -> None:
    write_idx(tmp_path / "source" / "mnist")
    write_idx(tmp_path / "source" / "fashion")
    with pytest.raises(InvalidInputError, match="both match"):
        load(tmp_path / "source", tmp_path)
