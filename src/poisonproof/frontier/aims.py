"""The page's section on goals: which are reached, what made that, what holds the others back."""

from __future__ import annotations

from collections.abc import Sequence

from poisonproof.certificates import parse_threat
from poisonproof.frontier.ablation import (
    Shortfall,
    can_be_ablated,
    cluster_agreement,
    shortfall,
)
from poisonproof.frontier.goals import Goal
from poisonproof.frontier.method import Method
from poisonproof.frontier.tables import folded, table_row

__all__ = ["aims_section"]


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
            f"| {what} | {_percent(before.clean)} to {_percent(after.clean)} | {_median(before)} "
            f"to {_median(after)} | {_percent(shares[0])} to {_percent(shares[1])} |"
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
            f"| {method.title} | {_percent(lack.right)} | {_percent(lack.needed or 0.0)} | "
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
        f"| {method.title} | {_percent(share)} | {_percent(method.clean)} | {_median(method)} | "
        f"{_percent(float(method.certified(goal.radius)))} |"
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
        f"Closest is {method.title}: its votes are right in {_percent(lack.right)} of all cases, "
        f"and {_percent(lack.needed or 0.0)} would do, if of each test row's wrong votes the same "
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
    return f"{_median(method)} at {_percent(method.clean)} ({method.title})"


def _median(method: Method) -> str:
    return "none" if method.median is None else f"{method.median:,}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
