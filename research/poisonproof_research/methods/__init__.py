"""poisonproof_research.methods"""

from __future__ import annotations
