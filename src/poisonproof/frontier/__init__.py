"""The frontier: what every method certifies on the same data, on one page."""

from poisonproof.frontier.evidence import (
    certify_evidence,
    cluster_evidence,
    count_evidence,
    radius_evidence,
)
from poisonproof.frontier.files import read_method, read_methods, write_method
from poisonproof.frontier.method import FAMILIES, Method

__all__ = [
    "FAMILIES",
    "Method",
    "certify_evidence",
    "cluster_evidence",
    "count_evidence",
    "radius_evidence",
    "read_method",
    "read_methods",
    "write_method",
]
