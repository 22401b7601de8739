"""Files made to do harm: a clear line or rows left out, nothing executed, nothing swallowed."""

from __future__ import annotations

import csv
import os
import time
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from poisonproof.data import ImageColumn, Schema, freeze_schema, load_schema, read_table
from tests.cli.conftest import Cli
from tests.data.builders import HEADER, mail_rows, write_csv

Image = pytest.importorskip("PIL.Image")

IMAGES = freeze_schema(
    Schema(
        kind="images",
        columns=(ImageColumn(name="image", height=8, width=8, gray=True, encoder="orientations"),),
        label="folder",
        classes=("cat", "dog"),
        test_share=0.25,
    )
)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, level in (("cat", 60), ("dog", 190)):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        for i in range(30):
            pixels = rng.integers(0, 60, (12, 10)) + level * (np.arange(12) < 6)[:, np.newaxis]
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def wide_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "wide.csv"
    n = 5 * 10**5
    with path.open("w") as file:
        file.write(",".join(f"c{i}" for i in range(n)) + ",kind\n")
        file.write("1," * n + "ham\n")
        file.write("2," * n + "spam\n")
    return path


def test_half_a_million_columns_are_refused_quickly(
    cli: Cli, wide_csv: Path, tmp_path: Path
) -> None:
    started = time.perf_counter()
    result = cli("schema", wide_csv, "--label", "kind", "--out", tmp_path / "s.json")
    assert result.code == 2
    assert "500,001 columns; a schema lists at most 20,000" in result.err
    assert len(result.err) < 400
    result = cli(
        *("train", wide_csv, "--label", "kynd", "--classes", "ham,spam", "--out", tmp_path / "m")
    )
    assert result.code == 2
    assert "has no column 'kynd'" in result.err
    assert len(result.err) < 600
    assert time.perf_counter() - started < 20


def test_a_header_without_an_end_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    with path.open("wb") as file:
        file.truncate(2**26)
    for command in ("schema", "train"):
        extra = ("--classes", "a,b") if command == "train" else ()
        result = cli(command, path, "--label", "y", *extra, "--out", tmp_path / "x.json")
        assert result.code == 2
        assert "must be a header" in result.err


def test_a_label_column_named_like_a_path_stays_a_name(cli: Cli, tmp_path: Path) -> None:
    label = "../../../tmp/owned/$(touch pwned)"
    header = [*HEADER[:-1], label]
    path = write_csv(tmp_path / "m.csv", mail_rows(200), header=header)
    schema, before = tmp_path / "s.json", set(tmp_path.parent.iterdir())
    assert cli("schema", path, "--label", label, "--ignore", "user", "--out", schema).code == 0
    assert cli("schema", schema, "--freeze").code == 0
    train = ("train", path, "--schema", schema, "--label", label, "-k", 5, "--out", tmp_path / "m")
    assert cli(*train).code == 0
    out = tmp_path / "rows.csv"
    assert cli("certify", tmp_path / "m", path, "--held-out", "--rows-out", out).code == 0
    assert {file.name for file in tmp_path.iterdir()} == {"m", "m.csv", "rows.csv", "s.json"}
    assert set(tmp_path.parent.iterdir()) == before


def test_markup_formulas_and_terminal_codes_in_cells_are_text(cli: Cli, tmp_path: Path) -> None:
    evil = [
        "<script>alert(1)</script> and more",
        "=HYPERLINK(\"http://x\") and more",
        "[/red][link=http://x]click[/link] and more",
        "\x1b]0;owned\x07\x1b[2J and more",
    ]  # fmt: skip
    rows = mail_rows(200)
    for i, text in enumerate(evil * 3):
        rows[i][HEADER.index("body")] = text
        rows[i][HEADER.index("land")] = text
    for i, text in enumerate(evil):
        rows[20 + i][HEADER.index("kind")] = text
    path = write_csv(tmp_path / "m.csv", rows)
    result = cli(
        "schema", path, "--label", "kind", "--groups", "user", "--out", tmp_path / "s.json"
    )
    assert result.code == 0, result.err
    assert "\x1b" not in result.out
    schema = load_schema(tmp_path / "s.json", require_frozen=False)
    assert set(evil) < set(schema.classes)
    assert "Seen once, a mistake or an attack?" in " ".join(result.out.split())
    assert cli("schema", tmp_path / "s.json", "--freeze").code == 0
    train = ("train", path, "--schema", tmp_path / "s.json", "-k", 5, "--model", "naive-bayes")
    trained = cli(*train, "--out", tmp_path / "m")
    assert trained.code == 0, trained.err
    predicted = cli("predict", tmp_path / "m", path, "--out", tmp_path / "p.csv")
    assert predicted.code == 0, predicted.err
    assert "\x1b" not in trained.out + predicted.out + trained.err + predicted.err


