"""The recipe for images of digits that `bench` runs; every choice in it was made on other data."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline, make_pipeline

from poisonproof.estimators.dpa import DPAClassifier
from poisonproof.features.images import Deskew, OrientationHistogram
from poisonproof.members.closed_form.kernel_ridge import KernelRidgeClassifier


def digit_features(n_jobs: int | None = None) -> Pipeline:
    """Return the feature map for small gray images: straightened, then orientation histograms."""
    histogram = OrientationHistogram(
        n_orientations=8, cell=4, block=1, signed=True, root=True, n_jobs=n_jobs
    )
    return make_pipeline(Deskew(n_jobs=n_jobs), histogram)


def digit_member() -> KernelRidgeClassifier:
    """Return the member for those features: kernel ridge."""
    return KernelRidgeClassifier("rbf", gamma=2.0, alpha=0.01, precision="single")


def digit_classifier(n_partitions: int, **parameters: Any) -> DPAClassifier:
    """Return DPA for images of digits, on the CPU.

    Features, gamma and alpha were chosen on scikit-learn's digits
    (``research/experiments/closed_form/choose.py``), so MNIST is data that no choice has seen.

    Examples
    --------
    >>> digit_classifier(1200).n_partitions
    1200
    """
    settings = {"partitioner": "pixel_sum", "classes": range(10), **parameters}
    return DPAClassifier(
        digit_member(),
        n_partitions,
        features=digit_features(parameters.get("n_jobs")),
        **settings,
    )
