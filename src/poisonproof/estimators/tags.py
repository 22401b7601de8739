"""What samples a member can take, as far as scikit-learn's tags tell."""

from __future__ import annotations

from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

__all__ = ["input_tags"]


def input_tags(estimator: Any) -> Any:
    """Return the input tags of whatever sees the samples first.

    A search takes what its estimator takes. A pipeline says nothing about text and missing values,
    so its first step is asked; missing values must be taken by every step up to the one that fills
    or encodes them. Of steps that stand side by side one that takes missing values is enough.

    >>> from sklearn.impute import SimpleImputer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> input_tags(make_pipeline(SimpleImputer(), GaussianNB())).allow_nan
    True
    >>> input_tags(make_pipeline(StandardScaler(), GaussianNB())).allow_nan
    False
    """
    if isinstance(estimator, BaseSearchCV):
        return input_tags(estimator.estimator)
    if isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps if not _passes(step)]
        tags = input_tags(steps[0])
        tags.allow_nan = _takes_missing(steps)
        return tags
    tags = get_tags(estimator).input_tags
    if isinstance(estimator, ColumnTransformer):
        parts = [step for _, step, _ in estimator.transformers if not _passes(step)]
    elif isinstance(estimator, FeatureUnion):
        parts = [step for _, step in estimator.transformer_list if not _passes(step)]
    else:
        return tags
    tags.allow_nan = any(input_tags(part).allow_nan for part in parts)
    return tags


def _takes_missing(steps: list[Any]) -> bool:
    for step in steps:
        if not input_tags(step).allow_nan:
            return False
        if isinstance(step, (ColumnTransformer, FeatureUnion)) or _replaces_missing(step):
            return True
    return True


def _replaces_missing(step: Any) -> bool:
    return any(word in type(step).__name__ for word in ("Imputer", "Encoder"))


def _passes(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step in {"passthrough", "drop"})
