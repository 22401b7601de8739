"""``poisonproof data``: what the user sees, and one line with exit code 2 for bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from poisonproof.cli._app import run
from poisonproof.datasets.images import load_images
from tests.datasets.images.builders import write_cifar_archive, write_gtsrb, write_idx


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POISONPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "cache"


def test_an_import_says_what_came_in(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_idx(tmp_path / "source", packed=True)
    assert run(["data", "mnist", "--from", str(source), "--unpublished"]) == 0
    shown = capsys.readouterr().out
    assert "mnist: 30 training and 12 test images of 28 x 28, 10 classes." in shown
    assert "Not checked against published digests" in shown
    assert load_images("mnist", cache).digest in shown


def test_the_list_shows_what_is_there_and_what_could_be(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["data", "gtsrb", "--from", str(write_gtsrb(tmp_path / "source")), "--unpublished"])
    capsys.readouterr()
    assert run(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (signs,) = [line for line in lines if "gtsrb" in line]
    assert "3 x 48 x 48" in signs
    assert "your own" in signs
    (digits,) = [line for line in lines if " mnist " in line]
    assert "not imported" in digits


def test_a_folder_of_images_gets_the_name_of_the_user(cache: Path, tmp_path: Path) -> None:
    for label in ("go", "stop"):
        (tmp_path / "source" / label).mkdir(parents=True)
        Image.fromarray(np.zeros((9, 7, 3), np.uint8)).save(tmp_path / "source" / label / "a.png")
    arguments = ["--classes", "stop,go,wait", "--size", "4x6", "--gray"]
    code = run(["data", "signs", "--from", str(tmp_path / "source"), "--folder", *arguments])
    assert code == 0
    dataset = load_images("signs", cache)
    assert dataset.x_train.shape == (2, 4, 6)
    assert dataset.class_names == ("stop", "go", "wait")


def broken_image(tmp_path: Path) -> list[str]:
    source = write_gtsrb(tmp_path / "source")
    (source / "GTSRB" / "Final_Test" / "Images" / "00002.ppm").write_bytes(b"P6 48 48 255\nshort")
    return ["gtsrb", "--from", str(source)]


def absent_image(tmp_path: Path) -> list[str]:
    source = write_gtsrb(tmp_path / "source")
    (source / "GTSRB" / "Final_Test" / "Images" / "00002.ppm").unlink()
    return ["gtsrb", "--from", str(source)]


def truncated_archive(tmp_path: Path) -> list[str]:
    archive = write_cifar_archive(tmp_path / "source")
    archive.write_bytes(archive.read_bytes()[:-2000])
    return ["cifar10", "--from", str(archive.parent)]


def missing_file(tmp_path: Path) -> list[str]:
    source = write_idx(tmp_path / "source")
    (source / "train-labels-idx1-ubyte").unlink()
    return ["mnist", "--from", str(source)]


def wrong_digest(tmp_path: Path) -> list[str]:
    return ["mnist", "--from", str(write_idx(tmp_path / "source"))]


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (wrong_digest, "This is not the published MNIST: the MD5 of train-images-idx3-ubyte is"),
        (missing_file, "lacks train-labels-idx1-ubyte"),
        (truncated_archive, "cifar-10-binary.tar.gz is damaged or truncated"),
        (broken_image, "Final_Test/Images/00002.ppm does not decode"),
        (absent_image, "GT-final_test.csv, line 4 names 00002.ppm, which is not in"),
        (lambda path: ["mnist", "--from", str(path / "absent")], "neither a folder nor a file"),
        (lambda path: ["mnits", "--from", str(path)], "'mnits' is not a known dataset: mnist,"),
        (lambda path: ["mnist"], "either --from DIR"),
        (lambda path: ["mnist", "--from", str(path), "--download"], "either --from DIR"),
        (lambda path: ["mnist", "--from", str(path), "--gray"], "are for --folder"),
        (lambda path: ["x", "--folder", "--download"], "use it with --from alone"),
        (lambda path: ["x", "--folder", "--from", str(path), "--size", "48"], "48x48. Got '48'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_cache(
    prepare: Callable[[Path], list[str]],
    words: str,
    cache: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["data", *prepare(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("Error: ")
    assert words in line
    assert not list(cache.glob("*/*"))
