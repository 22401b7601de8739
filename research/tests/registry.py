"""Members of the laboratory that owe the guarantee: one line each, as in the product's registry."""

from __future__ import annotations

from typing import Any

from poisonproof import SSDPAClassifier
from poisonproof.networks import FrozenNetwork, PretrainSpec, train_features
from poisonproof_research.methods.one_label import ClusterIndex, OneLabelClassifier
from poisonproof_research.networks.heads import HeadLearner
from poisonproof_research.networks.tails import TailLearner
from tests.guarantees.data import data
from tests.guarantees.registry import Case


def _learned(method: str, **options: Any) -> FrozenNetwork:
    """Return a map that has seen a few images: members on it must keep apart, not do well."""
    spec = PretrainSpec(method, (1, 8, 8), epochs=1, batch_size=16, map_rows=32, **options)
    found = train_features(data("small-images").X[:16].reshape(-1, 1, 8, 8), spec)
    assert found is not None
    return found


_ONE_LABEL = OneLabelClassifier(12, "abstain")
_HEAD = HeadLearner(_learned("simclr", width=8), views=3, epochs=4, batch_size=16, stack_width=3)
_TAIL = TailLearner(
    _learned("rotnet", crop=1), epochs=2, batch_size=16, milestones=(1,), stack_width=3
)

CASES = [
    Case("ss-head", SSDPAClassifier(_HEAD, None, 8), "small-images"),
    Case("ss-tail", SSDPAClassifier(_TAIL, None, 8), "small-images"),
    Case("ss-one-label", SSDPAClassifier(_ONE_LABEL, ClusterIndex(12), 300)),
]
