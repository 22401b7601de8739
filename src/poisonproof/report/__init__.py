"""One self-contained page, a summary and pictures from the certificates of a test set."""

from __future__ import annotations

from poisonproof.report.document import Report, Step
from poisonproof.report.evidence import Evidence, Identity, certificates_digest
from poisonproof.report.samples import Samples, cell_samples, make_samples
from poisonproof.report.words import headline

__all__ = [
    "Evidence",
    "Identity",
    "Report",
    "Samples",
    "Step",
    "cell_samples",
    "certificates_digest",
    "headline",
    "make_samples",
]
