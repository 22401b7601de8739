"""All methods compared: certified accuracy against attack size on the published datasets."""

from __future__ import annotations

from poisonproof_research.frontier.curves import (
    Curve,
    make_curve,
    read_curves,
    read_evidence,
    write_curves,
    write_method,
)
from poisonproof_research.frontier.evidence import (
    certify_evidence,
    cluster_evidence,
    count_evidence,
    make_evidence,
    radius_evidence,
    read_rows_of_paper,
    run_facts,
)
from poisonproof_research.frontier.page import (
    PublishedPoint,
    published_points,
    write_frontier,
)

__all__ = [
    "Curve",
    "PublishedPoint",
    "certify_evidence",
    "cluster_evidence",
    "count_evidence",
    "make_curve",
    "make_evidence",
    "published_points",
    "radius_evidence",
    "read_curves",
    "read_evidence",
    "read_rows_of_paper",
    "run_facts",
    "write_curves",
    "write_frontier",
    "write_method",
]
