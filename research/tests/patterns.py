"""Small images, some of four kinds that a small network tells apart, and maps learned from them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from poisonproof.networks import FrozenNetwork, PretrainSpec, train_features
from poisonproof_research.networks.refine_spec import RefineSpec

FEATURES = PretrainSpec(
    "simclr",
    (3, 8, 8),
    epochs=6,
    batch_size=64,
    learning_rate=0.2,
    nesterov=False,
    schedule="cosine",
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
    width=8,
    head=16,
    map_rows=64,
)
CLUSTERS = RefineSpec(
    4,
    n_neighbors=8,
    graph_neighbors=8,
    random_starts=3,
    head_epochs=10,
    head_batch=64,
    head_rate=1e-2,
    agreement_epochs=10,
    agreement_batch=32,
    label_epochs=4,
    label_batch=32,
    confidence=0.9,
    learning_rate=3e-3,
)


def make_patterns(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return red bars, green lines, blue checks and white rings in noise, and which of them."""
    rng = np.random.default_rng(0)
    kinds = rng.permutation(np.arange(n) % 4)
    y, x = np.mgrid[:8, :8]
    distance = np.maximum(np.abs(y - 3.5), np.abs(x - 3.5))
    drawn = np.stack([x % 4 < 2, y % 4 < 2, (x // 2 + y // 2) % 2 == 0, distance % 2 < 1])
    colour = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])[kinds]
    clean = 40.0 + colour[:, :, None, None] * (80.0 + 60.0 * drawn[kinds, None])
    noise = rng.normal(0.0, 20.0, (n, 3, 8, 8)) + rng.normal(0.0, 10.0, (n, 3, 1, 1))
    return np.clip(clean + noise, 0, 255).astype(np.uint8), kinds


@pytest.fixture(scope="session")
def patterns() -> np.ndarray:
    return make_patterns(256)[0]


@pytest.fixture(scope="session")
def kinds() -> np.ndarray:
    return make_patterns(256)[1]


@pytest.fixture(scope="session")
def features(patterns: np.ndarray) -> FrozenNetwork:
    found = train_features(patterns, FEATURES)
    assert found is not None
    return found


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    return (load_digits().images * 15).astype(np.uint8)


@pytest.fixture(scope="session")
def labels() -> np.ndarray:
    return load_digits().target.astype(np.int64)


@pytest.fixture(scope="session")
def rotnet(images: np.ndarray) -> FrozenNetwork:
    spec = PretrainSpec(
        "rotnet", (1, 8, 8), epochs=3, batch_size=32, milestones=(2,), crop=1, mean=(0.3,),
        std=(0.37,), map_rows=64,
    )  # fmt: skip
    found = train_features(images[:96], spec)
    assert found is not None
    return found
