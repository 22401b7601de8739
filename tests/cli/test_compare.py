"""``poisonproof compare``: every method on the user's rows, on one page."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poisonproof import Certificates
from poisonproof.evaluation import median_radius
from tests.cli.conftest import Cli, mails, write_csv

TWO, THREE = "ham,spam", "ham,news,spam"


def data(folder: Path, classes: str = TWO) -> tuple[Path, Path]:
    paths = [folder / "train.csv", folder / "test.csv"]
    for seed, path in enumerate(paths):
        rows = [[row[0], row[1], row[4]] for row in mails(300, seed)]
        if classes == THREE:
            rows = [[a, b, "news" if float(str(a)) > 1.8 else kind] for a, b, kind in rows]
        write_csv(path, ("a", "b", "kind"), rows)
    return paths[0], paths[1]


def test_the_page_compares_all_methods(cli: Cli, tmp_path: Path) -> None:
    train, test = data(tmp_path, THREE)
    out = tmp_path / "page"
    settings = ["--label", "kind", "--classes", THREE, "-k", "10", "--cosines", "0.9"]
    result = cli("compare", train, test, *settings, "--out", out)
    assert result.code == 0, result.err
    page = unescape((out / "comparison.html").read_text())
    head, rows, flips, _ = page.split("<section ")
    assert "data:image/svg+xml" in head
    assert ">Rows inserted or deleted</h2>" in rows
    # What counts samples stands beside what counts rows.
    assert ">Rows relabelled</h2>" in flips
    for text in ("DPA, k = 10", "run-off, k = 10", "neighbour votes, cosine 0.9"):
        assert f">{text}</th>" in rows
        assert f">{text}</th>" in flips
    for text in ("SS-DPA, k = 10", "6 k-means", "6 spectral", "3 k-means clusters, one-to-one"):
        assert f">{text}" in flips
        assert f">{text}" not in rows
    assert result.out.index("insert_delete") < result.out.index("label_flip")
    results = json.loads((out / "comparison.json").read_text())
    assert results["command"] in page
    found = {method["name"]: method for method in results["methods"]}
    dpa = found["train-dpa-10"]
    assert dpa["n_test"] == 300
    at_zero = dpa["certified_accuracy"][0]
    assert at_zero == {"size": 0, "accuracy": dpa["clean_accuracy"]}


@pytest.mark.parametrize(("by_schema", "held_out"), [(False, False), (True, False), (True, True)])
def test_a_method_is_trained_by_the_command_and_by_the_lines_beside_it(
    by_schema: bool, held_out: bool, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train, test = (path.name for path in data(tmp_path, THREE))
    named = ["--label", "kind", "--classes", THREE]
    if by_schema:
        assert cli("schema", train, *named, "--out", "s.json").code == 0
        assert cli("schema", "s.json", "--freeze").code == 0
        named = ["--schema", "s.json"]
    files = [train] if held_out else [train, test]
    settings = [*named, "-k", "6", "--cosines", "0.9", "--model", "ridge"]
    assert cli("compare", *files, *settings, "--out", "page").code == 0
    results = json.loads(Path("page/comparison.json").read_text())
    found = {m["family"]: m for m in results["methods"]}
    assert len(found) == 7
    page = unescape(Path("page/comparison.html").read_text())
    assert results["python"] in page
    scope: dict[str, Any] = {}
    exec(results["python"], scope)
    truth = np.array(scope["schema"].classes)[scope["test"].labels]
    where = [train, "--held-out"] if held_out else [test, "--label", "kind"]
    folders = set()
    for method in found.values():
        assert method["train"] in page
        assert method["python"] in page
        command, _, election = method["train"].partition(" && ")
        _, *words = shlex.split(command)
        assert cli(*words).code == 0
        folder = words[words.index("--out") + 1]
        folders.add(folder)
        again = ["certify", folder, *where, "--threat", method["threat"].partition("/")[0]]
        if election:
            _, *again = shlex.split(election)
            assert again[1] == folder
        assert cli(*again, "--out", "found.csv").code == 0
        certificates = Certificates.load("found.csv")
        assert certificates.method.startswith("runoff") == bool(election)
        assert (certificates.labels == truth).mean() == pytest.approx(method["clean_accuracy"])
        assert (median_radius(certificates, truth) or 0) == (method["median_radius"] or 0)
        fit, _, certify = method["python"].partition("; ")
        exec(fit, scope)
        assert eval(certify, scope).radius.tolist() == certificates.radius.tolist()
    assert len(folders) == len(found)


def test_between_two_classes_there_is_no_run_off_and_it_would_be_the_same(
    cli: Cli, tmp_path: Path
) -> None:
    train, test = data(tmp_path)
    settings = ["--label", "kind", "--classes", TWO, "-k", "10", "--cosines", "0.9"]
    result = cli("compare", train, test, *settings, "--out", tmp_path / "page")
    assert result.code == 0, result.err
    assert "Between two classes a run-off is the plurality" in " ".join(result.err.split())
    assert "run-off" not in result.out
    trained = cli("train", train, *settings[:6], "--model", "tree", "--out", tmp_path / "model")
    assert trained.code == 0, trained.err
    read = []
    for election in ("plurality", "runoff"):
        certified = tmp_path / f"{election}.csv"
        again = ["--label", "kind", "--election", election, "--out", certified]
        assert cli("certify", tmp_path / "model", test, *again).code == 0
        read.append(Certificates.load(certified))
    assert read[0].labels.tolist() == read[1].labels.tolist()
    assert read[0].radius.tolist() == read[1].radius.tolist()


def test_a_setting_that_is_listed_twice_is_run_once(cli: Cli, tmp_path: Path) -> None:
    train, test = data(tmp_path)
    settings = ["--label", "kind", "--classes", "ham,spam", "-k", "5,5"]
    close = ["--cosines", "0.9,0.90,0.9000001"]
    result = cli("compare", train, test, *settings, *close, "--out", tmp_path / "page")
    assert result.code == 0, result.err
    results = json.loads((tmp_path / "page" / "comparison.json").read_text())
    names = [method["name"] for method in results["methods"]]
    assert {"train-neighbors-0.9", "train-neighbors-0.9000001", "train-dpa-5"} <= set(names)
    assert len(set(names)) == len(names)


def test_the_page_says_the_command_that_makes_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train, test = data(tmp_path)
    for path in (train, test):
        path.write_text(
            path.read_text().replace("spam", "it's --> spam").replace("kind", "my kind")
        )
    train.rename("my mails.csv")
    settings = ["--label", "my kind", "--classes", "ham,it's --> spam", "--model", "tree"]
    sizes = ["-k", "7", "--cosines", "0.9", "--jobs", "1"]
    result = cli("compare", "my mails.csv", "test.csv", *settings, *sizes, "-o", "a page")
    assert result.code == 0, result.err
    page = Path("a page/comparison.html").read_text()
    found = re.search(r"This page was made by <code>(.*?)</code>", unescape(page))
    assert found is not None
    program, *words = shlex.split(found[1])
    assert program == "poisonproof"
    for word in ("my kind", "ham,it's --> spam", "tree", "7", "0.9"):
        assert word in words
    assert "--jobs" not in words  # changes no result
    Path("a page/comparison.html").unlink()
    assert cli(*words).code == 0
    assert Path("a page/comparison.html").read_text() == page
    assert "DPA, k = 7" in page


def test_what_cannot_be_run_is_named_and_the_others_are_compared(cli: Cli, tmp_path: Path) -> None:
    train, test = data(tmp_path, THREE)
    settings = ["--label", "kind", "--classes", THREE, "-k", "5", "--cosines", "0.9"]
    result = cli("compare", train, test, *settings, "--model", "svc", "--out", tmp_path / "page")
    assert result.code == 0, result.err
    assert result.err.count("Left out: run-off, k = 5. ") == 1  # whatever the threat
    page = (tmp_path / "page/comparison.html").read_text()
    assert "run-off" not in page
    assert ">DPA, k = 5</th>" in page


def swapped(test: Path) -> Path:
    """Write the test rows with two columns exchanged."""
    lines = [line.split(",") for line in test.read_text().splitlines()]
    path = test.with_name("swapped.csv")
    path.write_text("".join(f"{b},{a},{kind}\n" for a, b, kind in lines))
    return path


def test_a_schema_says_what_columns_mean_and_which_rows_are_held_out(
    cli: Cli, tmp_path: Path
) -> None:
    train, _ = data(tmp_path)
    train = train.rename(tmp_path / "my mails.csv")
    schema, out = tmp_path / "s.json", tmp_path / "page"
    drafted = cli("schema", train, "--label", "kind", "--classes", "ham,spam", "--out", schema)
    assert drafted.code == 0, drafted.err
    assert cli("schema", schema, "--freeze").code == 0
    result = cli("compare", train, "--schema", schema, "-k", "5", "--cosines", "0.9", "--out", out)
    assert result.code == 0, result.err
    page = (out / "comparison.html").read_text()
    assert "DPA, k = 5" in page
    assert "my mails" in page
    assert "same file as" in " ".join(result.out.split())


def test_bad_input_is_one_line_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    train, test = data(tmp_path)
    out = tmp_path / "page"
    settings = ["--label", "kind", "--classes", "ham,spam"]
    cases = [
        (["compare", "--out", out], "Missing argument"),
        (["compare", train, "--out", out], "Name test rows"),
        (["compare", train, test, *settings, "-k", "ten", "--out", out], "lists numbers"),
        (["compare", train, test, *settings, "--cosines", "2", "--out", out], "at most 1"),
        (["compare", train, test, "--label", "kind", "--out", out], "declared"),
        (["compare", train, swapped(test), *settings, "--out", out], "another order"),
    ]
    for arguments, text in cases:
        result = cli(*arguments)
        assert result.code == 2, arguments
        assert text in result.err
        assert len(result.err.strip().splitlines()) == 1
        assert not out.exists()


def test_a_method_that_learned_next_to_nothing_is_never_best(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    paths = []
    for name, n in {"train": 300, "test": 200}.items():
        late = rng.random(n) < 0.24
        X = rng.normal(size=(n, 2))
        rows = [[*x, "late" if bad else "punctual"] for x, bad in zip(X, late, strict=True)]
        paths.append(write_csv(tmp_path / f"{name}.csv", ("a", "b", "status"), rows))
    settings = ["--label", "status", "--classes", "late,punctual", "-k", "10", "--cosines", "0.9"]
    result = cli("compare", *paths, *settings, "--out", tmp_path / "page")
    assert result.code == 0, result.err
    said = " ".join(result.out.split())
    assert "hardly better than that" in said
    assert "The balanced accuracy is 5" in said
    assert "Recall" in said
    page = (tmp_path / "page/comparison.html").read_text()
    cells = page[page.index("<tbody>") :]
    assert "<strong>" not in cells
    assert '<tr class="muted">' in cells
    assert "Recall by class, and certified at" in cells
