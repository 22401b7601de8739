"""Learning curves as a JSON file: measured once, planned with many times."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from poisonproof.exceptions import InvalidInputError
from poisonproof.planning.curves import CurvePoint, LearningCurves
from poisonproof.replacing import write_bytes
from poisonproof.strict import parse_json

__all__ = ["load_curves", "save_curves"]

FORMAT = "poisonproof-curves"
VERSION = 1
MAX_BYTES = 2**28


def save_curves(curves: LearningCurves, path: str | os.PathLike[str]) -> None:
    """Write curves to a file; margins keep four digits."""
    points = [
        asdict(point) | {"margins": [round(margin, 4) for margin in point.margins.tolist()]}
        for point in curves.points
    ]
    head = {"format": FORMAT, "version": VERSION, "unit": curves.unit}
    values = {**head, "n_rows": curves.n_rows, "n_test": curves.n_test, "points": points}
    write_bytes(Path(path), json.dumps(values).encode() + b"\n")


def load_curves(path: str | os.PathLike[str]) -> LearningCurves:
    """Read curves from a file."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInputError(f"{path} is larger than {MAX_BYTES:,} bytes: no curves.")
        values = parse_json(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror or error}.") from error
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} is not a file of curves: {error}.") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InvalidInputError(
            f"{path} holds no learning curves. Measure some with: poisonproof plan TRUSTED "
            f"--schema FILE --out {path}"
        )
    if values.get("version") != VERSION:
        raise InvalidInputError(f"{path} has version {values.get('version')!r}, not {VERSION}.")
    try:
        points = tuple(_point(entry) for entry in values["points"])
        return LearningCurves(
            points, int(values["n_rows"]), int(values["n_test"]), str(values["unit"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"{path} is damaged: {error}.") from error


def _point(entry: Any) -> CurvePoint:
    margins = np.asarray(entry["margins"], dtype=np.float64)
    size = int(entry["rows_per_member"])
    if margins.ndim != 1 or not len(margins) or not np.isfinite(margins).all() or size < 1:
        raise ValueError("a point has no margins or no rows")
    return CurvePoint(
        model=str(entry["model"]),
        rows_per_member=size,
        n_members=int(entry["n_members"]),
        margins=margins,
        accuracy=float(entry["accuracy"]),
        member_accuracy=float(entry["member_accuracy"]),
        seconds=float(entry["seconds"]),
    )
