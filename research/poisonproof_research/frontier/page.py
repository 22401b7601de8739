"""Tables of the frontier page: all methods at some attack sizes, and the best at every size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from poisonproof.certificates.threats import parse_threat
from poisonproof.evaluation.comparison import FAMILIES, Method
from poisonproof.report.charts import round_step
from poisonproof_research.frontier.figures import frontier_svg, steps_back
from poisonproof_research.frontier.goals import (
    Goal,
    Shortfall,
    can_be_ablated,
    cluster_agreement,
    limit_table,
    shortfall,
)
from poisonproof_research.frontier.published import PublishedPoint
from poisonproof_research.reproduction.whole_files import write_bytes


@dataclass(frozen=True)
class BestRange:
    """Attack sizes `first` to `last`, the best method there, and its certified accuracy."""

    first: int
    last: int
    method: Method
    certified: tuple[float, float]


def attack_sizes(methods: Sequence[Method], count: int = 8) -> list[int]:
    """Return round attack sizes from 0 to where the best method has a tenth left."""
    sizes = np.arange(max(method.reach for method in methods) + 1)
    left = np.max([method.certified(sizes) for method in methods], axis=0)
    last = max(1, int((left >= 0.1).sum()) - 1)
    step = round_step(last / count)
    return list(range(0, last + 1, step))


def best_ranges(
    methods: Sequence[Method], floor: float = 0.5, tolerance: float = 0.001
) -> list[BestRange]:
    """Return which method to take at each attack size, down to a certified accuracy of `floor`.

    Of the methods within `tolerance` of the best, the one that stays so longest; so the ranges do
    not change with every single test row.
    """
    sizes = np.arange(max(method.reach for method in methods) + 1)
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
        ranges.append(BestRange(begin, last, methods[current], ends))
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
    methods: Sequence[Method],
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


# The page's section on goals: which are reached, what made that, what holds the others back.


def aims_section(goals: Sequence[Goal], methods: Sequence[Method]) -> str:
    """Return the section as Markdown.

    Parameters
    ----------
    goals : sequence of Goal
        All goals.
    methods : sequence of Method
        All results, in any order.
    """
    heads = ["data", "attack", "goal", "reached", "best"]
    told = any(goal.seen for goal in goals)
    rows, explained = [], []
    for goal in goals:
        own = [method for method in methods if goal.concerns(method)]
        reached = [method for method in own if goal.reached_by(method)]
        words = _best(goal, own, reached)
        cells = [goal.title, _unit(goal), _aim(goal), "yes" if reached else "**no**", words]
        rows.append(table_row([*cells, goal.seen] if told else cells))
        explained += _made(goal, own) if reached else [_held_back(goal, own)]
    head = [
        "## What was aimed at",
        "",
        "Goals are medians r\\* at an accuracy without attack, on all test rows. Of a goal that is "
        "reached the table names the method with the largest median among those that reach it; "
        "else the one with the largest median among those that are accurate enough, then the most "
        "accurate one with the median.",
        "",
        table_row([*heads, "known of the test rows before"] if told else heads),
        table_row(["---"] * (len(heads) + told)),
    ]
    return "\n\n".join(["\n".join([*head, *rows]), *explained])


def _best(goal: Goal, own: Sequence[Method], reached: Sequence[Method]) -> str:
    if reached:
        return _point(max(reached, key=lambda method: (method.median or 0, method.clean)))
    accurate = [method for method in own if goal.accurate(method) and method.median is not None]
    robust = [method for method in own if goal.robust(method)]
    words = []
    if accurate:
        words.append(_point(max(accurate, key=lambda method: (method.median or 0, method.clean))))
    if robust:
        words.append(_point(max(robust, key=lambda method: method.clean)))
    if not words and own:
        closest = max(own, key=lambda method: float(method.certified(goal.radius)))
        words.append(
            f"none is accurate enough, or certifies half of the rows at {goal.radius:,}; closest: "
            + _point(closest)
        )
    return "; ".join(words) if words else "no method has been measured here"


def _made(goal: Goal, own: Sequence[Method]) -> list[str]:
    """Return what was tried for a goal that is reached, folded."""
    title = f"{goal.title}, {_unit(goal)}, {_aim(goal)}: what was tried"
    return [folded(title, table) for table in _changes(goal, own)]


def _held_back(goal: Goal, own: Sequence[Method]) -> str:
    title = f"### {goal.title}, {_unit(goal)}: {_aim(goal)}"
    if not own:
        return f"{title}\n\nNo method has been measured on this data under this threat yet."
    parts = [title, *_changes(goal, own), *_what_if(goal, own), *_clusters(goal, own)]
    return "\n\n".join(parts)


def _changes(goal: Goal, own: Sequence[Method]) -> list[str]:
    """Return what one change at a time did, where both results are there."""
    known = {method.id: method for method in own}
    pairs = [
        (change.what, known[change.before], known[change.after])
        for change in goal.changes
        if change.before in known and change.after in known
    ]
    if not pairs:
        return []
    lines = [
        f"| one change at a time | clean | median r\\* | certified at {goal.radius:,} |",
        "| --- | ---: | ---: | ---: |",
    ]
    for what, before, after in pairs:
        shares = [float(method.certified(goal.radius)) for method in (before, after)]
        lines.append(
            f"| {what} | {_aims_percent(before.clean)} to {_aims_percent(after.clean)} | {_median(before)} "
            f"to {_median(after)} | {_aims_percent(shares[0])} to {_aims_percent(shares[1])} |"
        )
    return ["\n".join(lines)]


def _what_if(goal: Goal, own: Sequence[Method]) -> list[str]:
    """Return what better members would do, for votes whose counts are kept."""
    able = [method for method in own if can_be_ablated(method)]
    found = [(method, shortfall(method, goal)) for method in able]
    reachable = [(method, lack) for method, lack in found if lack.needed is not None]
    if not found:
        return []
    if not reachable:
        largest = max(lack.limit for _, lack in found)
        return [
            "What holds it back is the kind of vote: even if every vote were right, the largest "
            f"median here would be {largest:,}."
        ]
    lines = [
        "| votes | right now | right, for the goal | median if all right | if mistakes spread |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for method, lack in reachable:
        lines.append(
            f"| {method.title} | {_aims_percent(lack.right)} | {_aims_percent(lack.needed or 0.0)} | "
            f"{lack.limit:,} | {lack.spread:,} |"
        )
    small = len(found) - len(reachable)
    left_out = (
        f" Left out: {small} that could not reach the goal if all were right." if small else ""
    )
    closest = min(reachable, key=lambda pair: (pair[1].needed or 0.0) - pair[1].right)
    return ["\n".join(lines), _conclusion(goal, *closest) + left_out]


def _clusters(goal: Goal, own: Sequence[Method]) -> list[str]:
    """Return how far the clusters are classes at all."""
    found = [(method, cluster_agreement(method)) for method in own]
    lines = [
        f"| {method.title} | {_aims_percent(share)} | {_aims_percent(method.clean)} | {_median(method)} | "
        f"{_aims_percent(float(method.certified(goal.radius)))} |"
        for method, share in found
        if share is not None
    ]
    if not lines:
        return []
    heads = (
        f"| clusters | rows of their class | clean | median r\\* | certified at {goal.radius:,} |"
    )
    words = (
        "No vote of clusters is more accurate than the clusters are pure: a row in a cluster of "
        "another class is wrong whatever the labels say, and rows of other classes in a cluster "
        "are the attacker's head start."
    )
    return ["\n".join([heads, "| --- | ---: | ---: | ---: | ---: |", *lines]), words]


def _conclusion(goal: Goal, method: Method, lack: Shortfall) -> str:
    """Say what the closest method lacks, and whether it is accuracy or agreement in error."""
    words = (
        f"Closest is {method.title}: its votes are right in {_aims_percent(lack.right)} of all cases, "
        f"and {_aims_percent(lack.needed or 0.0)} would do, if of each test row's wrong votes the same "
        "share were right. With as many mistakes as now, but on all test rows and labels alike, "
        f"its median would be {lack.spread:,}: "
    )
    if lack.spread >= goal.radius:
        return words + "**what holds it back is that votes are wrong on the same test rows.**"
    return words + "**what holds it back is how often votes are right, wherever they are wrong.**"


def _unit(goal: Goal) -> str:
    return parse_threat(goal.threat).plural


def _aim(goal: Goal) -> str:
    return f"{goal.radius:,} at {100 * goal.clean:g} %"


def _point(method: Method) -> str:
    return f"{_median(method)} at {_aims_percent(method.clean)} ({method.title})"


def _median(method: Method) -> str:
    return "none" if method.median is None else f"{method.median:,}"


def _aims_percent(share: float) -> str:
    return f"{100 * share:.2f} %"


# ``frontier.md``: every method on the same data, from results alone.

PAGE = "frontier.md"
_THREATS = ("insert_delete", "label_flip", "replace")


def write_frontier(
    methods: Sequence[Method],
    points: Sequence[PublishedPoint],
    out: Path,
    command: str,
    goals: Sequence[Goal] = (),
) -> list[Path]:
    """Write the page and its figures.

    Parameters
    ----------
    methods : sequence of Method
        All curves.
    points : sequence of PublishedPoint
        What the paper prints; those of other data are left out.
    out : Path
        Folder of the page.
    command : str
        What makes the page again.
    goals : sequence of Goal
        What is to be reached; the page says whether it is, what was tried, what is missing.

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
        unit = own[0].certificates.threat.plural
        title = f"{own[0].dataset_title}: {unit}"
        write_bytes(path, frontier_svg(own, theirs, title, unit))
        written.append(path)
        sections.append(_section(own, theirs, title, unit, path.name))
    aims = [aims_section(goals, methods)] if goals else []
    text = "\n\n".join([_introduction(methods, command), *aims, *sections, _sources(methods)])
    write_bytes(out / PAGE, f"{text}\n".encode())
    return [*written, out / PAGE]


