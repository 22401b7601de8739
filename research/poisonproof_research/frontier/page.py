"""Tables of the frontier page: all methods at some attack sizes, and the best at every size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poisonproof.evaluation.comparison import FAMILIES
from poisonproof.report.charts import round_step
from poisonproof_research.frontier.curves import GRID, Curve
from poisonproof_research.frontier.figures import frontier_svg, steps_back
from poisonproof_research.frontier.published import PublishedPoint
from poisonproof_research.reproduction.whole_files import write_bytes


@dataclass(frozen=True)
class BestRange:
    """Attack sizes `first` to `last`, the best method there, and its certified accuracy."""

    first: int
    last: int
    method: Curve
    certified: tuple[float, float]


def attack_sizes(methods: Sequence[Curve], count: int = 8) -> list[int]:
    """Return round attack sizes from 0 to where the best method has a tenth left."""
    sizes = np.arange(max(method.reach for method in methods) + 1)
    left = np.max([method.certified(sizes) for method in methods], axis=0)
    last = max(1, int((left >= 0.1).sum()) - 1)
    step = round_step(last / count)
    return list(range(0, last + 1, step))


def best_ranges(
    methods: Sequence[Curve], floor: float = 0.5, tolerance: float = 0.001
) -> list[BestRange]:
    """Return which method to take at each attack size, down to a certified accuracy of `floor`.

    Of the methods within `tolerance` of the best, the one that stays so longest; so the ranges do
    not change with every single test row.
    """
    sizes = np.array([size for size in GRID if size <= max(m.reach for m in methods)])
    shares = np.stack([method.certified(sizes) for method in methods])
    top = shares.max(axis=0)
    end = int((top >= floor).sum())
    good = (shares >= top - tolerance)[:, :end]
    ranges: list[BestRange] = []
    begin = 0
    while begin < end:
        # How long each method stays good from here on; one of them is the best here.
        lasts = [_run_length(line[begin:]) for line in good]
        current = int(np.argmax(lasts))
        last = begin + lasts[current] - 1
        ends = (float(shares[current, begin]), float(shares[current, last]))
        ranges.append(BestRange(int(sizes[begin]), int(sizes[last]), methods[current], ends))
        begin = last + 1
    return ranges


def _run_length(good: NDArray[np.bool_]) -> int:
    """Return how many entries are true before the first that is not.

    >>> _run_length(np.array([True, True, False, True]))
    2
    """
    return len(good) if good.all() else int(np.argmin(good))


def best_table(ranges: Sequence[BestRange], unit: str) -> str:
    """Return the best method per budget as Markdown."""
    lines = [f"| {unit} | best method | certified accuracy |", "| ---: | --- | ---: |"]
    for best in ranges:
        span = f"{best.first:,}" if best.first == best.last else f"{best.first:,} to {best.last:,}"
        first, last = (f"{100 * share:.2f} %" for share in best.certified)
        shares = first if best.first == best.last else f"{first} to {last}"
        lines.append(f"| {span} | {best.method.title} | {shares} |")
    return "\n".join(lines)


def method_table(
    methods: Sequence[Curve],
    points: Sequence[PublishedPoint],
    sizes: Sequence[int],
    places: Sequence[int] | None = None,
) -> str:
    """Return clean accuracy, median and certified accuracy of methods as Markdown.

    The largest certified accuracy of each column, among all methods, is bold. The paper's rows
    stand below. `places` are the methods with a line, by default all; numbers count all.
    """
    shares = np.stack([method.certified(list(sizes)) for method in methods])
    best = shares.max(axis=0)
    heads = ["no.", "method", "clean", "median r\\*", *(f"{size:,}" for size in sizes[1:])]
    lines = [table_row(heads), table_row(["---:", "---"] + ["---:"] * (len(heads) - 2))]
    for place in range(len(methods)) if places is None else places:
        method, line = methods[place], shares[place]
        median = "none" if method.median is None else f"{method.median:,}"
        cells = [_percent(share, top) for share, top in zip(line, best, strict=True)]
        lines.append(table_row([f"{place + 1}", method.title, cells[0], median, *cells[1:]]))
    for point in points:
        median = "none" if point.median is None else f"{point.median:,}"
        clean = f"{100 * point.clean:.2f} %"
        lines.append(table_row(["", f"*{point.title}*", clean, median, *[""] * (len(sizes) - 1)]))
    return "\n".join(lines)


def _percent(share: float, best: NDArray[np.float64] | float) -> str:
    text = f"{100 * share:.2f} %"
    return f"**{text}**" if share == best and share > 0 else text


def table_row(cells: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def folded(words: str, text: str) -> str:
    """Return what is shown only when a reader opens it."""
    return f'<details markdown="1">\n<summary>{words}</summary>\n\n{text}\n\n</details>'


# ``frontier.md``: every method on the same data, from results alone.

PAGE = "frontier.md"
_THREATS = ("insert_delete", "label_flip", "replace")


def write_frontier(
    methods: Sequence[Curve],
    points: Sequence[PublishedPoint],
    out: Path,
    command: str,
) -> list[Path]:
    """Write the page and its figures.

    Parameters
    ----------
    methods : sequence of Curve
        All curves.
    points : sequence of PublishedPoint
        What the paper prints; those of other data are left out.
    out : Path
        Folder of the page.
    command : str
        What makes the page again.

    Returns
    -------
    list of Path
        What was written. The same results give the same bytes.
    """
    written, sections = [], []
    for dataset, threat in _groups(methods):
        own = _ordered([m for m in methods if (m.dataset, m.threat) == (dataset, threat)])
        theirs = [p for p in points if (p.dataset, p.threat) == (dataset, threat)]
        path = out / f"frontier-{re.sub(r'[^A-Za-z0-9.-]+', '-', f'{dataset}-{threat}')}.svg"
        unit = own[0].unit
        title = f"{own[0].dataset_title}: {unit}"
        write_bytes(path, frontier_svg(own, theirs, title, unit))
        written.append(path)
        sections.append(_section(own, theirs, title, unit, path.name))
    text = "\n\n".join([_introduction(methods, command), *sections, _sources(methods)])
    write_bytes(out / PAGE, f"{text}\n".encode())
    return [*written, out / PAGE]


def _groups(methods: Sequence[Curve]) -> list[tuple[str, str]]:
    """Return dataset and threat of every section: datasets as they come, threats in order."""
    found = dict.fromkeys((method.dataset, method.threat) for method in methods)
    datasets = list(dict.fromkeys(method.dataset for method in methods))
    return sorted(
        found, key=lambda pair: (datasets.index(pair[0]), _THREATS.index(pair[1].split("/")[0]))
    )


def _ordered(methods: Sequence[Curve]) -> list[Curve]:
    """Return one kind of vote after the other, titles as people count: k = 80 before k = 100."""
    families = list(FAMILIES)
    return sorted(
        methods, key=lambda method: (families.index(method.family), _by_number(method.title))
    )


def _by_number(title: str) -> list[tuple[float, str]]:
    """Return a key that sorts numbers by their value.

    >>> sorted(["k = 1,000", "k = 80", "k = 250"], key=_by_number)
    ['k = 80', 'k = 250', 'k = 1,000']
    """
    parts = re.split(r"(\d+(?:,\d{3})*(?:\.\d+)?)", title)
    return [
        (float(part.replace(",", "")), "") if place % 2 else (0.0, part)
        for place, part in enumerate(parts)
    ]


def _introduction(methods: Sequence[Curve], command: str) -> str:
    return f"""# The frontier

