"""Small images, and a map learned from them once for all tests."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from poisonproof.networks import FrozenNetwork, PretrainSpec, train_features

ROTNET = PretrainSpec(
    "rotnet",
    (1, 8, 8),
    epochs=3,
    batch_size=32,
    milestones=(2,),
    crop=1,
    mean=(0.3,),
    std=(0.37,),
    map_rows=64,
)


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    return (load_digits().images * 15).astype(np.uint8)


@pytest.fixture(scope="session")
def rotnet(images: np.ndarray) -> FrozenNetwork:
    found = train_features(images[:96], ROTNET)
    assert found is not None
    return found
