"""NiN in kernels whose every program belongs to one member."""

from __future__ import annotations