<!-- Generated by `{command}`. Do not edit. -->

Certified accuracy against attack size, for every method on the same data: the share of all test
rows that are classified correctly and provably stay so, whatever an attacker of that size does to
the training rows. {len(methods)} methods. The
median r\\* is the largest attack size with a certified accuracy of at least one half."""


def _section(
    methods: Sequence[Curve],
    points: Sequence[PublishedPoint],
    title: str,
    unit: str,
    figure: str,
) -> str:
    paper = (
        " Rows in italics and crosses are the paper's; its printed medians are one larger."
        if points
        else ""
    )
    behind = steps_back(methods)
    ahead = [place for place in range(len(methods)) if place not in behind]
    sizes = attack_sizes(methods)
    more = ""
    if behind:
        words = (
            f"{len(behind)} methods that are best at no size, nor by accuracy and median together "
            "(grey curves)"
        )
        more = f"\n\n{folded(words, method_table(methods, [], sizes, behind))}"
    notes = dict.fromkeys(method.facts["note"] for method in methods if "note" in method.facts)
    head = "\n\n".join([f"## {title}", *notes])
    return f"""{head}

[![Certified accuracy of {len(methods)} methods against attack size; the numbers on the curves are
those of the table below]({figure})]({figure})

{method_table(methods, points, sizes, ahead)}

Columns are attack sizes; the best of each is bold. Numbers are those of the picture.{paper}{more}

**Best method per budget**, while at least half of the test rows are certified (of the methods
within 0.1 percentage points of the best, the one that stays there longest):

{best_table(best_ranges(methods), unit)}"""


def _sources(methods: Sequence[Curve]) -> str:
    lines = ["| method | settings | chosen on | command |", "| --- | --- | --- | --- |"]
    for method in methods:
        lines.append(
            f"| {method.dataset_title}: {method.title} | {method.settings} | {method.chosen_on} | "
            f"`{method.command}` |"
        )
    words = f"Settings of {len(methods)} methods, what they were chosen on, and the commands"
    table = folded(words, "\n".join(lines))
    return f"## Where the numbers come from\n\n{table}"
