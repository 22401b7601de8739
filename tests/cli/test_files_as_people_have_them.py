"""Files that other programs wrote: proposed, frozen and trained on, or refused in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import Cli


def german(path: Path, encoding: str = "latin-1") -> Path:
    """Write what a German spreadsheet exports."""
    towns = ["Köln", "München", "Bonn", "Görlitz"]
    lines = [
        f"{towns[i % 4]};{i * 37 % 100},5;{i % 9},5 %;"
        f"{i % 28 + 1:02}.{i % 12 + 1:02}.2021 1{i % 9}:30;"
        f"{'ja' if i % 4 == 1 else 'nein'}\n"
        for i in range(400)
    ]
    data = ("ort;preis;rabatt;am;ziel\n" + "".join(lines)).encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def freeze(cli: Cli, data: Path, label: str, *options: str) -> Path:
    schema = data.with_suffix(".json")
    assert cli("schema", data, "--label", label, "--out", schema, *options).code == 0
    assert cli("schema", schema, "--freeze").code == 0
    return schema


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_german_export_is_trained_on_without_an_edit(cli: Cli, tmp_path: Path, name: str) -> None:
    data = german(tmp_path / name)
    said = cli("schema", data, "--label", "ziel", "--date-parts", "hour,month").out
    assert said.startswith("Warning: 300 of 400 lines are not UTF-8.")
    assert "encoding 'cp1252', delimiter ';'" in said
    schema = freeze(cli, data, "ziel", "--date-parts", "hour,month")
    columns = {column["name"]: column for column in json.loads(schema.read_text())["columns"]}
    assert columns["preis"]["format"] == columns["rabatt"]["format"] == "1234,5"
    assert columns["rabatt"]["unit"] == "%"
    assert (columns["am"]["format"], columns["am"]["parts"]) == (
        "%d.%m.%Y %H:%M",
        ["hour", "month"],
    )
    trained = cli("train", data, "--schema", schema, "-k", "5", "--out", tmp_path / "m")
    assert trained.code == 0
    assert "Left out" not in trained.out
    predicted = cli("predict", tmp_path / "m", data, "--out", tmp_path / "p.csv")
    assert predicted.code == 0, predicted.err
    assert (tmp_path / "p.csv").read_text().count("\n") == 401


@pytest.mark.parametrize("stream", [(), ("--stream",)])
def test_train_refuses_a_file_of_which_most_rows_do_not_fit(
    cli: Cli, tmp_path: Path, stream: tuple[str, ...]
) -> None:
    utf8, latin = german(tmp_path / "u.csv", "utf-8"), german(tmp_path / "l.csv")
    train = ("--schema", freeze(cli, utf8, "ziel"), "-k", "3", *stream, "--out", tmp_path / "m")
    refused = cli("train", latin, *train)
    assert refused.code == 2
    assert "More than half of the rows of" in refused.err
    assert "300; the first" in refused.err
    assert "is not UTF-8" in refused.err
    assert "--invalid-rows drop" in refused.err
    assert not (tmp_path / "m").exists()
    told = cli("train", latin, *train, "--invalid-rows", "drop")
    assert told.code == 0
    assert "Left out 300 rows that did not fit, more than half of all" in " ".join(told.out.split())


@pytest.mark.parametrize("stream", [(), ("--stream",)])
@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_file_that_is_cut_off_is_an_error_and_nothing_is_written(
    cli: Cli, tmp_path: Path, kind: str, stream: tuple[str, ...]
) -> None:
    text = b"a,y\n" + b"".join(b"%d,%d\n" % (i, i % 2) for i in range(9000))
    whole = gzip.compress(text) if kind == "gz" else pa.compress(text, codec="zstd", asbytes=True)
    path = tmp_path / f"t.csv.{kind}"
    path.write_bytes(whole[: len(whole) * 3 // 4])
    options = ("--label", "y", "--classes", "0,1", "-k", "3", *stream, "--out", tmp_path / "m")
    refused = cli("train", path, *options)
    assert refused.code == 2
    assert "is damaged or cut off" in refused.err
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    refused = cli("schema", path, "--label", "y", "--out", tmp_path / "s.json")
    assert (refused.code, (tmp_path / "s.json").exists()) == (2, False)
    path.write_bytes(whole)
    assert cli("train", path, *options).code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--date", "a"), "--date a: none of its cells is a date"),
        (("--category", "a", "--text", "a"), "'a' is named twice"),
        (("--category", "b"), "has no column 'b'"),
        (("--encoding", "latin"), "encoding is one of utf-8, latin-1"),
        (("--date", "d", "--date-parts", "year"), "parts is a list of hour, weekday, month"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "t.csv").write_text("a,d,y\n" + "x,2020-01-01,0\nz,2020-01-02,1\n" * 9)
    refused = cli("schema", tmp_path / "t.csv", "--label", "y", *options)
    assert refused.code == 2
    assert words in " ".join(refused.err.split())
