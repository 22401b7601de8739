"""Labels and radii of the certificates that only comparisons use are what they were."""

from __future__ import annotations

import json

from tests.guarantees.frozen_bits import GOLDEN, OF_RESEARCH, integers_of_research


def test_no_radius_of_research_has_moved() -> None:
    golden = json.loads(GOLDEN.read_text())
    now = integers_of_research()
    assert {name for name in now if golden.get(name) != now[name]} == set()
    assert {name for name in golden if name.startswith(OF_RESEARCH)} <= now.keys()
