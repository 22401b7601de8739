"""The rows of the tables, each with its result if there is one."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poisonproof.evaluation.display import CertifiedAccuracyDisplay
from poisonproof.exceptions import InvalidInputError, needing
from poisonproof_research.reproduction.outcome import (
    Outcome,
    certify_result,
    disagreements,
    evaluate,
    has_result,
    read_result,
)
from poisonproof_research.reproduction.recipe import Recipe
from poisonproof_research.reproduction.result import RowResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COMPARED = (
    "network",
    "views",
    "epochs",
    "batch_size",
    "learning_rate",
    "momentum",
    "nesterov",
    "weight_decay",
    "schedule",
    "milestones",
    "gamma",
    "seed_rule",
)


@dataclass(frozen=True)
class ReportRow:
    """One row of a table.

    Attributes
    ----------
    recipe : Recipe
        How it is made, and what the paper prints.
    result : RowResult or None
        What was computed; None if the row was not run.
    """

    recipe: Recipe
    result: RowResult | None

    @property
    def is_finished(self) -> bool:
        """Whether all members voted."""
        return self.result is not None and self.result.is_complete

    @cached_property
    def outcome(self) -> Outcome:
        """The numbers of a finished row."""
        assert self.result is not None
        return evaluate(self.result)

    @cached_property
    def disagreements(self) -> list[str]:
        """Numbers outside the tolerance, in words."""
        return disagreements(self.outcome, self.recipe.paper)

    @property
    def seconds(self) -> tuple[float, float]:
        """Wall time of training and of voting."""
        runs = self.result.runs if self.result is not None else ()
        return sum(run.seconds[0] for run in runs), sum(run.seconds[1] for run in runs)

    @property
    def is_timed(self) -> bool:
        """Whether the row is finished, on a GPU like the paper's."""
        if self.result is None or not self.is_finished:
            return False
        return bool(self.result.origin["specification"]["device"] == "cuda")

    @property
    def paper_seconds(self) -> float | None:
        """The paper's training time: minutes per member times members."""
        minutes = self.recipe.paper.minutes
        return None if minutes is None else 60 * minutes * self.recipe.n_partitions


def read_rows(recipes: Mapping[str, Recipe], results: Path) -> list[ReportRow]:
    """Read the results of all rows, and refuse one that its recipe did not make."""
    rows = []
    for recipe in recipes.values():
        folder = results / recipe.id
        result = read_result(folder) if has_result(folder) else None
        if result is not None:
            _require_recipe(recipe, result, folder)
        rows.append(ReportRow(recipe, result))
    return rows


def _require_recipe(recipe: Recipe, result: RowResult, folder: Path) -> None:
    origin: Mapping[str, Any] = result.origin
    made = origin.get("specification", {})
    wanted = {name: recipe.learner[name] for name in _COMPARED if name in recipe.learner}
    facts = {
        "row": (origin.get("row"), recipe.id),
        "data": (origin.get("data", {}).get("sha256"), recipe.data.sha256),
        "n_partitions": (result.n_partitions, recipe.n_partitions),
        "seed": (origin.get("seed"), recipe.seed),
        **{name: (made.get(name), value) for name, value in wanted.items()},
    }
    for name, (found, expected) in facts.items():
        if found != expected:
            raise InvalidInputError(
                f"{folder} was not made by the recipe {recipe.id}: {name} is {found!r}, not "
                f"{expected!r}. Make the row again."
            )


# The tables of the page, as Markdown and as CSV.

NOT_RUN = "not yet run"
METHODS = {"dpa": "DPA", "ss-dpa": "SS-DPA"}


def comparison_table(rows: Sequence[ReportRow]) -> str:
    """Return ours beside the paper's."""
    lines = [
        _line(f"`{row.recipe.id}`", f"{row.recipe.n_partitions:,}", *_numbers(row), _marked(row))
        for row in rows
    ]
    heads = (
        *("row", "k", "clean %", "paper", "base %", "paper"),
        *("median r\\*", "r\\*+1", "paper prints", "verdict"),
    )
    return _table(heads, lines)


def median_table(rows: Sequence[ReportRow]) -> str:
    """Return the certified accuracy around the median: at r* half hold, at r* + 1 they do not."""
    lines = []
    for row in rows:
        if row.is_finished and row.outcome.median is not None:
            ours = row.outcome
            lines.append(
                _line(
                    f"`{row.recipe.id}`",
                    str(ours.median),
                    f"{ours.at_median:.2f}",
                    str(ours.published),
                    f"{ours.after_median:.2f}",
                )
            )
    if not lines:
        return ""
    return _table(("row", "r\\*", "certified % at r\\*", "r\\*+1", "certified % at r\\*+1"), lines)


def time_table(rows: Sequence[ReportRow]) -> str:
    """Return wall time per row against the paper's minutes times members."""
    lines = []
    for row in rows:
        theirs = row.paper_seconds
        paper = "" if theirs is None else f"{theirs / 60:,.0f}"
        if not row.is_timed:
            why = "without a GPU" if row.is_finished else NOT_RUN
            lines.append(_line(f"`{row.recipe.id}`", why, "", "", paper, ""))
            continue
        train, vote = row.seconds
        factor = "" if theirs is None else f"{theirs / (train + vote):,.0f}"
        ours = (f"{train:,.1f}", f"{vote:,.1f}", f"{(train + vote) / 60:,.2f}")
        lines.append(_line(f"`{row.recipe.id}`", *ours, paper, factor))
    for method, title in METHODS.items():
        lines += _total_line([row for row in rows if row.recipe.method == method], title)
    heads = ("row", "training s", "voting s", "ours, minutes", "paper's, minutes", "factor")
    return _table(heads, lines)


