"""With SS-DPA no label may remove its sample: the others would move to other members."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from poisonproof.data import freeze_schema
from poisonproof.data.schema import dump_schema
from tests.cli.conftest import Cli
from tests.cli.test_hostile_input import IMAGES
from tests.data.builders import SCHEMA, mail_rows, write_csv

Image = pytest.importorskip("PIL.Image")

SS_DPA = ("--method", "ss-dpa", "--partitioner", "sorted", "-k", 6, "--model", "naive-bayes")
REFUSED = "one flipped label would move samples"
LABELS = {
    "unknown": "eggs",
    "quote": 'ha"m',
    "line break": '"ham\nand eggs"',
    "comma": "ham,spam",
    "not UTF-8": "h\udce4m",
}
strange_labels = pytest.mark.parametrize("label", list(LABELS.values()), ids=list(LABELS))


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "mails.csv", mail_rows(200))


def with_label(mails: Path, label: str) -> Path:
    """Add a row whose label is strange and whose sample is not."""
    text = f"{mails.read_text()}1,1,DE,hi,,u1,{label}\n"
    dirty = mails.with_name("dirty.csv")
    dirty.write_bytes(text.encode("utf-8", "surrogateescape"))
    return dirty


@pytest.fixture
def by_schema(tmp_path: Path) -> tuple[object, ...]:
    schema = freeze_schema(replace(SCHEMA, groups=None, ignore=("user",), frozen=""))
    (tmp_path / "mails.schema.json").write_bytes(dump_schema(schema))
    return "--schema", tmp_path / "mails.schema.json"


@pytest.fixture
def by_columns() -> tuple[object, ...]:
    columns = ("--label", "kind", "--classes", "ham,spam", "--features", "length,links")
    return *columns, "--invalid-rows", "drop"


@pytest.mark.parametrize("way", ["by_schema", "by_columns"])
@strange_labels
def test_no_label_of_a_table_removes_a_sample_from_training(
    cli: Cli, mails: Path, label: str, way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    declared = request.getfixturevalue(way)
    out = ("--out", tmp_path / "model")
    result = cli("train", with_label(mails, label), *declared, *SS_DPA, *out)
    assert (result.code, REFUSED in result.err) == (2, True)
    assert not (tmp_path / "model").exists()
    assert cli("train", mails, *declared, *SS_DPA, *out).code == 0


@strange_labels
@pytest.mark.parametrize("role", ["--add", "--data"])
def test_no_label_of_a_table_removes_a_sample_from_an_update(
    cli: Cli, mails: Path, by_schema: tuple[object, ...], label: str, role: str, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    assert cli("train", mails, *by_schema, *SS_DPA, "--out", model).code == 0
    before = (model / "manifest.json").read_bytes()
    one_row = write_csv(tmp_path / "one.csv", mail_rows(201)[-1:])
    files = {"--add": one_row, "--data": mails}
    result = cli("update", model, *pairs(files | {role: with_label(files[role], label)}))
    assert (result.code, REFUSED in result.err) == (2, True)
    assert (model / "manifest.json").read_bytes() == before
    result = cli("update", model, *pairs(files))
    assert result.code == 0, result.err


def pairs(files: dict[str, Path]) -> list[object]:
    return [word for pair in files.items() for word in pair]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(20):
            pixels = draw.integers(0, 256, (9, 9), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{i}.png")
    (tmp_path / "images.schema.json").write_bytes(dump_schema(IMAGES))
    return tmp_path / "photos"


LOST_IN = pytest.mark.parametrize("place", ["3.png", "bird/3.png", ".cat/3.png"])
"""Where an image may be moved, as if to give it another label: no class, another, a hidden one."""


def moved(photos: Path, place: str) -> None:
    (photos / place).parent.mkdir(exist_ok=True)
    (photos / "cat" / "3.png").rename(photos / place)


@LOST_IN
def test_no_class_of_an_image_removes_it_from_training(
    cli: Cli, photos: Path, place: str, tmp_path: Path
) -> None:
    train = ("train", photos, "--schema", tmp_path / "images.schema.json", *SS_DPA)
    assert cli(*train, "--out", tmp_path / "before").code == 0
    moved(photos, place)
    result = cli(*train, "--out", tmp_path / "model")
    assert (result.code, REFUSED in result.err) == (2, True)
    assert f"file {place}" in " ".join(result.err.split())
    assert not (tmp_path / "model").exists()


@LOST_IN
def test_no_class_of_an_image_removes_it_from_an_update(
    cli: Cli, photos: Path, place: str, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    declared = ("--schema", tmp_path / "images.schema.json")
    assert cli("train", photos, *declared, *SS_DPA, "--keep-data", "--out", model).code == 0
    before = (model / "manifest.json").read_bytes()
    moved(photos, place)
    result = cli("update", model, "--add", photos)
    assert (result.code, REFUSED in result.err) == (2, True)
    assert (model / "manifest.json").read_bytes() == before
