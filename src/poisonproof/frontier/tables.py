"""Tables of the frontier page: all methods at some attack sizes, and the best at every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from poisonproof.frontier.method import Method
from poisonproof.frontier.published import PublishedPoint
from poisonproof.report.charts import round_step

__all__ = [
    "BestRange",
    "attack_sizes",
    "best_ranges",
    "best_table",
    "folded",
    "method_table",
    "table_row",
]


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
