"""Other weightings than the product's keep the certificate: refits on flips, order, company."""

from __future__ import annotations

from typing import Any

import pytest

from poisonproof_research.methods.flat_weights import FlatWeights
from poisonproof_research.methods.neighborhood_weights import NeighborhoodWeights
from tests.guarantees import test_weighted_votes as product

WEIGHTINGS = [FlatWeights(24, 0.05), NeighborhoodWeights(100, n_neighbors=12)]


@pytest.mark.parametrize("weights", WEIGHTINGS, ids=["flat", "neighborhoods"])
def test_the_certificate_holds(weights: Any) -> None:
    product.refits_on_the_cheapest_flips(weights)
    product.labels_order_and_company(weights)
