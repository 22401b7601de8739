"""Recipes of refinement; experiments/refined_clusters says what each number was taken from."""

from __future__ import annotations

from typing import Any

from poisonproof.exceptions import InvalidInputError
from poisonproof.pretraining.refinement.specification import RefineSpec

__all__ = ["REFINEMENT", "refinement_recipe"]

REFINEMENT: dict[str, dict[str, Any]] = {
    "clusters-cifar10": {"n_clusters": 10},
    # Signs are far from equally frequent, so less is asked of equal sizes; images are larger.
    "clusters-gtsrb": {
        "n_clusters": 43,
        "entropy_weight": 2.0,
        "agreement_epochs": 30,
        "label_epochs": 80,
    },
}
"""Name to parameters."""


def refinement_recipe(name: str, **changes: Any) -> RefineSpec:
    """Return a recipe, with changes.

    Examples
    --------
    >>> refinement_recipe("clusters-cifar10").n_clusters
    10
    """
    if name not in REFINEMENT:
        raise InvalidInputError(f"There is no recipe {name!r}; known: {', '.join(REFINEMENT)}.")
    return RefineSpec(**{**REFINEMENT[name], **changes})
