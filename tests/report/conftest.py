"""Evidence that reports are made of, and a real browser to open them in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from poisonproof import DPAClassifier, GridClassifier, certify_votes
from poisonproof.attacks import AttackedRow, AttackStudy, KindOutcome, Trace
from poisonproof.certificates import make_threat
from poisonproof.members.closed_form import RidgeClassifier
from poisonproof.report import Evidence

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def digits() -> list[Evidence]:
    """Two models on the same images."""
    X, y = load_digits(return_X_y=True)
    members = {"neighbours": KNeighborsClassifier(1), "ridge": RidgeClassifier()}
    return [
        Evidence.of(
            DPAClassifier(member, 40, classes=range(10)).fit(X[:1300], y[:1300]),
            *(X[1300:], y[1300:]),
            name=name,
            image_shape=(1, 8, 8),
        )
        for name, member in members.items()
    ]


@pytest.fixture(scope="session")
def grid() -> Evidence:
    """A grid of partitions and blocks of pixels."""
    X, y = load_digits(return_X_y=True)
    clf = GridClassifier(n_partitions=30, blocks="lattice:4", classes=range(10))
    return Evidence.of(
        clf.fit(X[:1300], y[:1300]), X[1300:], y[1300:], name="grid", image_shape=(1, 8, 8)
    )


def random_evidence(n_rows: int, n_members: int, n_classes: int, **options: Any) -> Evidence:
    """Return the evidence of members that are right more often than not."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, n_classes, n_rows)
    skill = rng.beta(4, 2, n_rows)[:, None]
    right = rng.random((n_rows, n_members)) < skill
    guess = rng.integers(-1, n_classes, (n_rows, n_members))
    votes = np.where(right, truth[:, None], guess)
    certificates = certify_votes(votes, n_classes)
    return Evidence("random", certificates, truth, **options)


@pytest.fixture(scope="session")
def study() -> AttackStudy:
    """An outcome of attacks that nobody had to train for."""
    threat = make_threat("insert_delete")
    rows = tuple(
        AttackedRow(row, row, Trace((row, 2 * row + 1), (False, True)), Trace((1,), (True,)))
        for row in range(1, 6)
    )
    kinds = tuple(KindOutcome(name, f"{name} <b>", threat, rows) for name in ("first", "second"))
    return AttackStudy(n_members=40, n_rows=1300, limit=650, kinds=kinds)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium: the one in POISONPROOF_CHROMIUM, or one that is installed."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pip install -e '.[dev]' brings playwright"
    )
    path = os.environ.get("POISONPROOF_CHROMIUM")
    path = path or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium found: install one, or name it in POISONPROOF_CHROMIUM")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=sandbox)
        yield opened
        opened.close()
