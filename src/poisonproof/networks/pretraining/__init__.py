"""poisonproof.networks.pretraining"""

from __future__ import annotations
