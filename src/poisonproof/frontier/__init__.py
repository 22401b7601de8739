"""The frontier: what every method certifies on the same data, on one page."""

from poisonproof.frontier.evidence import (
    certify_evidence,
    cluster_evidence,
    count_evidence,
    make_evidence,
    radius_evidence,
)
from poisonproof.frontier.facts import run_facts
from poisonproof.frontier.files import read_method, write_method
from poisonproof.frontier.goals import Change, Goal, read_goals
from poisonproof.frontier.method import FAMILIES, Method
from poisonproof.frontier.page import write_frontier
from poisonproof.frontier.published import PublishedPoint, published_points
from poisonproof.frontier.reproduced import read_folder

__all__ = [
    "FAMILIES",
    "Change",
    "Goal",
    "Method",
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
