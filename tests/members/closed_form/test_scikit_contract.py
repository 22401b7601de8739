"""Every closed-form learner is an ordinary scikit-learn classifier."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from poisonproof.members.closed_form import (
    KernelRidgeClassifier,
    RidgeClassifier,
    ScaledKernelClassifier,
)

LEARNERS = [
    RidgeClassifier(),
    KernelRidgeClassifier(gamma=0.1),
    KernelRidgeClassifier("cosine"),
    ScaledKernelClassifier(),
    ScaledKernelClassifier(n_centers=10),
]


def beyond(estimator) -> dict[str, str]:
    weights = "check_sample_weight_equivalence_on_dense_data"
    if isinstance(estimator, ScaledKernelClassifier):
        return {weights: "the same but for 1e-6, because kernels are rounded, and for the centres"}
    return {}


@parametrize_with_checks(LEARNERS, expected_failed_checks=beyond)
def test_scikit_learn_contract_holds(estimator, check) -> None:
    check(estimator)
