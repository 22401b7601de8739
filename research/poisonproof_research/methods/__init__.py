"""Methods that only comparisons use."""

from __future__ import annotations
