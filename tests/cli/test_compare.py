"""``poisonproof compare``: every method on the user's rows, on one page."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli, mails, write_csv

HEADER = ("a", "b", "user", "weight", "kind")


def data(folder: Path) -> tuple[Path, Path]:
    paths = [folder / "train.csv", folder / "test.csv"]
    for seed, path in enumerate(paths):
        rows = [[row[0], row[1], row[4]] for row in mails(300, seed)]
        write_csv(path, ("a", "b", "kind"), rows)
    return paths[0], paths[1]


def test_the_page_compares_all_methods_and_can_be_made_again(cli: Cli, tmp_path: Path) -> None:
    train, test = data(tmp_path)
    out, again = tmp_path / "page", tmp_path / "again"
    settings = ["--label", "kind", "--classes", "ham,spam", "-k", "10", "--cosines", "0.9"]
    result = cli("compare", train, test, *settings, "--out", out)
    assert result.code == 0, result.err
    page = (out / "frontier.md").read_text()
    for text in ("DPA, k = 10", "neighbour votes, cosine 0.9", "clusters", "flips counted"):
        assert text in page
    assert "run-off, k = 10" in page
    assert "| finite aggregation | floor(k / 2) | 5 (k = 10) |" in page
    assert "## train: rows inserted or deleted" in page
    assert "## train: rows relabelled" in page
    assert page.count("\n## train") == 2  # what counts samples stands beside what counts rows
    assert page.index("## train: rows relabelled") < page.index("SS-DPA, k = 10")
    again_result = cli("compare", "--results", out / "results", "--out", again)
    assert again_result.code == 0, again_result.err
    name = "frontier-train-label-flip.svg"
    assert (again / name).read_bytes() == (out / name).read_bytes()


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
    page = (out / "frontier.md").read_text()
    assert "DPA, k = 5" in page
    assert "](frontier-my-mails-label-flip.svg)" in page
    assert (out / "frontier-my-mails-label-flip.svg").exists()
    assert "same source" in " ".join(result.out.split())


def test_bad_input_is_one_line_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    train, test = data(tmp_path)
    out = tmp_path / "page"
    settings = ["--label", "kind", "--classes", "ham,spam"]
    cases = [
        (["compare"], "--out"),
        (["compare", "--out", out], "Name training and test rows"),
        (["compare", train, test, *settings, "-k", "ten", "--out", out], "lists numbers"),
        (["compare", train, test, *settings, "--cosines", "2", "--out", out], "at most 1"),
        (["compare", train, test, "--label", "kind", "--out", out], "declared"),
        (["compare", train, swapped(test), *settings, "--out", out], "another order"),
        (["compare", "--results", tmp_path, "--out", out], "no results"),
        (["compare", train, "--results", tmp_path, "--out", out], "leave out the data"),
    ]
    for arguments, text in cases:
        result = cli(*arguments)
        assert result.code == 2, arguments
        assert text in result.err
        assert len(result.err.strip().splitlines()) == 1
        assert not out.exists()
