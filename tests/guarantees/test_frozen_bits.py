"""Partitions, canonical bytes and radii are what they were."""

from __future__ import annotations

import json

from .frozen_bits import GOLDEN, OF_RESEARCH, integers


def test_no_partition_no_canonical_byte_and_no_radius_has_moved() -> None:
    golden = json.loads(GOLDEN.read_text())
    now = integers()
    assert {name for name in now if golden.get(name) != now[name]} == set()
    assert now.keys() == {name for name in golden if not name.startswith(OF_RESEARCH)}
