"""The page is made from results alone, always the same, and hides nothing."""

from __future__ import annotations

import dataclasses

import pytest
from shapes import write_recipes

from poisonproof.exceptions import InvalidInputError
from poisonproof_research.reproduction import (
    Options,
    Outcome,
    PaperNumbers,
    load_recipes,
    read_result,
    run_row,
)
from poisonproof_research.reproduction.outcome import disagreements, write_result
from poisonproof_research.reproduction.page import write_report


@pytest.fixture
def results(recipe, data, tmp_path):
    run_row(recipe, data, tmp_path / "results", Options(device="cpu"))
    return tmp_path / "results"


def test_the_report_is_bit_identical_when_made_twice(recipes_folder, results, tmp_path):
    recipes = load_recipes(recipes_folder)
    written = {}
    for name in ("first", "second"):
        paths = write_report(recipes, results, tmp_path / name)
        written[name] = {p.relative_to(tmp_path / name): p.read_bytes() for p in paths}
    assert written["first"] == written["second"]
    assert {path.name for path in written["first"]} == {
        "figure-9a.svg",
        "rows.csv",
        "reproduction.md",
    }


def test_only_rows_of_a_gpu_are_timed_against_the_paper(recipes_folder, results, recipe, tmp_path):
    write_report(load_recipes(recipes_folder), results, tmp_path / "cpu")
    assert "DPA rows**" not in (tmp_path / "cpu" / "reproduction.md").read_text()
    result = read_result(results / recipe.id)
    made = {**result.origin["specification"], "device": "cuda"}
    on_gpu = dataclasses.replace(result, origin={**result.origin, "specification": made})
    write_result(tmp_path / "gpu" / recipe.id, on_gpu)
    write_report(load_recipes(recipes_folder), tmp_path / "gpu", tmp_path / "docs")
    assert "| **1 of 2 DPA rows** |" in (tmp_path / "docs" / "reproduction.md").read_text()


def test_the_page_compares_every_row_and_says_which_were_not_run(
    recipes_folder, results, recipe, data, tmp_path
):
    write_report(load_recipes(recipes_folder), results, tmp_path / "docs")
    page = (tmp_path / "docs" / "reproduction.md").read_text()
    assert "**1 of 2 rows have been run" in page
    line = next(text for text in page.splitlines() if text.startswith("| `shapes-dpa-12-oneseed`"))
    assert line.endswith("| not yet run |")
    assert "figure-9a.svg" in page
    assert "| `shapes-dpa-12` | without a GPU |" in page
    assert "hours for 2 rows of DPA." in page
    assert "It is small." in page
    assert "*shapes-dpa-12:* trained on cpu" in page
    assert "r\\*+1" in page
    assert str(tmp_path) not in page


def test_a_row_outside_the_tolerance_is_flagged_and_its_note_is_printed(
    recipes_folder, results, recipe, tmp_path
):
    recipes = load_recipes(recipes_folder)
    far = dataclasses.replace(recipe, paper=PaperNumbers(10.0, 10.0, 1, 0.5))
    recipes = {**recipes, recipe.id: far}
    write_report(recipes, results, tmp_path / "docs")
    page = (tmp_path / "docs" / "reproduction.md").read_text()
    assert "| [**outside**](#rows-outside-the-tolerance) |" in page
    assert "- `shapes-dpa-12`: clean +" in page
    assert "Not explained yet." in page
    (results / "notes.toml").write_text('shapes-dpa-12 = "The shapes are simple."\n')
    write_report(recipes, results, tmp_path / "docs")
    assert "The shapes are simple." in (tmp_path / "docs" / "reproduction.md").read_text()


def test_a_result_that_the_recipe_did_not_make_is_refused(results, data, tmp_path):
    other = load_recipes(write_recipes(tmp_path / "other", data, epochs=200))
    with pytest.raises(InvalidInputError, match="epochs is 6, not 200"):
        write_report(other, results, tmp_path / "docs")


def test_a_note_for_an_unknown_row_is_refused(recipes_folder, results, tmp_path):
    (results / "notes.toml").write_text('mnist = "?"\n')
    with pytest.raises(InvalidInputError, match="'mnist' is not a row"):
        write_report(load_recipes(recipes_folder), results, tmp_path / "docs")


@pytest.mark.parametrize(
    ("median", "paper", "agrees"),
    [(447, 448, True), (434, 448, True), (433, 448, False), (8, 9, True), (9, 9, True),
     (10, 9, False), (7, 9, True), (6, 9, False), (None, None, True), (None, 9, False),
     (3, None, False)],
)  # fmt: skip
def test_medians_are_compared_in_the_papers_count_within_three_percent_or_one(
    median, paper, agrees
):
    ours = Outcome(90.0, 70.0, median, None, None)
    assert (disagreements(ours, PaperNumbers(90.0, 70.0, paper)) == []) == agrees