def _total_line(rows: Sequence[ReportRow], title: str) -> list[str]:
    """Return the sum over the timed rows of one method, if there are any."""
    done = [row for row in rows if row.is_timed and row.paper_seconds is not None]
    if not done:
        return []
    train, vote = (sum(times) for times in zip(*(row.seconds for row in done), strict=True))
    total = sum(row.paper_seconds or 0.0 for row in done)
    cells = (f"{train:,.1f}", f"{vote:,.1f}", f"{(train + vote) / 60:,.2f}")
    factor = f"**{total / (train + vote):,.0f}**"
    return [
        _line(f"**{len(done)} of {len(rows)} {title} rows**", *cells, f"{total / 60:,.0f}", factor)
    ]


def csv_table(rows: Sequence[ReportRow]) -> bytes:
    """Return all numbers as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("table", "row", "k", "clean", "paper_clean", "base", "paper_base", "median_radius",
         "published_median", "paper_median", "train_seconds", "vote_seconds", "paper_seconds",
         "verdict")
    )  # fmt: skip
    for row in rows:
        recipe, paper = row.recipe, row.recipe.paper
        ours: tuple[object, ...] = ("", "", None, None, "", "")
        if row.is_finished:
            found, (train, vote) = row.outcome, row.seconds
            ours = (f"{found.clean:.4f}", f"{found.base:.4f}", found.median, found.published,
                    f"{train:.3f}", f"{vote:.3f}")  # fmt: skip
        paper_seconds = None if row.paper_seconds is None else round(row.paper_seconds)
        writer.writerow(
            (recipe.table, recipe.id, recipe.n_partitions, ours[0], paper.clean, ours[1],
             paper.base, ours[2], ours[3], paper.median, ours[4], ours[5], paper_seconds,
             _verdict(row))
        )  # fmt: skip
    return text.getvalue().encode()


def _numbers(row: ReportRow) -> tuple[str, ...]:
    paper = row.recipe.paper
    clean, base = f"{paper.clean:.2f}", f"{paper.base:.2f}"
    median = _median(paper.median)
    if not row.is_finished:
        return "", clean, "", base, "", "", median
    ours = row.outcome
    return (
        *(f"{ours.clean:.2f}", clean, f"{ours.base:.2f}", base),
        *(_median(ours.median), _median(ours.published), median),
    )


def _median(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"


def _marked(row: ReportRow) -> str:
    """Return the verdict; by how much a row is off stands where it is explained."""
    off = row.is_finished and bool(row.disagreements)
    return "[**outside**](#rows-outside-the-tolerance)" if off else _verdict(row)


def _verdict(row: ReportRow) -> str:
    if row.result is None:
        return NOT_RUN
    if not row.is_finished:
        return f"not finished: {len(row.result.members):,} members"
    if row.disagreements:
        return f"outside: {'; '.join(row.disagreements)}"
    return "agrees"


def _table(heads: Sequence[str], lines: Sequence[str]) -> str:
    rule = _line("---", *("---:",) * (len(heads) - 1))
    return "\n".join([_line(*heads), rule, *lines])


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


# The paper's figures: certified accuracy against attack size, all k of a dataset in one plot.

_COLORS = ("#1f6f8b", "#c8553d", "#6a994e", "#7b5ea7")


def figure_svg(rows: Sequence[ReportRow], title: str) -> bytes:
    """Draw finished rows of one dataset; the same rows give the same bytes.

    Solid: our certified accuracy. Dashed: our accuracy without an attack. Dot: our median; cross:
    the paper's, as the attack size it stands for.
    """
    with needing("matplotlib", "report"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    # A fixed salt and no date: nothing in the file changes from one run to the next.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "poisonproof", "svg.fonttype": "path"})
        figure = Figure(figsize=(6.4, 5.0), layout="constrained")
        ax = figure.subplots()
        curves = [_draw(row, ax, color) for row, color in zip(rows, _COLORS, strict=False)]
        ax.plot([], [], "x", color="0.45", markeredgewidth=2, label="paper's median")
        ax.set_title(title, loc="left")
        # Below the plot: inside it would cover a curve.
        ax.legend().remove()
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        # The last images withstand attacks far beyond the others; the plot ends before them.
        ax.set_xlim(0, 1.05 * max(_visible(curve) for curve in curves))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _draw(row: ReportRow, ax: Axes, color: str) -> CertifiedAccuracyDisplay:
    assert row.result is not None
    curve = CertifiedAccuracyDisplay.from_certificates(
        certify_result(row.result),
        row.result.labels,
        name=f"k = {row.recipe.n_partitions:,}",
        ax=ax,
        color=color,
    )
    if row.recipe.paper.median is not None:
        median = row.recipe.paper.median - 1
        ax.plot(median, 50, "x", color=color, markersize=8, markeredgewidth=2, zorder=4)
    return curve


def _visible(curve: CertifiedAccuracyDisplay) -> int:
    """Return the attack size at which less than one percent is left."""
    return max(1, int((curve.certified_accuracy >= 0.01).sum()))
