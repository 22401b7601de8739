"""Sources, days and entities from a file to a report, by the command line and from Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import poisonproof
from poisonproof.cli._app import make_member
from poisonproof.data import load_schema
from poisonproof.data.sources import read_table, split_rows
from poisonproof.estimators.auditing import audit_model
from poisonproof.exceptions import InvalidInputError
from poisonproof.partition import NamedSources
from tests.cli.conftest import Cli
from tests.data.builders import mail_rows, write_csv

SITES = ("north", "south", "east", "west", "5")
NOUNS = {"sources": "sources", "time": "days", "blocks": "time blocks", "groups": "entities"}

COUNTED = {
    "sources": "(land): 5, east, north, south, west.",
    "time": "(sent): blocks of 1 day since 2001-01-01.",
    "blocks": "(sent): blocks of 7 days since 2001-01-01.",
    "groups": "(user): 59 accounts of 30.",
}


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    rows = [[*row[:2], str(rng.choice(SITES)), *row[3:]] for row in mail_rows(700)]
    return write_csv(tmp_path / "mails.csv", rows)


def options(by: str, tmp_path: Path) -> list[object]:
    owners = tmp_path / "owners.csv"
    owners.write_text("account,entity\n" + "".join(f"u{i},u{i // 2 * 2}\n" for i in range(1, 60)))
    return {
        "sources": ["--sources", "land"],
        "time": ["--time", "sent"],
        "blocks": ["--time", "sent", "--block-days", 7],
        "groups": ["--groups", "user", "--entities", owners],
    }[by]


@pytest.mark.parametrize("by", NOUNS)
def test_from_a_file_to_a_report(cli: Cli, mails: Path, tmp_path: Path, by: str) -> None:
    file, model, noun = tmp_path / "s.json", tmp_path / "model", NOUNS[by]

    def run(*words: object) -> str:
        found = cli(*words)
        assert found.code == 0, found.err
        return " ".join(found.out.split())

    proposed = run(
        "schema", mails, "--label", "kind", *options(by, tmp_path), "--out", file,
        "--ignore", "sent,land" if by == "groups" else "user",
    )  # fmt: skip
    assert f"Certificates count {noun} (" in proposed
    assert COUNTED[by] in proposed
    frozen = run("schema", file, "--freeze")
    k = () if by == "sources" else ("-k", 11)
    assert (" -k " in frozen) == bool(k)
    train = ("train", mails, "--schema", file, "--model", "naive-bayes", *k, "--keep-data")
    trained = run(*train, "--out", model)
    known = poisonproof.load(model)
    assert f"of the {known.n_groups_} {noun}. Assumed: " in trained
    assert len(known.partition_sizes_) == (5 if by == "sources" else 11)
    assert f"{noun}." in run("certify", model, mails, "--held-out")

    table = load_schema(file)
    rows = read_table(mails, table)
    rows = rows.only(~split_rows(rows, table))
    clf = poisonproof.DPAClassifier(
        make_member("naive-bayes"), *k[1:], partitioner=table.partition, classes=table.classes,
        invalid_rows="drop",
    )  # fmt: skip
    labels = np.array(table.classes)[rows.labels]
    clf.fit(rows.X, labels, groups=rows.groups)
    assert clf.ensemble_.digests() == known.ensemble_.digests()

    lines = mails.read_text().splitlines()
    some = tmp_path / "some.csv"
    some.write_text("\n".join([lines[0], *lines[1:60]]) + "\n")
    run("update", model, "--remove", some)
    run("update", model, "--add", some)
    assert poisonproof.load(model).ensemble_.digests() == known.ensemble_.digests()
    run("audit", model)
    run("report", model, mails, "--held-out", "--out", tmp_path / "report.html")
    page = " ".join((tmp_path / "report.html").read_text().split())
    assert f"{noun}" in page
    assert "contributor" not in page
    run("attack", mails, "--trained", model, "--targets", 1, "--out", tmp_path / "attack.json")
    trials = json.loads((tmp_path / "attack.json").read_text())
    assert {kind["threat"]["unit"] for kind in trials["kinds"]} == {known.partitioner_.unit}
    for row in (row for kind in trials["kinds"] for row in kind["rows"]):
        tried = zip(row["protected"]["tried"], row["protected"]["changed"], strict=True)
        assert not any(changed for size, changed in tried if size <= row["radius"])


def test_entities_without_a_schema(cli: Cli, mails: Path, tmp_path: Path) -> None:
    model, (*_, owners) = tmp_path / "model", options("groups", tmp_path)
    named = ("--label", "kind", "--groups", "user")
    train = ("train", mails, *named, "--classes", "ham,spam", "--features", "length,links", "-k", 9)
    found = cli(*train, "--entities", owners, "--model", "tree", "--keep-data", "--out", model)
    assert found.code == 0, found.err
    assert poisonproof.load(model).partitioner_.unit == "entity"
    some, lines = tmp_path / "some.csv", mails.read_text().splitlines()
    some.write_text("\n".join(lines[:100]) + "\n")
    found = cli("update", model, "--remove", some, *named, "--ignore", "land,body,sent")
    assert found.code == 0, found.err
    assert "99 rows removed" in found.out


def test_mistakes_have_a_clear_line(cli: Cli, mails: Path, tmp_path: Path) -> None:
    file, model = tmp_path / "s.json", tmp_path / "model"
    schema = ("schema", mails, "--label", "kind")
    assert cli(*schema, "--sources", "land", "--out", file).code == 0
    cli("schema", file, "--freeze")
    owners = options("groups", tmp_path)[-1]
    train = ("train", mails, "--label", "kind", "--out", model)
    mistakes = {
        (*train, "--schema", file, "-k", "7"): "makes 5 partitions. Leave n_partitions (-k) out",
        (*train, "--schema", file, "--partitioner", "content"): "would certify rows",
        (*train, "--schema", file, "--method", "neighbors"): "certifies rows",
        (*train, "--schema", file, "--entities", owners): "already says that",
        (*train, "--classes", "ham,spam", "--entities", owners): "needs --groups COLUMN",
        ("plan", mails, "--schema", file): "there is no k to choose",
        ("compare", mails, "--schema", file, "--out", tmp_path / "c"): "counts sources (land)",
        ("attack", mails, "--schema", file, "-k", "7"): "Leave n_partitions (-k) out",
        (*schema, "--sources", "land", "--time", "sent"): "--groups, --sources or --time",
        (*schema, "--entities", owners): "needs --groups COLUMN",
        (*schema, "--sources", "lnad"): "has no column 'lnad'",
        (*schema, "--sources", "kind", "--groups", "user"): "count one unit",
    }
    for words, message in mistakes.items():
        found = cli(*words)
        assert found.code == 2, words
        assert message in " ".join(found.err.split()), found.err


def test_a_model_with_sources_from_python_is_updated_by_column(
    cli: Cli, mails: Path, tmp_path: Path
) -> None:
    cells = [line.split(",") for line in mails.read_text().splitlines()[1:]]
    X = np.array([[float(row[0]), float(row[1])] for row in cells])
    clf = poisonproof.DPAClassifier(
        make_member("tree"), partitioner=NamedSources(SITES), classes=["ham", "spam"]
    )
    clf.fit(X, [row[-1] for row in cells], groups=[row[2] for row in cells])
    clf.save(tmp_path / "model", keep_data=True)
    more = tmp_path / "more.csv"
    more.write_text("a,b,site,kind\n1.0,2.0,north,ham\n")
    missing = cli(
        "update", tmp_path / "model", "--add", more, "--label", "kind", "--ignore", "site"
    )
    assert "partitioned by source: name the column, --groups" in " ".join(missing.err.split())
    done = cli("update", tmp_path / "model", "--add", more, "--label", "kind", "--groups", "site")
    assert done.code == 0, done.err
    assert "1 of 5 members trained again" in done.out


def test_sources_that_python_gave_apart_from_a_folder_are_not_asked_for_as_a_column(
    cli: Cli, tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for number in range(120):
        folder = tmp_path / "photos" / ("bright" if number % 2 else "dark")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 120, (8, 8), dtype=np.uint8) + np.uint8(100 * (number % 2))
        image.fromarray(pixels).save(folder / f"{number}.png")
    file, photos, model = tmp_path / "s.json", tmp_path / "photos", tmp_path / "model"
    cli("schema", photos, "--size", "8x8", "--encoder", "pixels", "--out", file)
    assert cli("schema", file, "--freeze").code == 0
    schema = load_schema(file)
    rows = read_table(photos, schema)
    assert "bright/1.png" in rows.places.tolist()
    clf = poisonproof.DPAClassifier(partitioner=NamedSources(SITES), schema=schema)
    with pytest.raises(InvalidInputError, match="NamedSources needs groups, one identity per row"):
        clf.fit(rows)
    groups = [SITES[int(Path(path).stem) % 5] for path in rows.places]
    clf.fit(rows, groups=groups).save(model)
    certified = cli("certify", model, photos, "--held-out")
    assert certified.code == 0, certified.err
    assert "of the 5 sources" in " ".join(certified.out.split())
    for words, instead in {
        ("audit", model, "--data", photos): "audit_model(",
        ("audit", model, "--data", photos, "--groups", "site"): "audit_model(",
        ("attack", photos, "--trained", model): "attack_study(clf, X, y, X_test, groups=groups)",
        ("update", model, "--add", photos, "--data", photos): "update_model(",
    }.items():
        found = cli(*words)
        assert found.code == 2
        assert "sources that were given to fit in Python" in found.err
        assert instead in found.err
    assert audit_model(model, (rows, None, groups), sample=2).passed
