"""Command ``reproduce``: the published tables and figures, made again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from poisonproof.cli._app import JobsOption, choose, parse_list
from poisonproof.cli._screen import check_folder, console, say, spoken_warnings, verbosity
from poisonproof.exceptions import InvalidInputError
from poisonproof.progress import make_progress

if TYPE_CHECKING:
    from poisonproof_research.reproduction.recipe import Recipe
    from poisonproof_research.reproduction.result import RowResult
    from poisonproof_research.reproduction.row_data import RowData
    from poisonproof_research.reproduction.running import Options

RESULTS = Path("research/results")
FEATURES = Path("research/features")


def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(help="table1, table2, table3 or table4. Without it the rows are listed."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Rows of that table; by default all of them."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="cuda or cpu. The published recipe is made for cuda.")
    ] = "cuda",
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of imported datasets; see: data."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A packed dataset instead; see: data --pack."),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of results, one folder per row.")
    ] = RESULTS,
    members: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Only the members A to B-1; the rest another time."),
    ] = None,
    resume_from: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR", help="Take finished members from another run; may be repeated."
        ),
    ] = None,
    features: Annotated[
        Path,
        typer.Option(metavar="DIR", help="SS-DPA: learned features; see: features."),
    ] = FEATURES,
    limit_seconds: Annotated[
        float | None,
        typer.Option(metavar="N", help="Stop in time, and keep what is finished."),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Write class probabilities (float16), too, and keep all votes."
        ),
    ] = False,
    jobs: JobsOption = None,
    recipes: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Recipe files of your own.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Rebuild reproduction.md and its figures there.")
    ] = False,
) -> None:
    """Train, predict and certify rows of the published tables.

    A run that was stopped goes on where it was: finished members are kept in the folder of
    results. Members from other machines are taken in with --resume-from.
    """
    began = time.monotonic()
    from poisonproof_research.reproduction.recipe import load_recipes, select_rows

    known = load_recipes(recipes)
    if report:
        if table is not None or rows is not None:
            raise InvalidInputError("--report takes all rows: leave the table and --rows out.")
        _write_report(known, out)
        return
    if table is None and rows is None:
        _print_rows(known, out)
        return
    if limit_seconds is not None and not limit_seconds > 0:
        raise InvalidInputError(f"--limit-seconds must be positive. Got {limit_seconds}.")
    chosen = select_rows(known, table, parse_list(rows, "--rows"))
    check_folder(out)
    for folder in resume_from or ():
        if not folder.is_dir():
            raise InvalidInputError(f"--resume-from {folder} is not a folder.")
    from poisonproof_research.reproduction.learner import FeatureFolder
    from poisonproof_research.reproduction.running import Options

    options = Options(
        device=choose("--device", device, ("cuda", "cpu")),
        members=_member_range(members, chosen),
        resume_from=tuple(resume_from or ()),
        features=FeatureFolder(features),
        deadline=None if limit_seconds is None else began + limit_seconds,
        scores=scores,
        n_jobs=jobs,
        command=_command(table, chosen, device, members, scores),
        progress=make_progress(verbosity()),
        say=say,
    )
    _Session(options, out, cache, data).make(chosen)


class _Session:
    """Rows made one after the other; a dataset and its features are read once."""

    def __init__(self, options: Options, out: Path, cache: Path | None, pack: Path | None) -> None:
        self.options, self.out, self.cache, self.pack = options, out, cache, pack
        self.data: RowData | None = None

    def make(self, rows: list[Recipe]) -> None:
        from poisonproof_research.reproduction.running import run_row

        for recipe in rows:
            result = self._joined(recipe)
            if result is None:
                with spoken_warnings():
                    result = run_row(recipe, self._load(recipe), self.out, self.options)
            if result is not None and result.votes is not None and not self.options.scores:
                self._shorten(recipe)
            _print_result(recipe, result)

    def _shorten(self, recipe: Recipe) -> None:
        """Keep the counts alone of a row whose votes would be too large to commit."""
        from poisonproof_research.reproduction.outcome import counts_are_enough, keep_counts

        if counts_are_enough(self.out / recipe.id):
            keep_counts(self.out / recipe.id)

    def _joined(self, recipe: Recipe) -> RowResult | None:
        """Join finished parts; a complete row needs neither data nor device."""
        from poisonproof_research.reproduction.outcome import write_result
        from poisonproof_research.reproduction.running import gather_results

        home = self.out / recipe.id
        found = gather_results(recipe.id, [home, *self.options.resume_from])
        if found is None or not found.is_complete or self.options.scores:
            return None
        if found.votes is not None:
            write_result(home, found)
        return found

    def _load(self, recipe: Recipe) -> RowData:
        from poisonproof_research.reproduction.row_data import data_from_cache, data_from_pack

        if self.data is None or self.data.name != recipe.data.name:
            self.data = (
                data_from_cache(recipe.data.name, self.cache)
                if self.pack is None
                else data_from_pack(self.pack)
            )
        return self.data


def _member_range(text: str | None, rows: list[Recipe]) -> range | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise InvalidInputError(f"--members is A:B with A < B, for example 0:100. Got {text!r}.")
    for recipe in rows:
        if int(last) > recipe.n_partitions:
            raise InvalidInputError(
                f"--members {text}: {recipe.id} has the members 0 to {recipe.n_partitions - 1}."
            )
    return range(int(first), int(last))


def _command(
    table: str | None, rows: list[Recipe], device: str, members: str | None, scores: bool
) -> str:
    words = ["python -m poisonproof_research reproduce", *([table] if table else [])]
    words += ["--rows", ",".join(recipe.id for recipe in rows), "--device", device]
    words += ["--members", members] if members else []
    return " ".join([*words, "--scores"] if scores else words)


def _print_result(recipe: Recipe, result: RowResult | None) -> None:
    from poisonproof_research.reproduction.outcome import evaluate

    if result is None or not result.is_complete:
        done = 0 if result is None else len(result.members)
        say(
            f"{recipe.id}: {done:,} of {recipe.n_partitions:,} members are finished. Run the "
            "command again to go on."
        )
        return
    ours, paper = evaluate(result), recipe.paper
    say(
        f"{recipe.id}: clean {ours.clean:.2f} % (paper {paper.clean:.2f}), base {ours.base:.2f} % "
        f"(paper {paper.base:.2f}), median {ours.median}, as the paper counts {ours.published} "
        f"(paper {paper.median})."
    )


def _print_rows(recipes: dict[str, Recipe], out: Path) -> None:
    from poisonproof_research.reproduction.outcome import members_finished

    table = Table(title=f"Rows, with the results in {out}", title_justify="left")
    for heading in ("Table", "Row", "Members", "Finished"):
        table.add_column(heading, justify="left" if heading in {"Table", "Row"} else "right")
    for recipe in recipes.values():
        finished = f"{members_finished(out / recipe.id):,}"
        table.add_row(recipe.table, recipe.id, f"{recipe.n_partitions:,}", finished)
    console().print(table)


def _write_report(recipes: dict[str, Recipe], results: Path) -> None:
    from poisonproof_research.reproduction.page import write_report

    check_folder(results)
    for path in write_report(recipes, results, results):
        say(str(path))
