from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.datasets import FolderOptions, import_image_folder, load_images


def write_image(path: Path, value: int, size: tuple[int, int] = (6, 5)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(value)
    Image.fromarray(draw.integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)


def load(source: Path, tmp_path: Path, options: FolderOptions | None = None):
    import_image_folder("signs", source, options, cache=tmp_path / "cache")
    return load_images("signs", tmp_path / "cache")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    for number, path in enumerate(
        [
            "train/stop/b.png",
            "train/stop/a.ppm",
            "train/Go/10.png",
            "train/Go/9.png",
            "test/Go/x.bmp",
        ]
    ):
        write_image(folder / path, number)
    return folder


def test_order_is_by_class_and_path_whatever_the_file_system_says(
    source: Path, tmp_path: Path
) -> None:
    dataset = load(source, tmp_path)
    assert dataset.class_names == ("Go", "stop")
    assert dataset.y_train.tolist() == [0, 0, 1, 1]
    for image, path in zip(
        dataset.x_train, ["Go/10.png", "Go/9.png", "stop/a.ppm", "stop/b.png"], strict=True
    ):
        pixels = np.asarray(Image.open(source / "train" / path))
        np.testing.assert_array_equal(image, pixels.transpose(2, 0, 1))
    assert dataset.y_test.tolist() == [0]
    assert not dataset.published


def test_without_splits_all_is_training(tmp_path: Path) -> None:
    for label in ("a", "b"):
        write_image(tmp_path / "source" / label / "0.png", 0)
    dataset = load(tmp_path / "source", tmp_path)
    assert dataset.x_train.shape == (2, 3, 6, 5)
    assert dataset.x_test.shape == (0, 3, 6, 5)


def test_declared_classes_decide_the_labels(source: Path, tmp_path: Path) -> None:
    dataset = load(source, tmp_path, FolderOptions(classes=("yield", "stop", "Go")))
    assert dataset.y_train.tolist() == [1, 1, 2, 2]
    assert dataset.class_names == ("yield", "stop", "Go")
    with pytest.raises(InvalidInputError, match=r"class 'stop'; known are Go"):
        load(source, tmp_path, FolderOptions(classes=("Go",)))


def test_resizing_keeps_the_originals(source: Path, tmp_path: Path) -> None:
    write_image(source / "train" / "Go" / "a.png", 7, size=(20, 30))
    with pytest.raises(InvalidInputError, match=r"a\.png has 30 x 20 pixels, but the first"):
        load(source, tmp_path)
    dataset = load(source, tmp_path, FolderOptions(size=(8, 4), gray=True))
    assert dataset.x_train.shape == (5, 8, 4)
    assert [image.shape for image in dataset.originals_train][:3] == [(6, 5), (6, 5), (20, 30)]
    image = Image.open(source / "train" / "Go" / "a.png").convert("L")
    expected = np.asarray(image.resize((4, 8), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(dataset.x_train[2], expected)


def test_links_are_not_followed(source: Path, tmp_path: Path) -> None:
    (source / "train" / "Go" / "link.png").symlink_to(source / "test" / "Go" / "x.bmp")
    with pytest.raises(InvalidInputError, match=r"link\.png is a symbolic link"):
        load(source, tmp_path)


def test_links_to_folders_are_not_entered(source: Path, tmp_path: Path) -> None:
    (source / "train" / "other").symlink_to(source / "test" / "Go")
    with pytest.raises(InvalidInputError, match="other is a symbolic link"):
        load(source, tmp_path)


def test_a_file_that_is_no_image_is_named(source: Path, tmp_path: Path) -> None:
    (source / "train" / "Go" / "notes.txt").write_text("hello")
    with pytest.raises(InvalidInputError, match=r"notes\.txt is not a PNG"):
        load(source, tmp_path)


def test_an_image_that_does_not_decode_is_named(source: Path, tmp_path: Path) -> None:
    path = source / "train" / "stop" / "b.png"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InvalidInputError, match=r"b\.png (does not decode|is not a PNG)"):
        load(source, tmp_path)


@pytest.mark.parametrize("side", [5_000, 20_000])
def test_an_image_bomb_is_refused_before_it_is_decoded(
    side: int, source: Path, tmp_path: Path
) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    (source / "train" / "Go" / "bomb.png").write_bytes(png)
    with pytest.raises(InvalidInputError, match=r"bomb\.png .*16,777,216"):
        load(source, tmp_path)


def test_more_than_eight_bits_are_refused(source: Path, tmp_path: Path) -> None:
    deep = np.full((6, 5), 40_000, dtype=np.uint16)
    Image.fromarray(deep).save(source / "train" / "Go" / "deep.png")
    with pytest.raises(
        InvalidInputError, match=r"deep\.png has pixels of more than 8 bits \(mode I;16"
    ):
        load(source, tmp_path)


@pytest.mark.parametrize("stray", ["train/stray.png", "stray.png", "valid/Go/a.png"])
def test_a_file_in_no_class_is_named(stray: str, source: Path, tmp_path: Path) -> None:
    write_image(source / stray, 3)
    with pytest.raises(InvalidInputError, match="lies in no class"):
        load(source, tmp_path)


@pytest.mark.parametrize("name", ["mnist", "list", "downloads", "a-equalized", "../x", "", "A"])
def test_names_that_mean_something_else_are_refused(
    name: str, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInputError, match=r"taken|cannot name"):
        import_image_folder(name, source, cache=tmp_path / "cache")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(InvalidInputError, match="holds no images"):
        load(tmp_path / "source", tmp_path)


def test_options_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        FolderOptions(classes=("a", "a"))
    with pytest.raises(InvalidInputError, match="sides"):
        FolderOptions(size=(0, 4))
