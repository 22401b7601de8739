"""A model directory is written whole or not at all, and read only if nothing changed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from poisonproof.exceptions import StoreError
from poisonproof.store import directory, read_model, write_model

FILES = {"members.skops": b"members", "templates.skops": b"templates"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path / "model", {"note": "hello"}, FILES)
    return tmp_path / "model"


def rewrite(model: Path, **changes: Any) -> None:
    manifest = json.loads((model / "manifest.json").read_text()) | changes
    (model / "manifest.json").write_text(json.dumps(manifest))


def test_what_was_written_is_read(model: Path) -> None:
    manifest, files = read_model(model)
    assert manifest["note"] == "hello"
    assert files == FILES


def test_parents_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_model(tmp_path / "a" / "b" / "model", {}, FILES)
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["model"]


def test_a_model_replaces_a_model(model: Path) -> None:
    write_model(model, {"note": "again"}, {"members.skops": b"new"})
    manifest, files = read_model(model)
    assert manifest["note"] == "again"
    assert files == {"members.skops": b"new"}
    assert [path.name for path in model.parent.iterdir()] == ["model"]


def test_anything_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    (tmp_path / "notes.txt").write_text("more work")
    for name in ("thesis", "notes.txt"):
        with pytest.raises(StoreError, match="not a poisonproof model"):
            write_model(tmp_path / name, {}, FILES)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"
    assert (tmp_path / "notes.txt").read_text() == "more work"


def test_a_failed_write_leaves_the_earlier_model(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(directory, "_write_synced", full_disk)
    with pytest.raises(StoreError, match="No space left"):
        write_model(model, {"note": "lost"}, FILES)
    assert read_model(model)[0]["note"] == "hello"
    assert [path.name for path in model.parent.iterdir()] == ["model"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_is_said_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Permission denied"):
        write_model(tmp_path / "model", {}, FILES)


def test_a_parent_that_is_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write a model"):
        write_model(tmp_path / "file" / "model", {}, FILES)


@pytest.mark.parametrize("position", [0, 3, -1])
def test_a_flipped_byte_is_found(model: Path, position: int) -> None:
    data = bytearray((model / "members.skops").read_bytes())
    data[position] ^= 1
    (model / "members.skops").write_bytes(data)
    with pytest.raises(StoreError, match=r"members\.skops is damaged"):
        read_model(model)


def test_a_missing_file_is_found(model: Path) -> None:
    (model / "templates.skops").unlink()
    with pytest.raises(StoreError, match=r"templates\.skops cannot be read"):
        read_model(model)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "\x00", "[" * 100_000])
def test_a_damaged_manifest_is_refused(model: Path, text: str) -> None:
    (model / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        read_model(model)


def test_a_manifest_that_is_not_text_is_refused(model: Path) -> None:
    (model / "manifest.json").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(StoreError, match=r"manifest\.json"):
        read_model(model)


@pytest.mark.parametrize("version", [0, 2, "1", None, 1.5])
def test_other_versions_are_refused_by_number(model: Path, version: Any) -> None:
    rewrite(model, version=version)
    with pytest.raises(StoreError, match="format version"):
        read_model(model)


def test_a_foreign_manifest_is_refused(model: Path) -> None:
    rewrite(model, format="npm-package")
    with pytest.raises(StoreError, match="does not describe a poisonproof model"):
        read_model(model)


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/passwd",
        "a/b",
        "..",
        ".",
        "",
        "manifest.json",
        "a\\..\\b",
        "nul\x00",
        "C:x",
    ],
)
def test_names_that_lead_elsewhere_are_refused(model: Path, name: str) -> None:
    (model.parent / "secret").write_bytes(b"members")
    entry = json.loads((model / "manifest.json").read_text())["files"]["members.skops"]
    rewrite(model, files={name: entry})
    with pytest.raises(StoreError):
        read_model(model)


def test_a_link_out_of_the_directory_is_refused(model: Path) -> None:
    outside = model.parent / "outside"
    outside.write_bytes(b"members")
    (model / "members.skops").unlink()
    (model / "members.skops").symlink_to(outside)
    with pytest.raises(StoreError, match="link"):
        read_model(model)


@pytest.mark.parametrize("files", [None, [], "x", {"members.skops": None}, {"members.skops": {}}])
def test_a_file_list_that_is_none_is_refused(model: Path, files: Any) -> None:
    rewrite(model, files=files)
    with pytest.raises(StoreError):
        read_model(model)


def test_a_path_that_is_no_model_is_said(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreError, match="is not a poisonproof model"):
            read_model(path)


def test_not_a_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_model(tmp_path / "model", {"x": float("nan")}, FILES)
    assert list(tmp_path.iterdir()) == []
