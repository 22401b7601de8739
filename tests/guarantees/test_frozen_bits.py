"""Partitions, canonical bytes and radii are what they were."""

from __future__ import annotations

import json

from .frozen_bits import GOLDEN, integers


def test_no_partition_no_canonical_byte_and_no_radius_has_moved() -> None:
    golden = json.loads(GOLDEN.read_text())
    now = integers()
    assert {name for name in golden if now.get(name) != golden[name]} == set()
    assert now.keys() == golden.keys()