def _groups(methods: Sequence[Method]) -> list[tuple[str, str]]:
    """Return dataset and threat of every section: datasets as they come, threats in order."""
    found = dict.fromkeys((method.dataset, method.threat) for method in methods)
    datasets = list(dict.fromkeys(method.dataset for method in methods))
    return sorted(
        found, key=lambda pair: (datasets.index(pair[0]), _THREATS.index(pair[1].split("/")[0]))
    )


def _ordered(methods: Sequence[Method]) -> list[Method]:
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


def _introduction(methods: Sequence[Method], command: str) -> str:
    return f"""# The frontier

<!-- Generated by `{command}`. Do not edit. -->

Certified accuracy against attack size, for every method on the same data: the share of all test
rows that are classified correctly and provably stay so, whatever an attacker of that size does to
the training rows. {len(methods)} methods; numbers are computed from kept votes, counts or clusters,
and where these say too little (run-offs, shared buckets, flips within members) from kept radii. The
median r\\* is the largest attack size with a certified accuracy of at least one half."""


def _section(
    methods: Sequence[Method],
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

{best_table(best_ranges(methods), unit)}

**How far each kind of vote can reach at all:**

{limit_table(methods)}"""


def _sources(methods: Sequence[Method]) -> str:
    lines = ["| method | settings | chosen on | command |", "| --- | --- | --- | --- |"]
    for method in methods:
        lines.append(
            f"| {method.dataset_title}: {method.title} | {method.settings} | {method.chosen_on} | "
            f"`{method.command}` |"
        )
    words = f"Settings of {len(methods)} methods, what they were chosen on, and the commands"
    table = folded(words, "\n".join(lines))
    return f"## Where the numbers come from\n\n{table}"
