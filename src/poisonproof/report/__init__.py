"""One self-contained page, a summary and pictures from the certificates of a test set."""

from __future__ import annotations

from poisonproof.report.document import Report
from poisonproof.report.evidence import Evidence, Identity, certificates_digest
from poisonproof.report.page import Step
from poisonproof.report.samples import CellSamples, Samples, make_samples
from poisonproof.report.words import headline

__all__ = [
    "CellSamples",
    "Evidence",
    "Identity",
    "Report",
    "Samples",
    "Step",
    "certificates_digest",
    "headline",
    "make_samples",
]
