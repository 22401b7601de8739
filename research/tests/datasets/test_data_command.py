"""Command ``data``: what a user sees, and one line and exit code 2 for bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import (
    tar_folder,
    write_cifar_binary,
    write_cifar_python,
    write_gtsrb,
    write_idx,
    zip_folder,
)

from poisonproof_research.cli import run
from poisonproof_research.datasets import load_images


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
    assert "others" in signs
    (digits,) = [line for line in lines if " mnist " in line]
    assert "not imported" in digits


def broken_image(tmp_path: Path) -> list[str]:
    source = write_gtsrb(tmp_path / "source")
    (source / "GTSRB" / "Final_Test" / "Images" / "00002.ppm").write_bytes(b"P6 48 48 255\nshort")
    return ["gtsrb", "--from", str(source)]


def absent_image(tmp_path: Path) -> list[str]:
    source = write_gtsrb(tmp_path / "source")
    (source / "GTSRB" / "Final_Test" / "Images" / "00002.ppm").unlink()
    return ["gtsrb", "--from", str(source)]


WRITERS: dict[str, Callable[[Path], Path]] = {
    "gtsrb": write_gtsrb,
    "cifar10": write_cifar_binary,
    "cifar10 python": write_cifar_python,
}


def truncated(form: str, name: str, kept: float) -> Callable[[Path], list[str]]:
    """Cut an archive off; the name of its file says which kind it is."""

    def prepare(tmp_path: Path) -> list[str]:
        folder, archive = WRITERS[form](tmp_path / "unpacked"), tmp_path / "source" / name
        archive.parent.mkdir()
        (zip_folder if name.endswith(".zip") else tar_folder)(folder, archive)
        archive.write_bytes(archive.read_bytes()[: int(kept * archive.stat().st_size)])
        return [form.split(maxsplit=1)[0], "--from", str(archive)]

    return prepare


def missing_file(tmp_path: Path) -> list[str]:
    source = write_idx(tmp_path / "source")
    (source / "train-labels-idx1-ubyte").unlink()
    return ["mnist", "--from", str(source)]


def wrong_digest(tmp_path: Path) -> list[str]:
    return ["mnist", "--from", str(write_idx(tmp_path / "source"))]


BAD_FILES = [
    (wrong_digest, "This is not the published MNIST: the MD5 of train-images-idx3-ubyte is"),
    (missing_file, "lacks train-labels-idx1-ubyte"),
    *(
        (truncated(form, name, kept), f"source/{name} is damaged or truncated")
        for form, name in [
            ("cifar10", "cifar-10-binary.tar.gz"),
            ("cifar10", "cifar-10-binary.zip"),
            ("cifar10 python", "cifar-10-python.tar.gz"),
            ("cifar10 python", "cifar-10-python.zip"),
            ("gtsrb", "GTSRB.tar.gz"),
            ("gtsrb", "GTSRB.zip"),
        ]
        for kept in (0.0, 0.5, 0.98)
    ),
    (broken_image, "Final_Test/Images/00002.ppm cannot be decoded"),
    (absent_image, "GT-final_test.csv, line 4 names 00002.ppm, which is not in"),
]


def seen_after_refusal(arguments: list[str], words: str, shown: pytest.CaptureFixture[str]) -> None:
    """Run the command: nothing on the output, one line of errors, exit code 2."""
    assert run(["data", *arguments]) == 2
    seen = shown.readouterr()
    assert seen.out == ""
    (line,) = seen.err.splitlines()
    assert line.startswith("Error: ")
    assert words in line


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        *BAD_FILES,
        (lambda path: ["mnist", "--from", str(path / "absent")], "neither a folder nor a file"),
        (lambda path: ["mnits", "--from", str(path)], "'mnits' is not a published dataset: mnist,"),
        (lambda path: ["mnist"], "either --from DIR"),
        (lambda path: ["mnist", "--from", str(path), "--download"], "either --from DIR"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_cache(
    prepare: Callable[[Path], list[str]],
    words: str,
    cache: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen_after_refusal(prepare(tmp_path), words, capsys)
    assert not list(cache.glob("*/*"))
