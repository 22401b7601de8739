"""scikit-learn's own checks, for both classifiers by default and around five kinds of member."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from poisonproof import DPAClassifier, SSDPAClassifier

MEMBERS = [
    None,
    DecisionTreeClassifier(),
    GaussianNB(),
    LogisticRegression(),
    SVC(),
    KNeighborsClassifier(1),
]
CLASSIFIERS = [
    kind(member, n_partitions=3) for kind in (DPAClassifier, SSDPAClassifier) for member in MEMBERS
]

pytestmark = pytest.mark.filterwarnings(
    # The checks fit rows so few or so odd that members abstain, and say so.
    "ignore::poisonproof.exceptions.MemberWarning"
)


def expected_failures(classifier: Any) -> dict[str, str]:
    """Return the checks that cannot pass, each with its reason."""
    checks: dict[str, str] = {}
    apart = (DecisionTreeClassifier, GaussianNB, type(None))
    if not isinstance(classifier.estimator, apart) or isinstance(classifier, SSDPAClassifier):
        checks |= dict.fromkeys(EQUIVALENCE, "a row of weight zero is still a row of its partition")
    if isinstance(classifier.estimator, KNeighborsClassifier):
        checks |= dict.fromkeys(
            [*WEIGHTS, *EQUIVALENCE], "neighbours take no weights, so the ensemble refuses them"
        )
    return checks


EQUIVALENCE = [
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
]
WEIGHTS = [
    "check_all_zero_sample_weights_error",
    "check_classifiers_one_label_sample_weights",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
]


@parametrize_with_checks(CLASSIFIERS, expected_failed_checks=expected_failures)
def test_the_classifier_keeps_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)
