"""The versions of the packages that a member's estimators come from are part of its law."""

from __future__ import annotations

from importlib import metadata

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poisonproof import DPAClassifier
from poisonproof.estimators.saving import member_spec
from poisonproof.members.scikit import provider_versions

skorch = pytest.importorskip("skorch")
nn = pytest.importorskip("torch.nn")


def network() -> object:
    return make_pipeline(StandardScaler(), skorch.NeuralNetClassifier(nn.Linear))


def test_packages_of_nested_parts_are_found_and_those_recorded_anyway_are_not() -> None:
    assert provider_versions(network()) == {"skorch": metadata.version("skorch")}
    assert provider_versions(BaggingClassifier(network()))["skorch"] == metadata.version("skorch")
    assert provider_versions(make_pipeline(StandardScaler(), GaussianNB())) == {}


def test_another_version_is_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a run that was stopped would go on with members of two kinds."""
    model = DPAClassifier(GaussianNB(), 3, classes=range(2))
    model.fit(np.arange(20.0).reshape(10, 2), np.arange(10) % 2)
    model.estimator = network()
    spec, found = member_spec(model), metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "0.1" if name == "skorch" else found(name)
    )
    assert member_spec(model) != spec
