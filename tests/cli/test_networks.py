"""A folder of images through a network of the user: from schema to prediction."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from poisonproof.cli._app import run
from poisonproof.data import load_schema
from poisonproof.exceptions import GuaranteeError
from tests.features.small_network import network_file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Dark and light photos, and a network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("POISONPROOF_CACHE", str(tmp_path / "cache"))
    shutil.copy(network_file(), "network.safetensors")
    rng = np.random.default_rng(0)
    for i in range(120):
        kind, level = (("dark", 60), ("light", 190))[i % 2]
        pixels = rng.integers(level - 50, level + 50, (12, 18, 3)).astype(np.uint8)
        file = Path("photos" if i < 100 else "new", kind if i < 100 else "", f"{i}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return tmp_path


def propose(*more: str) -> int:
    return run(["schema", "photos", "--network", "network.safetensors", "--out", "s.json", *more])


def test_a_network_goes_from_schema_to_prediction(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert propose() == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "colour image, 16 x 16, 384 numbers by network.safetensors" in said
    assert run(["schema", "s.json", "--freeze"]) == 0
    train = ["train", "photos", "--schema", "s.json", "-k", "7", "--out", "m"]
    assert run(train) == 0
    assert "384 features" in " ".join(capsys.readouterr().out.split())
    assert list((home / "cache" / "features").glob("*.sqlite"))
    assert run(["predict", "m", "new", "--out", "p.csv"]) == 0
    lines = Path("p.csv").read_text().splitlines()[1:]
    expected = [("dark", "light")[i % 2] for i in range(100, 120)]
    assert [line.split(",")[1] for line in lines] == expected
    assert run(["certify", "m", "photos", "--held-out"]) == 0
    shutil.copy(network_file(seed=1), "network.safetensors")
    capsys.readouterr()
    assert run(["predict", "m", "new"]) == 2
    assert "not the one that was declared" in capsys.readouterr().err


def test_another_network_in_a_frozen_schema_breaks_its_seal(home: Path) -> None:
    assert propose() == 0
    assert run(["schema", "s.json", "--freeze"]) == 0
    values = json.loads(Path("s.json").read_text())
    values["columns"][0]["digest"] = "0" * 64
    Path("s.json").write_text(json.dumps(values))
    with pytest.raises(GuaranteeError, match="changed after it was frozen"):
        load_schema("s.json")


def test_a_schema_without_a_network_is_written_as_before(home: Path) -> None:
    assert run(["schema", "photos", "--out", "s.json"]) == 0
    (column,) = json.loads(Path("s.json").read_text())["columns"]
    assert set(column) == {"name", "type", "height", "width", "gray", "encoder", "cell"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["schema", "photos", "--network", "none.safetensors"], "none.safetensors"),
        (["schema", "photos", "--network", "photos/dark/0.png"], "is not a network file"),
        (["schema", "photos", "--network", "network.safetensors", "--size", "8x8"], "out --size"),
        (
            ["schema", "t.csv", "--label", "y", "--network", "network.safetensors"],
            "folders of images",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    more: list[str], said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.csv").write_text("x,y\n1,a\n2,b\n")
    assert run([*more, "--out", "s.json"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.strip().splitlines()) <= 3
    assert not Path("s.json").exists()
