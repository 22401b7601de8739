"""The tables of the page, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from poisonproof.reproduction.rows import ReportRow

__all__ = ["METHODS", "comparison_table", "csv_table", "median_table", "time_table"]

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
