"""The certificates on real MNIST that the documentation promises."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from poisonproof.certificates import certify_votes
from poisonproof.evaluation import clean_accuracy, median_radius
from poisonproof.features import Deskew, OrientationHistogram
from poisonproof.members.closed_form import KernelRidgeClassifier
from poisonproof.partition import PixelSum, partition_data

from .partitions import asked, trained

pytestmark = [
    pytest.mark.mnist,
    pytest.mark.slow,
    pytest.mark.skipif("POISONPROOF_DATA" not in os.environ, reason="needs POISONPROOF_DATA"),
]


@pytest.fixture(scope="module")
def mnist():
    with np.load(Path(os.environ["POISONPROOF_DATA"], "mnist.npz")) as file:
        images = SimpleNamespace(**{name: file[name] for name in file.files})
    images.y_train, images.y_test = images.y_train.astype(np.int64), images.y_test.astype(np.int64)
    frozen = make_pipeline(Deskew(n_jobs=2), OrientationHistogram(block=1, root=True, n_jobs=2))
    return images, frozen.transform(images.x_train), frozen.transform(images.x_test)


@pytest.mark.parametrize(("k", "median", "clean"), [(1200, 535, 0.96), (3000, 850, 0.945)])
def test_median_radius_and_clean_accuracy_on_all_test_images(mnist, k, median, clean) -> None:
    images, train, test = mnist
    cut = partition_data(images.x_train, images.y_train, PixelSum(n_partitions=k))
    data = replace(cut, X=train)
    learner = KernelRidgeClassifier(gamma=2.0, alpha=0.01, precision="single")
    certificates = certify_votes(asked(trained(learner, data, n_jobs=2), test, n_jobs=2), 10)
    assert median_radius(certificates, images.y_test) >= median
    assert clean_accuracy(certificates, images.y_test) >= clean
