"""How members are trained and asked."""

from __future__ import annotations
