"""One profile for all property tests, and no self-check where a test does not ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from poisonproof.estimators import storing

# The same examples in every run, no time limit per example.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_check_members = storing.check_members


@pytest.fixture(scope="session", autouse=True)
def _models_do_not_check_themselves() -> Iterator[None]:
    """Spare every training into a store the start of a process; `self_check` puts it back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storing, "check_members", lambda *_: 0)
        yield


@pytest.fixture
def self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "check_members", _check_members)