EVIL = "x\x1b[2J\x1b]0;owned\x07\x9b\u202etxt\u200b[bold]:boom:"


def test_names_of_files_labels_and_columns_are_shown_escaped(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / f"{EVIL}\nNote: all is well.csv"
    rows = [f"{u},{v},{EVIL if u > v else 'ham'}\n" for u, v in rng.normal(size=(300, 2)).tolist()]
    path.write_text(f"u{EVIL},v,kind\n" + "".join(rows))
    columns = ("--label", "kind", "--classes", f"ham,{EVIL}")
    model, report = tmp_path / f"m{EVIL}", tmp_path / "r.html"
    results = [
        cli("schema", path, "--label", "kind"),
        cli("train", path, *columns, "-k", 5, "--model", "naive-bayes", "--out", model),
        cli("predict", model, path, "--ignore", "kind"),
        cli("certify", model, path, "--label", "kind"),
        cli("report", model, path, "--label", "kind", "--out", report),
    ]
    assert [result.code for result in results] == [0] * 5, results
    wrong = path.with_name(f"{EVIL}.csv")
    wrong.write_text(f"u{EVIL},v,kind\n1,2,{EVIL}\n1,x{EVIL},ham\n")
    results += [
        cli("train", tmp_path / f"no{EVIL}.csv", *columns, "--out", tmp_path / "n"),
        cli("train", wrong, "--label", f"no{EVIL}", "--classes", "a,b", "--out", tmp_path / "n"),
        cli("train", wrong, *columns, "--out", tmp_path / "n"),
        cli("certify", model, wrong, "--label", "kind"),
        cli("train", path, "--nothing", EVIL),
        cli(f"no{EVIL}"),
    ]
    assert {result.code for result in results[5:]} == {2}
    for result in results:
        assert (result.out + result.err).replace("\n", "").isprintable(), result
        assert "\nNote: all is well" not in result.out + result.err
    assert "[bold]:boom:" in results[2].out.replace("\n", "")
    assert report.read_text().replace("\n", "").isprintable()


def test_a_parquet_name_that_is_not_utf_8_is_one_clear_error(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table({"caf_": [1.0, 2.0], "kind": ["a", "b"]})
    pq.write_table(table, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"caf_", b"caf\xe9"))
    train = ("train", path, "--label", "kind", "--classes", "a,b", "--out", tmp_path / "m")
    for result in (
        cli(*train),
        cli(*train, "--stream"),
        cli("schema", path, "--label", "kind"),
    ):
        assert result.code == 2, result
        assert "not UTF-8" in result.err
        assert result.err.count("\n") == 1


def test_mixed_types_in_one_column_are_a_matter_of_each_row(cli: Cli, tmp_path: Path) -> None:
    rows = mail_rows(100)
    strange = ["true", "0x10", "1_000", "١٢", "2024-01-01", "1,5", "None", "NULL"]
    for i, cell in enumerate(strange):
        rows[10 + i][HEADER.index("links")] = cell
    path = write_csv(tmp_path / "m.csv", rows)
    schema = tmp_path / "s.json"
    assert cli("schema", path, "--label", "kind", "--out", schema).code == 0
    assert cli("schema", schema, "--freeze").code == 0
    checked = read_table(path, load_schema(schema))
    assert [problem.place for problem in checked.problems] == list(range(12, 12 + len(strange)))


def test_non_utf_8_files_are_refused_or_lose_those_lines(cli: Cli, tmp_path: Path) -> None:
    header = tmp_path / "header.csv"
    header.write_bytes(b"caf\xe9,kind\n1,ham\n")
    out = ("-k", "1", "--out", tmp_path / "m")
    result = cli("train", header, "--label", "kind", "--classes", "ham,spam", *out)
    assert result.code == 2
    assert "byte 4 of the line is not UTF-8" in result.err
    utf_16 = tmp_path / "utf16.csv"
    utf_16.write_bytes("a,kind\n1,ham\n2,spam\n".encode("utf-16"))
    assert cli("schema", utf_16, "--label", "kind").code == 2


def bomb(side: int = 60_000) -> bytes:
    """Return a PNG file of a few kilobytes that says it is `side` pixels wide and high."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + crc

    size = side.to_bytes(4, "big")
    head = chunk(b"IHDR", size + size + b"\x08\x00\x00\x00\x00")
    body = chunk(b"IDAT", zlib.compress(b"\0" * 10**6))
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


def test_image_bombs_links_and_strange_files_are_left_out_alone(
    photos: Path, tmp_path: Path
) -> None:
    clean = read_table(photos, IMAGES)
    assert len(clean) == 60
    (photos / "cat" / "bomb.png").write_bytes(bomb())
    (photos / "cat" / "page.png").write_bytes(b"<svg onload=alert(1)>")
    (photos / "dog" / "cut.png").write_bytes((photos / "dog" / "0.png").read_bytes()[:60])
    (photos / "dog" / "loop").symlink_to(photos, target_is_directory=True)
    (photos / "dog" / "passwd.png").symlink_to("/etc/passwd")
    (photos / "loose.png").write_bytes((photos / "cat" / "0.png").read_bytes())
    (photos / "bird").mkdir()
    (photos / "bird" / "new.png").write_bytes((photos / "cat" / "0.png").read_bytes())
    os.mkfifo(photos / "dog" / "pipe.png")
    (Path(os.fsdecode(os.fsencode(photos / "cat") + b"/caf\xe9.png"))).write_bytes(b"no image")
    dirty = read_table(photos, IMAGES)
    reasons = {str(problem.place): problem.reason for problem in dirty.problems}
    assert set(reasons) == {
        "bird/new.png", "cat/bomb.png", "cat/caf\\udce9.png", "cat/page.png", "dog/cut.png",
        "dog/loop", "dog/passwd.png", "dog/pipe.png", "loose.png",
    }  # fmt: skip
    assert "pixels" in reasons["cat/bomb.png"]
    assert "symbolic link" in reasons["dog/loop"]
    assert reasons["dog/pipe.png"] == "is a named pipe, not a file"
    assert "not one of the declared classes" in reasons["bird/new.png"]
    assert np.array_equal(np.sort(dirty.places), np.sort(clean.places))
    assert np.array_equal(dirty.X, clean.X)


def test_a_folder_of_images_goes_from_schema_to_certificate(
    cli: Cli, photos: Path, tmp_path: Path
) -> None:
    schema = tmp_path / "s.json"
    proposed = cli("schema", photos, "--size", "8x8", "--out", schema)
    assert proposed.code == 0, proposed.err
    assert load_schema(schema, require_frozen=False).classes == ("cat", "dog")
    assert cli("schema", schema, "--freeze").code == 0
    trained = cli("train", photos, "--schema", schema, "-k", 6, "--out", tmp_path / "m")
    assert trained.code == 0, trained.err
    result = cli("predict", tmp_path / "m", photos / "cat", "--out", tmp_path / "p.csv")
    assert result.code == 0, result.err
    with (tmp_path / "p.csv").open() as file:
        assert {row["file"] for row in csv.DictReader(file)} == {f"{i}.png" for i in range(30)}
    assert cli("certify", tmp_path / "m", photos, "--label", "folder").code == 0


def test_hidden_files_are_passed_over_in_silence(cli: Cli, photos: Path, tmp_path: Path) -> None:
    (photos / ".DS_Store").write_bytes(b"x")
    (photos / "cat" / ".hidden.png").write_bytes((photos / "cat" / "0.png").read_bytes())
    (photos / ".cache").mkdir()
    (photos / ".cache" / "0.png").write_bytes((photos / "cat" / "0.png").read_bytes())
    schema = tmp_path / "s.json"
    assert cli("schema", photos, "--size", "8x8", "--out", schema).code == 0
    assert load_schema(schema, require_frozen=False).classes == ("cat", "dog")
    assert cli("schema", schema, "--freeze").code == 0
    trained = cli("train", photos, "--schema", schema, "-k", 6, "--out", tmp_path / "m")
    assert "did not fit" not in trained.out


def test_a_folder_without_a_schema_says_what_to_do(cli: Cli, photos: Path, tmp_path: Path) -> None:
    result = cli("train", photos, "--out", tmp_path / "m")
    assert result.code == 2
    assert "A folder of images needs a schema" in result.err


def test_networks_take_the_shape_of_the_images_from_the_schema(
    cli: Cli, photos: Path, tmp_path: Path
) -> None:
    schema = tmp_path / "s.json"
    assert cli("schema", photos, "--encoder", "pixels", "--size", "8x8", "--out", schema).code == 0
    assert cli("schema", schema, "--freeze").code == 0
    network = ("--model", "nin", "--epochs", 1, "-k", 2)
    result = cli("train", photos, "--schema", schema, *network, "--out", tmp_path / "m")
    assert result.code == 0, result.err
