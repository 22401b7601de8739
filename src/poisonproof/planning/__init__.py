"""Choosing k and the members, on trusted rows or from declared numbers."""

from __future__ import annotations

from poisonproof.planning.choice import Plan, PlanRow, make_plan
from poisonproof.planning.curve_files import load_curves, save_curves
from poisonproof.planning.curves import CurvePoint, LearningCurves, measure_curves
from poisonproof.planning.declared import declared_partitions

__all__ = [
    "CurvePoint",
    "LearningCurves",
    "Plan",
    "PlanRow",
    "declared_partitions",
    "load_curves",
    "make_plan",
    "measure_curves",
    "save_curves",
]
