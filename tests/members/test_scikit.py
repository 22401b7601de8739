"""A scikit-learn classifier as a member."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from poisonproof import DPAClassifier
from poisonproof.certificates.plurality import ABSTAIN
from poisonproof.estimators.saving import describe, member_spec
from poisonproof.exceptions import InvalidInputError
from poisonproof.members.digest import state_digest
from poisonproof.members.scikit import ScikitLearner, ScikitMember, provider_versions
from poisonproof.members.streams import seed_nested
from poisonproof.partition.partitioned import Partition

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
CLASSES = np.array(["ant", "bee", "cat", "dog"])
CODES = RNG.integers(0, 3, 60)


def partition(index: int = 0, **changes: Any) -> Partition:
    return Partition(**{"index": index, "X": X, "y": CODES, "sample_weight": None} | changes)


def test_the_template_is_never_fitted() -> None:
    template = DecisionTreeClassifier()
    ScikitLearner(template, CLASSES).fit_member(partition(), 4, 0)
    assert not hasattr(template, "tree_")
    assert template.random_state is None


def test_votes_are_indices_into_the_label_set() -> None:
    member = ScikitLearner(DecisionTreeClassifier(), CLASSES).fit_member(partition(), 4, 0)
    votes = member.votes(X)
    assert votes.dtype == np.int16
    assert np.array_equal(votes, CODES)


def test_a_class_the_partition_lacks_does_not_shift_the_others() -> None:
    codes = np.where(CODES == 1, 3, CODES)
    member = ScikitLearner(DecisionTreeClassifier(), CLASSES).fit_member(partition(y=codes), 4, 0)
    assert np.array_equal(member.votes(X), codes)


class _SaysZebra(GaussianNB):
    def predict(self, X: Any) -> Any:
        return np.where(X[:, 0] > 0, "zebra", super().predict(X))


def test_a_prediction_outside_the_label_set_abstains() -> None:
    member = ScikitLearner(_SaysZebra(), CLASSES).fit_member(partition(), 4, 0)
    assert np.array_equal(member.votes(X) == ABSTAIN, X[:, 0] > 0)


def test_the_seed_and_the_index_decide_the_member() -> None:
    learner = ScikitLearner(RandomForestClassifier(3), CLASSES)
    digest = learner.fit_member(partition(4), 4, 1).digest()
    assert learner.fit_member(partition(4), 4, 1).digest() == digest
    assert learner.fit_member(partition(5), 4, 1).digest() != digest
    assert learner.fit_member(partition(4), 4, 2).digest() != digest


def test_weights_reach_the_learner() -> None:
    learner = ScikitLearner(GaussianNB(), CLASSES)
    weighted = learner.fit_member(partition(sample_weight=np.arange(60.0) + 1), 4, 0)
    assert weighted.digest() != learner.fit_member(partition(), 4, 0).digest()


def test_the_digest_covers_the_meaning_of_a_vote() -> None:
    fitted = GaussianNB().fit(X, CLASSES[CODES])
    shifted = np.array(["aaa", *CLASSES])
    member, other = (ScikitMember(fitted, names, 0, 0) for names in (CLASSES, shifted))
    assert member.digest() != other.digest()


@pytest.mark.filterwarnings("error")
def test_a_learner_that_warns_is_not_heard() -> None:
    learner = ScikitLearner(LogisticRegression(max_iter=1), CLASSES)
    assert (learner.fit_member(partition(), 4, 0).votes(X) >= 0).all()


def test_the_specification_tells_templates_apart() -> None:
    one = ScikitLearner(GaussianNB(), CLASSES).specification()
    two = ScikitLearner(GaussianNB(var_smoothing=1e-3), CLASSES).specification()
    assert one["estimator"] == two["estimator"] == "sklearn.naive_bayes.GaussianNB"
    assert one["digest"] != two["digest"]


@pytest.mark.parametrize(
    "template",
    [
        GaussianNB(var_smoothing=1e-3),
        DecisionTreeClassifier(max_depth=3),
        LogisticRegression(C=0.1, max_iter=50),
        KNeighborsClassifier(metric_params={}),
        make_pipeline(StandardScaler(), GaussianNB()),
    ],
    ids=["bayes", "tree", "logistic regression", "with a mapping", "pipeline"],
)
def test_members_are_those_that_clones_of_the_template_become(template: Any) -> None:
    learner = ScikitLearner(template, CLASSES)
    members = [learner.fit_member(partition(), 3, seed=0) for _ in range(2)]
    alone = clone(template)
    seed_nested(alone, 0, partition().index)
    alone.fit(partition().X, CLASSES[partition().y])
    assert {state_digest(member.estimator) for member in members} == {state_digest(alone)}
    assert vars(template).keys() == vars(clone(template)).keys()


def test_an_impossible_parameter_is_refused_once_not_by_every_member() -> None:
    with pytest.raises(InvalidInputError, match="var_smoothing"):
        ScikitLearner(GaussianNB(var_smoothing=-1.0), CLASSES)


def network() -> object:
    skorch, nn = pytest.importorskip("skorch"), pytest.importorskip("torch.nn")
    return make_pipeline(StandardScaler(), skorch.NeuralNetClassifier(nn.Linear))


def test_packages_of_nested_parts_are_found_and_those_recorded_anyway_are_not() -> None:
    assert provider_versions(network()) == {"skorch": metadata.version("skorch")}
    assert provider_versions(BaggingClassifier(network()))["skorch"] == metadata.version("skorch")
    assert provider_versions(make_pipeline(StandardScaler(), GaussianNB())) == {}


def test_another_version_is_another_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a run that was stopped would go on with members of two kinds."""
    model = DPAClassifier(GaussianNB(), 3, classes=range(2))
    model.fit(np.arange(20.0).reshape(10, 2), np.arange(10) % 2)
    model.estimator = network()
    spec, found = member_spec(model, describe(model)), metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "0.1" if name == "skorch" else found(name)
    )
    assert member_spec(model, describe(model)) != spec
