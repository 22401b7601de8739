"""``poisonproof report``: the page from a model and a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.base import clone

from poisonproof import load
from poisonproof.estimators.saving import model_fingerprint
from tests.cli.conftest import Cli, write_csv


def test_the_page_of_a_model(cli: Cli, model: Path, test_csv: Path, tmp_path: Path) -> None:
    result = cli(
        *("report", model, test_csv, "--label", "kind", "--title", "Spam"),
        *("--out", tmp_path / "r.html"),
    )
    assert (result.code, result.err) == (0, "")
    page = (tmp_path / "r.html").read_text()
    assert "<title>Spam</title>" in page
    assert f"poisonproof certify {model} {test_csv} --label kind" in page
    fingerprint = result.out.partition("Fingerprint ")[2].split()[0]
    assert fingerprint in page
    audited = cli("audit", model, "--fingerprint", fingerprint)
    assert (audited.code, audited.err) == (0, ""), audited.out


@pytest.mark.parametrize("member", ["naive-bayes", "ridge"])
def test_one_fingerprint_is_shown_everywhere(
    cli: Cli, train_csv: Path, test_csv: Path, tmp_path: Path, member: str
) -> None:
    named = ("--label", "kind", "--classes", "ham,spam", "-k", 5, "--model", member)
    trained = cli("train", train_csv, *named, "--out", tmp_path / "model", "--no-self-check")
    fingerprint = trained.out.partition("Fingerprint ")[2].split()[0]
    assert len(fingerprint) == 64
    reported = cli(
        *("report", tmp_path / "model", test_csv, "--label", "kind"), "--out", tmp_path / "r.html"
    )
    shown = reported.out.partition("Fingerprint ")[2].split()[0]
    assert shown == fingerprint
    assert fingerprint in (tmp_path / "r.html").read_text()
    loaded = load(tmp_path / "model")
    assert model_fingerprint(loaded) == fingerprint
    rows = pd.read_csv(train_csv)
    again = clone(loaded).fit(rows[["length", "links"]].to_numpy(), rows["kind"])
    again.feature_names_in_ = np.array(["length", "links"], dtype=object)
    assert model_fingerprint(again) == fingerprint
    assert cli("audit", tmp_path / "model", "--fingerprint", fingerprint).code == 0


def test_columns_are_shown_by_their_names(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path
) -> None:
    assert cli("report", model, test_csv, "--label", "kind", "--out", tmp_path / "r.html").code == 0
    assert "<dt>links</dt>" in (tmp_path / "r.html").read_text()


def test_several_models_on_one_page(
    cli: Cli, model: Path, train_csv: Path, test_csv: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    trained = ("train", train_csv, "--label", "kind", "--classes", "ham,spam", "-k", 10)
    assert cli(*trained, "--out", other).code == 0
    result = cli(
        *("report", model, test_csv, "--label", "kind", "--compare", other),
        *("--out", tmp_path / "r.html"),
    )
    assert result.code == 0, result.err
    page = (tmp_path / "r.html").read_text()
    assert "Models compared" in page
    assert page.count(">model<") > 3
    assert page.count(">other<") > 3


def test_held_out_texts_are_shown_as_they_stand_in_the_file(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        [f"{'win <b>money</b>' if i % 2 else 'minutes of meeting'} {i}", i % 7, f"u{i % 60}",
         "spam" if i % 2 else "ham"]
        for i in range(300)
    ]  # fmt: skip
    write_csv(tmp_path / "mails.csv", ["subject", "links", "user", "kind"], rows)
    proposed = ("schema", "mails.csv", "--label", "kind", "--groups", "user", "--text", "subject")
    assert cli(*proposed, "--out", "s.json").code == 0
    assert cli("schema", "s.json", "--freeze").code == 0
    trained = ("train", "mails.csv", "--schema", "s.json", "-k", 10, "--model", "ridge")
    assert cli(*trained, "--out", "model").code == 0
    result = cli("report", "model", "mails.csv", "--held-out", "--out", "r.html")
    assert result.code == 0, result.err
    page = (tmp_path / "r.html").read_text()
    assert "win &lt;b&gt;money&lt;/b&gt;" in page
    assert "<b>" not in page
    assert "contributors" in page
    place = int(page.partition("Line ")[2].split(",")[0])
    assert rows[place - 2][0].replace("<", "&lt;").replace(">", "&gt;") in page


def test_images_of_a_folder_are_shown_as_pictures_with_their_names(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for label, level in (("dark", 40), ("light", 200)):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for number in range(40):
            pixels = rng.integers(level - 30, level + 30, (8, 8, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / label / f"{number}.png")
    proposed = ("schema", "pictures", "--size", "8x8", "--encoder", "pixels", "--out", "s.json")
    assert cli(*proposed).code == 0
    assert cli("schema", "s.json", "--freeze").code == 0
    trained = ("train", "pictures", "--schema", "s.json", "-k", 5, "--model", "neighbors")
    assert cli(*trained, "--out", "model").code == 0
    result = cli("report", "model", "pictures", "--held-out", "--out", "r.html")
    assert result.code == 0, result.err
    page = (tmp_path / "r.html").read_text()
    assert page.count('<img src="data:image/png;base64,') == 12
    assert "File dark/" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--out", "r.txt"), "must end in .html"),
        (("--image-shape", "1x9x9"), "an image of shape 1x9x9 has 81"),
        (("--compare", "nowhere"), "There is no model nowhere"),
        (("--threat", "magic"), "The threat is one of"),
        (("--attacks", "nowhere.json"), "nowhere.json: No such file"),
    ],
)
def test_bad_options_are_one_line_and_write_nothing(
    cli: Cli,
    model: Path,
    test_csv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    result = cli("report", model, test_csv, "--label", "kind", *arguments)
    assert result.code == 2
    assert words in " ".join(result.err.split())
    assert result.err.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before


def test_a_file_that_is_no_study_is_refused(
    cli: Cli, model: Path, test_csv: Path, tmp_path: Path
) -> None:
    for content in ("[]", "{}", "nonsense"):
        (tmp_path / "study.json").write_text(content)
        result = cli(
            *("report", model, test_csv, "--label", "kind", "--attacks", tmp_path / "study.json"),
            *("--out", tmp_path / "r.html"),
        )
        assert result.code == 2
        assert not (tmp_path / "r.html").exists()
