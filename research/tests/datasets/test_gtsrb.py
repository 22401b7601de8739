from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from builders import sign, write_gtsrb, zip_folder
from PIL import Image, ImageOps

from poisonproof.exceptions import InvalidInputError
from poisonproof.partition import PixelSum
from poisonproof_research.datasets import import_images, load_images

TRAINING = Path("GTSRB", "Final_Training", "Images")


def load(source: Path, tmp_path: Path, name: str = "gtsrb"):
    import_images("gtsrb", source, cache=tmp_path / "cache", published=False)
    return load_images(name, tmp_path / "cache")


def test_originals_keep_their_sizes_and_order(tmp_path: Path) -> None:
    dataset = load(write_gtsrb(tmp_path / "source"), tmp_path)
    expected = [sign(label, number) for label in range(3) for number in range(3)]
    assert len(dataset.originals_train) == len(expected)
    for original, pixels in zip(dataset.originals_train, expected, strict=True):
        np.testing.assert_array_equal(original, pixels.transpose(2, 0, 1))
    assert dataset.y_train.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert dataset.y_test.tolist() == [0, 1, 2, 0]


def test_partitions_are_those_of_the_original_pixels(tmp_path: Path) -> None:
    dataset = load(write_gtsrb(tmp_path / "source"), tmp_path)
    sums = [int(sign(label, n).sum(dtype=np.int64)) for label in range(3) for n in range(3)]
    assert dataset.originals_train.sums().tolist() == sums
    parts = PixelSum(n_partitions=7).assign(list(dataset.originals_train))
    assert parts.tolist() == [total % 7 for total in sums]


@pytest.mark.parametrize("name", ["gtsrb", "gtsrb-equalized"])
def test_resized_images_are_those_of_pillow(name: str, tmp_path: Path) -> None:
    dataset = load(write_gtsrb(tmp_path / "source"), tmp_path, name)
    image = Image.fromarray(sign(1, 2))
    if name == "gtsrb-equalized":
        image = ImageOps.equalize(image)
    expected = np.asarray(image.resize((48, 48), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(dataset.x_train[5], expected.transpose(2, 0, 1))
    assert dataset.x_test.shape == (4, 3, 48, 48)


def test_the_official_archives_are_read_in_place(tmp_path: Path) -> None:
    folder = write_gtsrb(tmp_path / "source")
    reference = load(folder, tmp_path)
    packed = tmp_path / "packed"
    packed.mkdir()
    zip_folder(folder, packed / "GTSRB_all.zip")
    assert load(packed, tmp_path).digest == reference.digest


def test_an_image_that_no_csv_names_is_refused(tmp_path: Path) -> None:
    source = write_gtsrb(tmp_path / "source")
    Image.fromarray(sign(0, 0)).save(source / TRAINING / "00001" / "00007_00000.ppm")
    with pytest.raises(InvalidInputError, match=r"does not name .*00007_00000\.ppm"):
        load(source, tmp_path)


@pytest.mark.parametrize("missing", ["GT-final_test.csv", str(TRAINING / "00002" / "GT-00002.csv")])
def test_a_missing_csv_is_named(missing: str, tmp_path: Path) -> None:
    source = write_gtsrb(tmp_path / "source")
    (source / missing).unlink()
    with pytest.raises(InvalidInputError, match=Path(missing).name):
        load(source, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (";1\r\n", ";2\r\n", "lies in the folder of class 1"),
        (";1\r\n", ";43\r\n", "class 43 is not one of 0 to 42"),
        (";1\r\n", ";x\r\n", "integers"),
        ("00000_00000.ppm;40", "00000_00000.ppm;41", "its CSV file says 41 x 25"),
        ("00000_00000.ppm;40", "00000_00000.ppm;0", "not the size of a traffic sign"),
        ("00000_00000.ppm", "../00000/00000_00000.ppm", "is not in"),
        ("00000_00001.ppm", "00000_00000.ppm", "was named before"),
        ("Filename", "File", "needs the columns"),
        ("00000_00001.ppm", "x" * 200_000, r"GT-00001\.csv, after line 2: field larger"),
    ],
)
def test_a_csv_that_contradicts_the_files_is_refused(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    source = write_gtsrb(tmp_path / "source")
    path = source / TRAINING / "00001" / "GT-00001.csv"
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new).encode())
    with pytest.raises(InvalidInputError, match=words):
        load(source, tmp_path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_inside_an_archive_is_one_clear_error(method: int, tmp_path: Path) -> None:
    """Every decoder has errors of its own."""
    archive = zip_folder(write_gtsrb(tmp_path / "source"), tmp_path / "GTSRB.zip", method)
    data = bytearray(archive.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 100] = bytes(100)
    archive.write_bytes(data)
    with pytest.raises(InvalidInputError, match=r"GTSRB\.zip/.* is damaged or truncated: \w+"):
        load(archive, tmp_path)
