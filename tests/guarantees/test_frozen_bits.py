"""Partitions, canonical bytes and radii are what they were."""

from __future__ import annotations

import json

from .frozen_bits import GOLDEN, integers


def test_no_partition_no_canonical_byte_and_no_radius_has_moved() -> None:
    golden = json.loads(GOLDEN.read_text())
    now = integers()
    assert {name for name in now if golden.get(name) != now[name]} == set()
    research = ("collective", "finite aggregation", "runoff, shared buckets")
    assert now.keys() == {name for name in golden if not name.startswith(research)}
