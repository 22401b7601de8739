"""Several maps in a row."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import get_tags

from poisonproof.features.base import FrozenTransformer, require_frozen

__all__ = ["FrozenPipeline", "is_own_map", "make_frozen_pipeline"]


class FrozenPipeline(Pipeline):
    """A scikit-learn pipeline of transformers that all learn nothing.

    A step that learns raises `GuaranteeError` in `fit`.

    Parameters
    ----------
    steps : list of (str, transformer)
        The maps, first to last.
    memory, transform_input, verbose
        As in `sklearn.pipeline.Pipeline`.

    Guarantee
    ---------
    The features of a row are a function of that row alone, bit for bit.
    """

    learns_nothing: ClassVar[bool] = True

    def fit(self, X: Any = None, y: Any = None, **params: Any) -> Self:
        """Check that no step learns."""
        for _, step in self.steps:
            require_frozen(step)
        super().fit(X, y, **params)
        return self

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Check that no step learns, and map `X`."""
        return self.fit(X, y, **params).transform(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.steps:
            tags.input_tags = get_tags(self.steps[0][1]).input_tags
        return tags


def make_frozen_pipeline(*steps: Any) -> FrozenPipeline:
    """Return a `FrozenPipeline` of these maps, named as `sklearn.pipeline.make_pipeline` does.

    Examples
    --------
    >>> from poisonproof.features import Deskew, OrientationHistogram
    >>> digits = make_frozen_pipeline(Deskew(), OrientationHistogram())
    >>> [name for name, _ in digits.steps]
    ['deskew', 'orientationhistogram']
    """
    return FrozenPipeline(make_pipeline(*steps).steps)


def is_own_map(features: Any) -> bool:
    """Say whether a map is the library's own: a row's bits are the same in every container."""
    if isinstance(features, FrozenPipeline):
        return all(is_own_map(step) for _, step in features.steps)
    own = type(features).__module__.startswith("poisonproof.features.")
    return own and isinstance(features, FrozenTransformer)
