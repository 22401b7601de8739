"""The frontier: what every method certifies on the same data, on one page."""

from __future__ import annotations

from poisonproof_research.frontier.evidence import (
    certify_evidence,
    cluster_evidence,
    count_evidence,
    make_evidence,
    radius_evidence,
    read_folder,
    read_method,
    run_facts,
    write_method,
)
from poisonproof_research.frontier.goals import Change, Goal, read_goals
from poisonproof_research.frontier.page import write_frontier
from poisonproof_research.frontier.published import PublishedPoint, published_points

__all__ = [
    "Change",
    "Goal",
    "PublishedPoint",
    "certify_evidence",
    "cluster_evidence",
    "count_evidence",
    "make_evidence",
    "published_points",
    "radius_evidence",
    "read_folder",
    "read_goals",
    "read_method",
    "run_facts",
    "write_frontier",
    "write_method",
]
