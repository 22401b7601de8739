"""The report's section about real attacks: one small chart per kind, and a table."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from poisonproof.attacks import AttackStudy, KindOutcome
from poisonproof.report.attack_figure import NO_ATTACK, surviving
from poisonproof.report.charts import Tick

__all__ = ["attack_section"]


def attack_section(study: AttackStudy) -> dict[str, Any]:
    """Return what the template draws."""
    tried, changed = study.trials_within
    return {
        "n_members": study.n_members,
        "n_rows": study.n_rows,
        "limit": study.limit,
        "tried": tried,
        "changed": changed,
        "kinds": [_kind(kind, study.limit) for kind in study.kinds],
    }


def _kind(kind: KindOutcome, limit: int) -> dict[str, Any]:
    shares = surviving(kind, np.arange(limit + 1))
    tried, changed = kind.trials_within
    firsts = (kind.median_first(which) for which in ("protected", "unprotected"))
    held, bare = (f"> {limit:,}" if first is None else f"{first:,}" for first in firsts)
    return {
        "title": kind.title,
        "unit": kind.threat.plural,
        "paths": {name: _steps(share.tolist(), limit) for name, share in shares.items()},
        "x_ticks": _log_ticks(limit),
        "proved": f"{kind.median_radius:,}",
        "held": held,
        "bare": bare,
        "tried": tried,
        "changed": changed,
        "label": f"{kind.title}. Half of the predictions are proved up to {kind.median_radius:,} "
        f"{kind.threat.plural}; the protected model fell at {held}, the unprotected at {bare}.",
    }


def _steps(shares: list[float], limit: int) -> str:
    """Return shares at sizes 0, 1, ... as steps in a box of 1000 by 1000, sizes logarithmic.

    >>> _steps([1.0, 0.5, 0.5, 0.0], limit=3)
    'M0 0H245.1V500H1000V1000H1000'
    """
    path = [f"M0 {1000 * (1 - shares[0]):.4g}"]
    for size, (before, after) in enumerate(pairwise(shares), start=1):
        if after != before:
            path.append(f"H{_place(size, limit):.4g}V{1000 * (1 - after):.4g}")
    return "".join([*path, "H1000"])


def _place(size: int, limit: int) -> float:
    return 1000 * math.log(size / NO_ATTACK) / math.log(limit / NO_ATTACK)


def _log_ticks(limit: int) -> tuple[Tick, ...]:
    sizes = [factor * 10**power for power in range(9) for factor in (1, 3)]
    return tuple(
        Tick(f"{_place(size, limit) / 10:.5g}%", f"{size:,}") for size in sizes if size <= limit
    )
