"""poisonproof_research.cli"""

from __future__ import annotations
