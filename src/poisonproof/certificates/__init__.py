"""From votes to certificates: exact integer arithmetic that needs NumPy alone."""

from __future__ import annotations

from poisonproof.certificates.grid import certify_grid, certify_grid_scores
from poisonproof.certificates.plurality import (
    ABSTAIN,
    certify_row_votes,
    certify_votes,
    count_votes,
    plurality,
    plurality_radius,
    targeted_radius,
)
from poisonproof.certificates.result import Certificates, GridCertificates
from poisonproof.certificates.runoff import certify_scores
from poisonproof.certificates.threats import (
    OBSERVED_LABELS,
    THREAT_NAMES,
    TRUSTED_SAMPLES,
    UNFORGEABLE_GROUPS,
    UNITS,
    Threat,
    make_threat,
    parse_threat,
    resolve_threat,
)

__all__ = [
    "ABSTAIN",
    "OBSERVED_LABELS",
    "THREAT_NAMES",
    "TRUSTED_SAMPLES",
    "UNFORGEABLE_GROUPS",
    "UNITS",
    "Certificates",
    "GridCertificates",
    "Threat",
    "certify_grid",
    "certify_grid_scores",
    "certify_row_votes",
    "certify_scores",
    "certify_votes",
    "count_votes",
    "make_threat",
    "parse_threat",
    "plurality",
    "plurality_radius",
    "resolve_threat",
    "targeted_radius",
]
