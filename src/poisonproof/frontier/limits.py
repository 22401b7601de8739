"""How large a radius each kind of vote can have at all, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poisonproof.frontier.method import FAMILIES, Method

__all__ = ["limit_table"]

_ARGUMENTS = {
    "dpa": (
        "floor(k / 2)",
        "One row reaches one member. Even if all k agree, half of them, changed, make another "
        "label win.",
    ),
    "ss-dpa": (
        "floor(k / 2)",
        "One flipped label reaches one member, and k members give k votes. More members have "
        "fewer rows each, down to one.",
    ),
    "finite_aggregation": (
        "floor(k / 2)",
        "One row reaches d of k d members, and each that changes sides closes the gap by two.",
    ),
    "runoff": (
        "floor(k / 2)",
        "The second round is decided by k preferences between two labels.",
    ),
    "neighbors": (
        "n_c",
        "Rows vote for their own label, so at most the n_c training rows of the class do; without "
        "them the label has no vote left.",
    ),
    "clusters_local": (
        "n / 2",
        "Half of the n rows of a cluster, relabelled, are a majority of their own.",
    ),
    "clusters_assigned": (
        "(n_A + n_B) / 2",
        "Exchanging the labels A and B in all their rows costs n_A + n_B flips and exchanges the "
        "predictions of any rule that treats labels alike. Halfway, within reach from both ends, "
        "a prediction would have to be A and B.",
    ),
    "label_flips": (
        "(n_A + n_B) / 2",
        "The same exchange: no rule that treats labels alike withstands half of n_A + n_B flips.",
    ),
}

_RELABELLED = {
    "neighbors": (
        "n_c / 2",
        "Rows vote for their own label, so at most the n_c training rows of the class do; half of "
        "them, relabelled, give another label as many votes as are left.",
    ),
}
"""Where flipped labels meet another limit than inserted and deleted rows."""


def limit_table(methods: Sequence[Method]) -> str:
    """Return a Markdown table: the limit of every kind of vote under one threat, and why."""
    flips = all(method.threat == "label_flip" for method in methods)
    arguments = _ARGUMENTS | (_RELABELLED if flips else {})
    families = [name for name in FAMILIES if any(method.family == name for method in methods)]
    lines = ["| kind of vote | limit | here | argument |", "| --- | --- | --- | --- |"]
    for family in families:
        limit, argument = arguments[family]
        own = [method for method in methods if method.family == family]
        lines.append(f"| {FAMILIES[family]} | {limit} | {_here(family, own)} | {argument} |")
    return "\n".join(lines)


def _here(family: str, methods: Sequence[Method]) -> str:
    """Return the limit in numbers, as far as the results tell."""
    if family in ("dpa", "ss-dpa", "runoff", "finite_aggregation"):
        members = sorted(
            {method.certificates.n_members // method.facts.get("degree", 1) for method in methods}
        )
        return ", ".join(f"{k // 2:,} (k = {k:,})" for k in members)
    sizes = next(
        (m.facts["train_class_sizes"] for m in methods if "train_class_sizes" in m.facts), None
    )
    if sizes is None:
        return ""
    rows = np.sort(np.asarray(sizes))
    if family == "neighbors":
        share = 2 if methods[0].threat == "label_flip" else 1
        return f"{rows[0] // share:,} to {rows[-1] // share:,}"
    if family == "clusters_local":
        return f"about {rows[0] // 2:,} to {rows[-1] // 2:,}, one cluster per class"
    if family in ("clusters_assigned", "label_flips"):
        return f"{(rows[0] + rows[1]) // 2:,} to {(rows[0] + rows[-1]) // 2:,}"
    return ""
