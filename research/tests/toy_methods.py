"""Two small methods on the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from poisonproof.certificates import certify_row_votes, certify_votes
from poisonproof.evaluation.comparison import Method


def make_method(name: str, family: str, certificates: object, y_true: object) -> Method:
    facts = {"n_train": 100, "train_class_sizes": [60, 40]}
    texts = (name, "toy", "Toy", family, f"title of {name}", "settings", "chosen", "command")
    return Method(*texts, certificates, np.asarray(y_true), facts)  # type: ignore[arg-type]


@pytest.fixture
def strong() -> Method:
    """Large radii on half of the rows."""
    certificates = certify_row_votes([[40, 0], [0, 30], [5, 5], [5, 6]], 100)
    return make_method("strong", "neighbors", certificates, [0, 1, 1, 0])


@pytest.fixture
def accurate() -> Method:
    """Right everywhere, with small radii."""
    votes = [[0] * 9, [1] * 9, [1] * 8 + [0], [0] * 7 + [1] * 2]
    return make_method("accurate", "dpa", certify_votes(votes, 2), [0, 1, 1, 0])
