"""A model directory is the old model or the new one, and read only if nothing changed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poisonproof.exceptions import StoreError
from poisonproof.store.manifest import Item, Manifest, ModelReader, canonical_json, packed
from poisonproof.store.writing import ModelWriter

DRAFT = Manifest(
    model={"context": "hello"},
    environment={},
    spec="spec",
    partition_sizes=[3, 4, 5],
    partition_digests=["p0", "p1", "p2"],
    family="list",
    shared={},
    member_digests=["m0", "m1", "m2"],
    failures={1: "no"},
)


def item(index: int, mark: str = "") -> Item:
    return Item(index, f"p{index}", f"m{index}{mark}", {"x": 1}, {"w": np.arange(3) + index})


def write(path: Path, draft: Manifest = DRAFT, marks: dict[int, str] | None = None) -> Manifest:
    marks = marks or {}
    with ModelWriter(path) as writer:
        writer.commit(draft, b"templates", lambda which: [item(i, marks.get(i, "")) for i in which])
    return ModelReader.open(path).manifest


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write(tmp_path / "model")
    return tmp_path / "model"


def objects(model: Path) -> set[str]:
    return {path.name for path in (model / "objects").iterdir()}


def rewrite(model: Path, **changes: Any) -> None:
    manifest = json.loads((model / "manifest.json").read_text()) | changes
    (model / "manifest.json").write_bytes(canonical_json(manifest))


def test_what_was_written_is_read(model: Path) -> None:
    reader = ModelReader.open(model)
    assert reader.manifest.model == {"context": "hello"}
    assert reader.manifest.failures == {1: "no"}
    assert bytes(reader.place.object(reader.manifest.templates)) == b"templates"
    assert reader.member(2).tensors["w"].tolist() == [2, 3, 4]
    assert reader.member(2).about == {"x": 1}


def test_nothing_but_the_model_is_left(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "model")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["model"]
    names = {path.name for path in (tmp_path / "a" / "b" / "model").iterdir()}
    assert names == {"manifest.json", "objects", "lock"}


def test_a_model_replaces_a_model_and_no_file_of_the_old_one_stays(model: Path) -> None:
    before = objects(model)
    draft = replace(DRAFT, member_digests=["m0a", "m1a", "m2a"], model={"context": "again"})
    manifest = write(model, draft, {0: "a", 1: "a", 2: "a"})
    assert ModelReader.open(model).manifest == manifest
    assert objects(model) == set(manifest.objects)
    assert len(objects(model) & before) == 1  # the templates


def test_unchanged_blocks_are_not_written_again(model: Path) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in (model / "objects").iterdir()}
    write(model, replace(DRAFT, model={"context": "again"}))
    assert stamps == {path: path.stat().st_mtime_ns for path in (model / "objects").iterdir()}


def test_saving_over_a_damaged_model_repairs_it(model: Path) -> None:
    path = block(model)
    path.write_bytes(bytes(path.stat().st_size))
    write(model)
    assert ModelReader.open(model).member(2).tensors["w"].tolist() == [2, 3, 4]


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name)
    for path in (tmp_path / "a").rglob("*"):
        if path.is_file():
            assert (
                path.read_bytes()
                == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
            )


def test_anything_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    (tmp_path / "notes.txt").write_text("more work")
    for name in ("thesis", "notes.txt"):
        with pytest.raises(StoreError, match="not a poisonproof model"):
            write(tmp_path / name)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"
    assert (tmp_path / "notes.txt").read_text() == "more work"


def test_two_writers_are_not_allowed(model: Path) -> None:
    with ModelWriter(model), pytest.raises(StoreError, match="another process is writing"):
        write(model)
    write(model)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_is_said_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Permission denied"):
        write(tmp_path / "model")


def test_a_parent_that_is_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write a model"):
        write(tmp_path / "file" / "model")


def block(model: Path) -> Path:
    return model / "objects" / ModelReader.open(model).manifest.members[0].name


@pytest.mark.parametrize("position", [0, 30, -1])
def test_a_flipped_byte_is_found_and_the_file_and_its_members_named(
    model: Path, position: int
) -> None:
    path = block(model)
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match=rf"{path.name} is damaged.*partition 0, 1, 2"):
        ModelReader.open(model).member(1)


def test_a_missing_file_is_named(model: Path) -> None:
    path = block(model)
    path.unlink()
    with pytest.raises(StoreError, match=rf"{path.name} cannot be read"):
        ModelReader.open(model).member(0)


def test_a_link_out_of_the_directory_is_refused(model: Path) -> None:
    path = block(model)
    path.rename(model.parent / "outside")
    path.symlink_to(model.parent / "outside")
    with pytest.raises(StoreError, match="is a link, not a regular file"):
        ModelReader.open(model).member(0)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "\x00", "[" * 100_000, "NaN"])
def test_a_damaged_manifest_is_refused(model: Path, text: str) -> None:
    (model / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        ModelReader.open(model)


def test_a_manifest_that_is_not_text_is_refused(model: Path) -> None:
    (model / "manifest.json").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(StoreError, match=r"manifest\.json"):
        ModelReader.open(model)


@pytest.mark.parametrize("version", [0, 1, 3, "2", None, 2.5, True])
def test_other_versions_are_refused_by_number(model: Path, version: Any) -> None:
    rewrite(model, version=version)
    with pytest.raises(StoreError, match="format version"):
        ModelReader.open(model)


def test_a_foreign_manifest_is_refused(model: Path) -> None:
    rewrite(model, format="npm-package")
    with pytest.raises(StoreError, match="does not describe a poisonproof model"):
        ModelReader.open(model)


def test_a_manifest_written_in_another_way_is_refused(model: Path) -> None:
    """Two texts for one content would let a change go unnoticed."""
    manifest = json.loads((model / "manifest.json").read_text())
    (model / "manifest.json").write_text(json.dumps(manifest, indent=1))
    with pytest.raises(StoreError, match="was edited"):
        ModelReader.open(model)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", "..", "", "manifest.json", "nul\x00", None, 7]
)
def test_names_that_lead_elsewhere_are_refused(model: Path, name: Any) -> None:
    members = json.loads((model / "manifest.json").read_text())["members"]
    members[0]["name"] = name
    rewrite(model, members=members)
    with pytest.raises(StoreError, match=r"is not a block|a block needs a name"):
        ModelReader.open(model)


@pytest.mark.parametrize("number", [-1, 2**62, 1.0, True, "1", None])
def test_a_count_that_is_none_is_refused(model: Path, number: Any) -> None:
    sizes = json.loads((model / "manifest.json").read_text())["partition_sizes"]
    sizes[0] = number
    rewrite(model, partition_sizes=sizes)
    with pytest.raises(StoreError, match="sizes of partitions are integers"):
        ModelReader.open(model)


@pytest.mark.parametrize("number", [-1, 0.0, False, "0", None])
def test_a_block_of_partitions_without_numbers_is_refused(model: Path, number: Any) -> None:
    members = json.loads((model / "manifest.json").read_text())["members"]
    members[0]["items"][0] = number
    rewrite(model, members=members)
    with pytest.raises(StoreError, match="is not a block"):
        ModelReader.open(model)


def test_a_path_that_is_no_model_is_said(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreError, match="is not a poisonproof model"):
            ModelReader.open(path)


def test_not_a_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write(tmp_path / "model", replace(DRAFT, shared={"x": float("nan")}))
    with pytest.raises(StoreError, match="not a poisonproof model"):
        ModelReader.open(tmp_path / "model")


def test_small_items_share_blocks_and_large_ones_do_not_make_thousands() -> None:
    small = [Item(i, "", "", {}, {"w": np.zeros(2**12)}) for i in range(100)]
    assert [len(block) for block in packed(small)] == [32, 32, 32, 4]
    large = [Item(i, "", "", {}, {"w": np.zeros(2**19)}) for i in range(40)]
    assert [len(block) for block in packed(large)] == [16, 16, 8]
